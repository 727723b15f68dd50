package p2p

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	wireLife   = 10 * time.Minute // of a proof that packets of a kind get out
	lossTime   = 10 * time.Second // in which connections that end are a burst
	lossShare  = 4                // one in so many of a kind
	maxLosses  = 64               // remembered
	doubtEvery = 30 * time.Second // between two doubts
	freshEvery = time.Minute      // between two that somebody asks for

	refreshLook = 100 * time.Millisecond // between two looks whether all have answered
)

// loss is a straight connection that has ended.
type loss struct {
	at   time.Time
	kind kind
}

// wireKind is the kind by which a connection tells of a way out.
func wireKind(c network.Conn) kind {
	if isUDP(c.RemoteMultiaddr()) {
		return kindQUIC
	}
	return kindTCP
}

// lose notes a connection that has ended.
func (r *reacher) lose(c network.Conn, now time.Time) {
	if m := c.RemoteMultiaddr(); circuit(m) || manet.IsIPLoopback(m) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lost) == maxLosses {
		r.lost = r.lost[1:]
	}
	r.lost = append(r.lost, loss{now, wireKind(c)})
}

// setWire notes what is known of a kind of packet. The lock is held.
func (r *reacher) setWire(k kind, w Wire, now time.Time) {
	if w == WireOpen {
		r.proofs[k] = now
	}
	if k == kindQUIC {
		r.udp = w
	} else {
		r.tcp = w
	}
}

// weighWires takes in what the connections of now say about UDP and TCP: whatever another computer was reached with is
// open. With peers beyond the LANs only connections to those count: the router does not stand between neighbours. A
// proof ages. The lock is held.
func (r *reacher) weighWires(now time.Time, conns []network.Conn) {
	s := r.standing.Load()
	for _, c := range conns {
		m := c.RemoteMultiaddr()
		if circuit(m) || manet.IsIPLoopback(m) || r.ev.outside && !s.outside(m) {
			continue
		}
		r.setWire(wireKind(c), WireOpen, now)
	}
	for _, k := range []kind{kindQUIC, kindTCP} {
		if at, ok := r.proofs[k]; ok && now.Sub(at) >= wireLife {
			r.forgetWire(k)
		}
	}
}

// forgetWire makes a kind of packet unknown, which is then looked at. The lock is held.
func (r *reacher) forgetWire(k kind) {
	r.setWire(k, "", time.Time{})
	delete(r.proofs, k)
	delete(r.looked, k)
}

// notice doubts everything when many connections have ended at once, as when a firewall closes: whether they were closed
// by this peer cannot be told, and a doubt costs a few dial-backs. The lock is held.
func (r *reacher) notice(now time.Time, conns []network.Conn) {
	have, lost := make(map[kind]int), make(map[kind]int)
	for _, c := range conns {
		if m := c.RemoteMultiaddr(); !circuit(m) && !manet.IsIPLoopback(m) {
			have[wireKind(c)]++
		}
	}
	for len(r.lost) > 0 && now.Sub(r.lost[0].at) >= lossTime {
		r.lost = r.lost[1:]
	}
	for _, l := range r.lost {
		lost[l.kind]++
	}
	for k, n := range lost {
		r.pending = r.pending || lossShare*n >= n+have[k]
	}
	if r.pending && now.Sub(r.doubted) >= doubtEvery {
		r.pending, r.lost = false, nil
		r.doubt(now, have)
	}
}

// doubt has everything looked at again, without forgetting it. The lock is held.
func (r *reacher) doubt(now time.Time, have map[kind]int) {
	r.doubted, r.distrust = now, now
	for _, k := range []kind{kindQUIC, kindTCP} {
		if have[k] == 0 {
			r.forgetWire(k)
		}
	}
}

// Refresh has others dial this peer again, at once, without forgetting what was found, and returns when they have answered
// or ctx ends. Asked for more than once a minute it does nothing.
func (h *Host) Refresh(ctx context.Context) {
	if h.reach == nil || h.reach.dialBacks == nil || !h.reach.refresh(time.Now()) {
		return
	}
	tick := time.NewTicker(refreshLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !h.reach.busy() {
				return
			}
		case <-ctx.Done():
			return
		case <-h.ctx.Done():
			return
		}
	}
}

func (r *reacher) refresh(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.refreshed) < freshEvery {
		return false
	}
	r.refreshed, r.pending = now, true
	r.poke()
	return true
}

// busy reports whether a doubt, or a dial-back, is under way.
func (r *reacher) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending || len(r.dialing) > 0
}
