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
	askSilent  = time.Minute // before a peer that gave no answer about an address is asked again
	maxServers = 32          // peers that questions are spread over
	maxOwn     = 10          // own addresses that others are asked about
	maxAsking  = 8           // questions at once
	maxSilent  = 256         // peers and addresses that such a wait is kept for
)

// servers returns the connected peers that can be asked. One in the same LAN sees nothing of the router.
func (r *reacher) servers(conns []network.Conn) []peer.ID {
	if r.asker == nil {
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

// inquiry is one address and whom to ask about it.
type inquiry struct {
	addr   ma.Multiaddr
	server peer.ID
	key    attest.Key
}

// questions picks what to ask now, and notes that it is being asked. The lock is held.
func (r *reacher) questions(now time.Time, own []ma.Multiaddr, servers []peer.ID) []inquiry {
	var out []inquiry
	busy := make(map[peer.ID]int)
	for _, id := range r.asking {
		busy[id]++
	}
	for _, m := range own {
		a := m.String()
		rec := r.ev.records[a].fresh(now)
		ready := slices.DeleteFunc(slices.Clone(servers), func(id peer.ID) bool { return now.Before(r.silent[a+string(id)]) })
		if _, ok := r.asking[a]; ok || len(r.asking) >= maxAsking || len(ready) == 0 || now.Before(rec.due(now, len(ready))) {
			continue
		}
		best, bestAge := peer.ID(""), -1
		var bestKey attest.Key
		for _, id := range ready { // in no order, which spreads the questions
			key, err := KeyOf(id)
			if err != nil || busy[id] >= asking {
				continue
			}
			age := len(rec) // of its last finding, in findings: who has not been asked is as good as it gets
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
		r.asking[a] = best
		busy[best]++
		out = append(out, inquiry{m, best, bestKey})
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

// askOne asks in the background and notes the answer.
func (r *reacher) askOne(q inquiry) {
	a := q.addr.String()
	if !r.h.begin() {
		return
	}
	go func() { // ends with the host's context, which Close waits for
		defer r.h.running.Done()
		ok, err := r.asker.ask(r.h.ctx, q.server, q.addr)
		now := time.Now()
		r.mu.Lock()
		delete(r.asking, a)
		switch {
		case err != nil:
			if len(r.silent) >= maxSilent {
				clear(r.silent)
			}
			r.silent[a+string(q.server)] = now.Add(askSilent)
		default:
			r.ev.records[a] = r.ev.records[a].add(finding{by: q.key, at: now, ok: ok})
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
		r.h.log.Debug("asked a peer to dial back", "addr", a, "peer", q.key, "result", result, "err", err)
		r.poke()
	}()
}
