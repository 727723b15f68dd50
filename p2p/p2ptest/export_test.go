package p2ptest

import (
	"net"
	"net/netip"
)

// Socket opens a bare socket at an address of the network, behind the box if there is one.
func (w *Network) Socket(at netip.AddrPort, box *Box) net.PacketConn {
	w.mu.Lock()
	w.places[at.Addr()] = place{box: box}
	w.mu.Unlock()
	return w.listen(at, box)
}
