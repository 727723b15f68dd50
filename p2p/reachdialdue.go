package p2p

import (
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/autonatv2"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lacuna-network/lacuna/attest"
)

const (
	silentFor    = time.Minute // before a peer that gave no answer about an address is tried with it again
	maxServers   = 32          // peers that dial-backs are spread over
	maxOwn       = 10          // own addresses that others are to dial
	maxDialBacks = 8           // at once
	maxSilent    = 256         // peers and addresses that such a wait is kept for
)

// server is a peer that can dial back.
type server struct {
	id      peer.ID
	key     attest.Key
	from    string // its address range
	outside bool   // it is beyond this peer's LANs
	private bool   // its address is of a LAN
}

// servers returns the connected peers that can dial back. One in the same LAN sees nothing of the router.
func (r *reacher) servers(conns []network.Conn) []server {
	if r.dialBacks == nil {
		return nil
	}
	var out []server
	s := r.standing.Load()
	for _, c := range conns {
		id, m := c.RemotePeer(), c.RemoteMultiaddr()
		known := slices.ContainsFunc(out, func(o server) bool { return o.id == id })
		if circuit(m) || manet.IsIPLoopback(m) || !r.lan && !manet.IsPublicAddr(m) || known {
			continue
		}
		spoken, err := r.h.host.Peerstore().SupportsProtocols(id, autonatv2.DialProtocol)
		if err != nil || len(spoken) == 0 {
			continue
		}
		if key, err := KeyOf(id); err == nil {
			out = append(out, server{id, key, AddrRange(m.String(), SiteV4, SiteV6), s.outside(m), !global(m)})
		}
		if len(out) == maxServers {
			break
		}
	}
	return out
}

// crowdOf counts servers and their address ranges.
func crowdOf(servers []server, doubt time.Time) crowd {
	seen := make(map[string]bool)
	for _, s := range servers {
		seen[s.from] = true
	}
	return crowd{servers: len(servers), ranges: len(seen), doubt: doubt}
}

// fit reports whether a server's word about an address means anything: on a network with outside peers these alone dial
// what is not of a LAN, since a neighbour's packets may turn round in the router, and neighbours alone dial what is.
func (s server) fit(addr ma.Multiaddr, outside bool) bool {
	switch {
	case !outside:
		return true
	case global(addr):
		return s.outside
	}
	return s.private
}

// ownAddrs returns the addresses that others should be able to dial: those of the options, else those of the interfaces,
// the router's mappings, and what others see.
func (r *reacher) ownAddrs(now time.Time) []ma.Multiaddr {
	s := r.standing.Load()
	all := s.fixed
	if len(all) == 0 {
		if h, ok := r.h.host.(interface{ AllAddrs() []ma.Multiaddr }); ok {
			all = h.AllAddrs()
		}
		all = slices.Concat(all, r.seen.addrs(now))
	}
	var out []ma.Multiaddr
	for _, m := range all {
		ip, ok := addrIP(m)
		hidden := ok && s.hidden[ip]
		if circuit(m) || local(m) || hidden || !r.lan && !manet.IsPublicAddr(m) || slices.ContainsFunc(out, m.Equal) {
			continue
		}
		out = append(out, m)
	}
	return out[:min(len(out), maxOwn)]
}

// dialBack is one address and who is to dial it.
type dialBack struct {
	addr ma.Multiaddr
	server
}

// dueDialBacks picks what is to be dialled now, and by whom, and notes it as under way. The lock is held.
func (r *reacher) dueDialBacks(now time.Time, own []ma.Multiaddr, servers []server) []dialBack {
	var out []dialBack
	busy := make(map[peer.ID]int)
	for _, id := range r.dialing {
		busy[id]++
	}
	for _, m := range own {
		a := m.String()
		rec := r.ev.records[a].fresh(now)
		ready := slices.DeleteFunc(slices.Clone(servers), func(s server) bool {
			return !s.fit(m, r.ev.outside) || now.Before(r.silent[a+string(s.id)])
		})
		if _, ok := r.dialing[a]; ok || len(r.dialing) >= maxDialBacks || len(ready) == 0 || now.Before(rec.due(now, crowdOf(ready, r.distrust))) {
			continue
		}
		ready = slices.DeleteFunc(ready, func(s server) bool { return busy[s.id] >= perServer })
		if len(ready) == 0 {
			continue
		}
		best := rec.next(ready)
		r.dialing[a] = best.id
		busy[best.id]++
		out = append(out, dialBack{m, best})
	}
	return out
}

// next picks who is to dial an address. After a failure, the peer that last could, if it has not been asked since: if it
// still can, the failure was the other's. Else one from a place that has not been asked, then the one that was asked
// longest ago. The servers are in no order, which spreads the dial-backs.
func (r record) next(servers []server) server {
	if i := r.lastOK(); i >= 0 && i < len(r)-1 && lastBy(r, r[i].by) == i {
		if k := slices.IndexFunc(servers, func(s server) bool { return s.key == r[i].by }); k >= 0 {
			return servers[k]
		}
	}
	score := func(s server) int {
		age := len(r) // of its last finding, in findings: who has none is as good as it gets
		if i := lastBy(r, s.key); i >= 0 {
			age = len(r) - 1 - i
		}
		if age > 0 && !slices.ContainsFunc(r, func(f finding) bool { return f.from == s.from }) {
			age += maxFindings
		}
		return age
	}
	return slices.MaxFunc(servers, func(a, b server) int { return score(a) - score(b) })
}

// lastBy returns the index of the newest finding of that peer, -1 for none.
func lastBy(rec record, key attest.Key) int {
	for i, f := range slices.Backward(rec) {
		if f.by == key {
			return i
		}
	}
	return -1
}

// haveDialled has the address dialled, in the background, and notes the answer.
func (r *reacher) haveDialled(b dialBack) {
	a := b.addr.String()
	if !r.h.begin() {
		return
	}
	go func() { // ends with the host's context, which Close waits for
		defer r.h.running.Done()
		ok, err := r.dialBacks.request(r.h.ctx, b.id, b.addr)
		now := time.Now()
		r.mu.Lock()
		delete(r.dialing, a)
		switch {
		case err != nil:
			if len(r.silent) >= maxSilent {
				clear(r.silent)
			}
			r.silent[a+string(b.id)] = now.Add(silentFor)
		default:
			r.ev.records[a] = r.ev.records[a].add(finding{by: b.key, at: now, ok: ok, from: b.from})
		}
		r.mu.Unlock()
		result := "worked"
		switch {
		case err != nil:
			result = "no_answer"
		case !ok:
			result = "failed"
		}
		r.h.metrics.dialBacks.WithLabelValues(result).Inc()
		r.h.log.Debug("a peer was to dial back", "addr", a, "peer", b.key, "result", result, "err", err)
		r.poke()
	}()
}
