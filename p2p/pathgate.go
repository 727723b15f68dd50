package p2p

import (
	"errors"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	wrongPeerWait = 5 * time.Minute // before an address at which another peer answered is dialled again for that peer
	maxWrongPeer  = 1024            // such addresses remembered
)

// gate keeps the library from dialling some addresses.
type gate struct {
	mu    sync.Mutex
	via   map[peer.ID]peer.ID  // which relay alone leads to a peer for now
	wrong map[string]time.Time // peer and address at which another peer answered → until when it is not dialled
}

var _ connmgr.ConnectionGater = (*gate)(nil)

func newGate() *gate {
	return &gate{via: make(map[peer.ID]peer.ID), wrong: make(map[string]time.Time)}
}

// only lets a peer be dialled through that relay alone, or straight.
func (g *gate) only(id, relay peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.via[id] = relay
}

// any ends only.
func (g *gate) any(id peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.via, id)
}

// failed reads a dial's error. Another peer at an address is a stale record, or a lie that makes this peer knock at a
// stranger's door: it is not tried again for a while, however often the caller does.
func (g *gate) failed(id peer.ID, err error, now time.Time) {
	var d *swarm.DialError
	if !errors.As(err, &d) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range d.DialErrors {
		var mismatch sec.ErrPeerIDMismatch
		if !errors.As(e.Cause, &mismatch) {
			continue
		}
		if len(g.wrong) >= maxWrongPeer {
			g.sweep(now)
		}
		g.wrong[string(id)+e.Address.String()] = now.Add(wrongPeerWait)
	}
}

// sweep makes room: of those whose time is over, or, if there are none, of all.
func (g *gate) sweep(now time.Time) {
	for k, until := range g.wrong {
		if now.After(until) {
			delete(g.wrong, k)
		}
	}
	if len(g.wrong) >= maxWrongPeer {
		clear(g.wrong)
	}
}

// InterceptAddrDial decides on one address of a peer.
func (g *gate) InterceptAddrDial(id peer.ID, m ma.Multiaddr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until, ok := g.wrong[string(id)+m.String()]; ok && time.Now().Before(until) {
		return false
	}
	if want, ok := g.via[id]; ok {
		relay, relayed := relayOf(m)
		return !relayed || relay == want
	}
	return true
}

// InterceptPeerDial lets every peer be dialled.
func (g *gate) InterceptPeerDial(peer.ID) bool { return true }

// InterceptAccept lets everybody connect; the resource manager counts.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured lets everybody in.
func (g *gate) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool { return true }

// InterceptUpgraded lets everybody in.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }
