package p2p

import (
	"errors"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"

	"github.com/lacuna-network/lacuna/attest"
)

// ErrLimited means that a peer can be reached only through a relay that carries signalling alone.
var ErrLimited = errors.New("only a limited relay leads there")

// Path is how the best connection to a peer runs.
type Path uint8

// The paths, worst first.
const (
	PathNone    Path = iota // no connection
	PathLimited             // through a relay that carries signalling only
	PathRelayed             // through a relay whose owner lets bulk data pass
	PathPunched             // straight, after a relay has introduced both sides
	PathDirect              // straight, dialled
)

var pathNames = [...]string{"none", "limited", "relayed", "hole-punched", "direct"}

// String returns the path in lower case.
func (p Path) String() string { return pathNames[min(int(p), len(pathNames)-1)] }

// Bulk reports whether data, logs and tunnels may use the path.
func (p Path) Bulk() bool { return p >= PathRelayed }

// Path returns how the best connection to the peer runs now.
func (h *Host) Path(key attest.Key) Path {
	best := PathNone
	for _, c := range h.host.Network().ConnsToPeer(PeerID(key)) {
		best = max(best, h.pathOf(c))
	}
	return best
}

// pathOf returns how one connection runs.
func (h *Host) pathOf(c network.Conn) Path {
	stat := c.Stat()
	switch {
	case c.IsClosed():
		return PathNone
	case circuit(c.RemoteMultiaddr()):
		if carriesBulk(stat.Stats, time.Now()) {
			return PathRelayed
		}
		return PathLimited
	case h.paths.punched(c):
		return PathPunched
	}
	return PathDirect
}

// carriesBulk reports whether a circuit is allowed enough data for a job, and time that is still left. Both ends know
// the relay's limits.
func carriesBulk(s network.Stats, now time.Time) bool {
	if !s.Limited {
		return true
	}
	data, _ := s.Extra[client.StatLimitData].(uint64)
	life, _ := s.Extra[client.StatLimitDuration].(time.Duration)
	// On the wire 0 would be "no limit", but such a relay states no limit at all.
	return data >= bulkData && life-now.Sub(s.Opened) >= bulkTime
}

// paths remembers which connections a relay has introduced, and tells of new ones.
type paths struct {
	mu     sync.Mutex
	marked map[string]bool // by connection
	next   chan struct{}   // closed at the next new connection
}

func (p *paths) init() { p.marked, p.next = make(map[string]bool), make(chan struct{}) }

// opened notes a new connection. A straight one that is made while a relayed one is there was punched, or dialled back by
// the side behind the relay.
func (p *paths) opened(n network.Network, c network.Conn) {
	introduced := false
	if !circuit(c.RemoteMultiaddr()) {
		for _, o := range n.ConnsToPeer(c.RemotePeer()) {
			introduced = introduced || circuit(o.RemoteMultiaddr())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if introduced {
		p.marked[c.ID()] = true
	}
	close(p.next)
	p.next = make(chan struct{})
}

func (p *paths) closed(c network.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.marked, c.ID())
}

func (p *paths) punched(c network.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.marked[c.ID()]
}

// wait returns a channel that is closed at the next new connection to anyone.
func (p *paths) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}
