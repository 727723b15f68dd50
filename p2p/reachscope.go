package p2p

import (
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// outsideLife is for how long a network counts as one with outside peers after the last has gone: a restart of the only
// relay must not turn a neighbour's word into the truth about the internet.
const outsideLife = 2 * time.Minute

// global reports an address that is not one of a private network: it may mean the same computer everywhere.
func global(m ma.Multiaddr) bool {
	if circuit(m) || local(m) {
		return false
	}
	return manet.IsPublicAddr(m) || !manet.IsPrivateAddr(m)
}

// reachesOut reports a circuit address that leads to the relay from anywhere, not only from its LAN.
func reachesOut(m ma.Multiaddr) bool {
	head, _ := ma.SplitFunc(m, func(c ma.Component) bool { return c.Protocol().Code == ma.P_CIRCUIT })
	return global(head)
}

// outside reports the address of a peer that is beyond this peer's LANs. What such a peer finds holds for others; what a
// neighbour finds holds for the LAN.
func (s standing) outside(m ma.Multiaddr) bool {
	if !global(m) {
		return false
	}
	if manet.IsPublicAddr(m) {
		return true
	}
	ip, ok := addrIP(m)
	if !ok {
		return false
	}
	for _, n := range s.nets {
		if n.Contains(ip) {
			return false
		}
	}
	return true
}

// metOutside notes whether peers beyond the LANs are connected. The lock is held.
func (r *reacher) metOutside(now time.Time, conns []network.Conn) {
	s := r.standing.Load()
	for _, c := range conns {
		if s.outside(c.RemoteMultiaddr()) {
			r.outside = now
			break
		}
	}
	r.ev.outside = !r.outside.IsZero() && now.Sub(r.outside) < outsideLife
}

// prefixOf returns the range of an interface's address.
func prefixOf(ip netip.Addr, bits int) netip.Prefix {
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.PrefixFrom(ip, ip.BitLen())
	}
	return p
}
