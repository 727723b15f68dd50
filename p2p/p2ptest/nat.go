package p2ptest

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/config"
	"github.com/marcopolo/simnet"

	"github.com/lacuna-network/lacuna/p2p"
)

// NAT is how a [Box] translates addresses.
type NAT uint8

// The kinds, most permissive first. All but Symmetric give a socket behind them one port outside, its own if that is free.
const (
	FullCone          NAT = iota // whoever knows the port can use it
	AddressRestricted            // only hosts to which something was sent
	PortRestricted               // only sockets to which something was sent: the usual home router
	Symmetric                    // each destination sees another port and alone can use it
)

var natNames = [...]string{"full-cone", "address-restricted", "port-restricted", "symmetric"}

// String returns the kind in lower case.
func (n NAT) String() string { return natNames[min(int(n), len(natNames)-1)] }

// Box is a router with one public address that translates for the hosts behind it. They reach each other directly. What
// it has learned it forgets when nothing was sent for a while ([Options.Mapping]); what comes in does not count.
type Box struct {
	w      *Network
	kind   NAT
	number int
	hosts  int
	ip     netip.Addr
	mu     sync.Mutex
	ports  map[uint16]*mapping
	inside map[flow]*mapping
}

// flow is what has one port outside.
type flow struct {
	inner netip.AddrPort
	to    netip.AddrPort // only for Symmetric
}

// mapping is one port outside.
type mapping struct {
	flow flow
	port uint16
	sent map[netip.AddrPort]time.Time // whom something was sent to, and when last; port 0 = any
	last time.Time
}

// firstBox keeps the public addresses of boxes apart from those of hosts.
const firstBox = 1 << 16

// Box adds a router of this kind.
func (w *Network) Box(kind NAT) *Box {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &Box{w: w, kind: kind, number: len(w.outside), ip: public(firstBox + len(w.outside))}
	b.forget()
	w.outside[b.ip] = b
	return b
}

// AddBehind adds a host behind a router of its own; see [Box.Options].
func (w *Network) AddBehind(kind NAT, o p2p.Options) *p2p.Host {
	w.tb.Helper()
	return w.Box(kind).Add(o)
}

// Options returns options for the next host, behind the router; see [Network.Options]. Other than hosts in the open it
// learns from its peers how its addresses look from outside, which hole punching needs.
func (b *Box) Options(o p2p.Options) p2p.Options {
	b.hosts++
	ip := netip.AddrFrom4([4]byte{10, byte(b.number >> 8), byte(b.number), byte(b.hosts)})
	o = b.w.options(o, ip, b)
	o.Libp2p = append(o.Libp2p, learn)
	return o
}

// learn takes back what the rules of a test network switch off.
func learn(c *config.Config) error {
	c.DisableIdentifyAddressDiscovery = false
	return nil
}

// Add adds a host behind the router; see [Box.Options].
func (b *Box) Add(o p2p.Options) *p2p.Host {
	b.w.tb.Helper()
	return b.w.add(b.Options(o))
}

// IP returns the router's address outside.
func (b *Box) IP() string { return b.ip.String() }

// Restart makes the router forget all that it has learned: connections through it break until something is sent again,
// and then come from other ports unless the kind keeps them.
func (b *Box) Restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
}

func (b *Box) forget() {
	b.ports, b.inside = make(map[uint16]*mapping), make(map[flow]*mapping)
}

// out returns the address that a packet shows outside.
func (b *Box) out(inner, to netip.AddrPort, now time.Time) netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := flow{inner: inner}
	if b.kind == Symmetric {
		f.to = to
	}
	m := b.inside[f]
	if m == nil || !b.fresh(m.last, now) {
		if m != nil {
			delete(b.ports, m.port)
		}
		m = &mapping{flow: f, port: b.freePort(inner.Port()), sent: make(map[netip.AddrPort]time.Time)}
		b.inside[f], b.ports[m.port] = m, m
	}
	m.last = now
	m.sent[b.peer(to)] = now
	return netip.AddrPortFrom(b.ip, m.port)
}

func (b *Box) fresh(t, now time.Time) bool { return now.Sub(t) < b.w.o.Mapping }

// peer returns what of an outside address the filter looks at.
func (b *Box) peer(a netip.AddrPort) netip.AddrPort {
	switch b.kind {
	case FullCone:
		return netip.AddrPort{}
	case AddressRestricted:
		return netip.AddrPortFrom(a.Addr(), 0)
	}
	return a
}

// freePort returns a port that is not in use: the wanted one, but for Symmetric, whose ports nobody should guess.
func (b *Box) freePort(want uint16) uint16 {
	for b.kind == Symmetric || b.ports[want] != nil {
		want = uint16(20_000 + b.w.random.IntN(40_000)) // the network's lock is held: packets leave one after another
		if b.ports[want] == nil {
			break
		}
	}
	return want
}

// in returns where a packet to an address outside goes, the zero value if no socket has that port. Whether that socket's
// filter lets it in is decided on its arrival, in [guarded.ReadFrom], since by then something may have been sent out. Only
// a Symmetric port belongs to one peer for good.
func (b *Box) in(to, from netip.AddrPort, now time.Time) netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.ports[to.Port()]
	if m == nil || !b.fresh(m.last, now) || (b.kind == Symmetric && m.flow.to != from) {
		return netip.AddrPort{}
	}
	return m.flow.inner
}

// admits reports whether the filter lets a packet in to a socket.
func (b *Box) admits(inner, from netip.AddrPort, now time.Time) bool {
	f := flow{inner: inner}
	if b.kind == Symmetric {
		f.to = from
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.inside[f]
	return m != nil && b.fresh(m.sent[b.peer(from)], now)
}

// guarded is a socket behind a box.
type guarded struct {
	*simnet.SimConn
	box   *Box
	inner netip.AddrPort
}

// ReadFrom reads the next packet that the box lets in.
func (g guarded) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := g.SimConn.ReadFrom(p)
		if err != nil {
			return n, from, err
		}
		if a := addrPort(from); g.box.neighbour(a.Addr()) || g.box.admits(g.inner, a, time.Now()) {
			return n, from, nil
		}
	}
}

// neighbour reports an address behind the same box.
func (b *Box) neighbour(a netip.Addr) bool {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return b.w.places[a].box == b
}
