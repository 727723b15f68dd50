package p2ptest

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/marcopolo/simnet"

	"github.com/lacuna-network/lacuna/p2p"
)

// route is called for each packet, one after another, when it has left its sender: it translates addresses on the way
// out of a box and into another, and returns how long the packet travels.
func (w *Network) route(p *simnet.Packet) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	from, to := addrPort(p.From), addrPort(p.To)
	at := from // as the receiver sees it
	sender, inner := w.places[from.Addr()], w.places[to.Addr()].box
	switch {
	case inner != nil && inner != sender.box: // a private address of another home leads nowhere
		to = netip.AddrPort{}
	case inner == nil:
		if sender.box != nil {
			at = sender.box.out(from, to, now)
		}
		if box := w.outside[to.Addr()]; box != nil {
			to = box.in(to, at, now)
		}
	}
	receiver, ok := w.places[to.Addr()]
	if !ok || w.cut(from.Addr(), to.Addr()) || (w.o.LossBP > 0 && w.random.IntN(10_000) < w.o.LossBP) {
		p.To = &net.UDPAddr{IP: net.IPv4zero} // nobody has it: the packet is forgotten at once
		return 0
	}
	p.From, p.To = net.UDPAddrFromAddrPort(at), net.UDPAddrFromAddrPort(to)
	d := w.latency(sender.host, receiver.host)
	if w.o.Jitter > 0 {
		d += time.Duration(w.random.Int64N(int64(w.o.Jitter)))
	}
	return d
}

func (w *Network) cut(a, b netip.Addr) bool {
	return w.muted[a] || w.muted[b] || w.groups[a] != w.groups[b]
}

// latency returns how far two hosts are from each other.
func (w *Network) latency(a, b int) time.Duration {
	if w.o.Pair != nil {
		return w.o.Pair(a, b)
	}
	if w.o.Spread == 0 {
		return w.o.Latency
	}
	pair := rand.New(rand.NewPCG(w.o.Seed, uint64(min(a, b))<<32|uint64(max(a, b))))
	return w.o.Latency + time.Duration(pair.Int64N(int64(w.o.Spread)+1))
}

// addrPort returns an address of this network, which are all UDP.
func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := u.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Latency returns how long a packet travels between two hosts, one way, without jitter.
func (w *Network) Latency(a, b *p2p.Host) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latency(w.places[ipOf(a)].host, w.places[ipOf(b)].host)
}

// ipOf returns the address that a host listens on; its own, not that of the box in front of it.
func ipOf(h *p2p.Host) netip.Addr {
	for _, m := range h.Libp2p().Network().ListenAddresses() {
		if s, err := m.ValueForProtocol(4); err == nil { // 4 is multiaddr's code for ip4
			if a, err := netip.ParseAddr(s); err == nil {
				return a
			}
		}
	}
	return netip.Addr{}
}

// Mute loses all packets from and to the host from now on, or no longer.
func (w *Network) Mute(h *p2p.Host, muted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted[ipOf(h)] = muted
}

// Partition cuts the network: hosts of different groups cannot hear each other, and those in no group, now or later, are
// one more group. It replaces an earlier partition.
func (w *Network) Partition(groups ...[]*p2p.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups = make(map[netip.Addr]int)
	for i, hosts := range groups {
		for _, h := range hosts {
			w.groups[ipOf(h)] = i + 1
		}
	}
}

// Heal ends a partition.
func (w *Network) Heal() { w.Partition() }
