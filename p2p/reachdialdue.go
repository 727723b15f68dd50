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

// servers returns the connected peers that can dial back. One in the same LAN sees nothing of the router.
func (r *reacher) servers(conns []network.Conn) []peer.ID {
	if r.dialBacks == nil {
		return nil
	}
	var out []peer.ID
	for _, c := range conns {
		id, m := c.RemotePeer(), c.RemoteMultiaddr()
		if circuit(m) || manet.IsIPLoopback(m) || !r.lan && !manet.IsPublicAddr(m) || slices.Contains(out, id) {
			continue
		}
		spoken, err := r.h.host.Peerstore().SupportsProtocols(id, autonatv2.DialProtocol)
		if err == nil && len(spoken) > 0 {
			out = append(out, id)
		}
		if len(out) == maxServers {
			break
		}
	}
	return out
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
	addr   ma.Multiaddr
	server peer.ID
	key    attest.Key
}

// dueDialBacks picks what is to be dialled now, and by whom, and notes it as under way. The lock is held.
func (r *reacher) dueDialBacks(now time.Time, own []ma.Multiaddr, servers []peer.ID) []dialBack {
	var out []dialBack
	busy := make(map[peer.ID]int)
	for _, id := range r.dialing {
		busy[id]++
	}
	for _, m := range own {
		a := m.String()
		rec := r.ev.records[a].fresh(now)
		ready := slices.DeleteFunc(slices.Clone(servers), func(id peer.ID) bool { return now.Before(r.silent[a+string(id)]) })
		if _, ok := r.dialing[a]; ok || len(r.dialing) >= maxDialBacks || len(ready) == 0 || now.Before(rec.due(now, len(ready))) {
			continue
		}
		best, bestAge := peer.ID(""), -1
		var bestKey attest.Key
		for _, id := range ready { // in no order, which spreads the dial-backs
			key, err := KeyOf(id)
			if err != nil || busy[id] >= perServer {
				continue
			}
			age := len(rec) // of its last finding, in findings: who has none is as good as it gets
			if i := lastBy(rec, key); i >= 0 {
				age = len(rec) - 1 - i
			}
			if age > bestAge {
				best, bestAge, bestKey = id, age, key
			}
		}
		if best == "" {
			continue
		}
		r.dialing[a] = best
		busy[best]++
		out = append(out, dialBack{m, best, bestKey})
	}
	return out
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
		ok, err := r.dialBacks.request(r.h.ctx, b.server, b.addr)
		now := time.Now()
		r.mu.Lock()
		delete(r.dialing, a)
		switch {
		case err != nil:
			if len(r.silent) >= maxSilent {
				clear(r.silent)
			}
			r.silent[a+string(b.server)] = now.Add(silentFor)
		default:
			r.ev.records[a] = r.ev.records[a].add(finding{by: b.key, at: now, ok: ok})
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
