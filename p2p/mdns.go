package p2p

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
)

// Bounds of what neighbours can make this peer do. Whoever is on the local network can answer for any number of peers.
const (
	mdnsDials     = 16               // at once
	mdnsPerMinute = 1                // dials of one peer
	mdnsAll       = 64               // dials a minute of all together
	mdnsAddrs     = 8                // of one peer
	mdnsLook      = 30 * time.Second // how often the own addresses are compared with those told
	mdnsAnew      = 2 * time.Minute  // between two beginnings of a peer that is alone
)

// mdnsService is the name under which peers of a network find each other. The library cuts it into DNS labels, of at
// most 63 bytes; a network's name has 32.
func mdnsService(name string) string { return "_lacuna-" + name + "._udp" }

// neighbours finds peers on the local network. What it hears are hints: the handshake proves the key, and a peer of
// another network is turned away by the protocols' names.
type neighbours struct {
	h     *Host
	slots chan struct{}
	peers *Limiter
	all   *Limiter
}

// findNeighbours tells the local network of this peer and connects to those it hears of, until the host closes.
func (h *Host) findNeighbours() {
	n := &neighbours{h: h, slots: make(chan struct{}, mdnsDials), peers: NewLimiter(mdnsPerMinute, 1), all: NewLimiter(mdnsAll, mdnsDials)}
	if h.begin() {
		go n.run()
	}
}

// run keeps what is told in step with the addresses of this computer: the library tells for ever what it saw when it
// was started, and a laptop changes networks. It also names each neighbour once, so a peer that is connected to nobody
// begins anew from time to time: a dial may have failed, or come at a bad moment. A peer that listens on loopback only
// tells and asks nothing.
func (n *neighbours) run() {
	defer n.h.running.Done()
	ticker := time.NewTicker(mdnsLook)
	defer ticker.Stop()
	var told []ma.Multiaddr
	var started time.Time
	stop := func() {}
	defer func() { stop() }()
	for {
		now := n.addrs()
		alone := len(n.h.host.Network().Peers()) == 0 && time.Since(started) >= mdnsAnew
		if alone || !slices.EqualFunc(now, told, ma.Multiaddr.Equal) {
			stop()
			stop, told, started = n.start(now), now, time.Now()
		}
		select {
		case <-n.h.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// start begins to tell these addresses and to ask for others'. A failure is no reason not to run: many networks and
// containers have no multicast.
func (n *neighbours) start(addrs []ma.Multiaddr) (stop func()) {
	if len(addrs) == 0 {
		return func() {}
	}
	s := mdns.NewMdnsService(mdnsHost{n.h.host, addrs}, mdnsService(n.h.network), n)
	n.h.deaf.Store(nil)
	if err := s.Start(); err != nil {
		note := fmt.Sprintf("peers on the local network cannot be found by multicast: %v", err)
		n.h.deaf.Store(&note)
		n.h.log.Warn("peers on the local network cannot be found by multicast", "err", err)
	}
	return func() { _ = s.Close() } // also what was started by half
}

// addrs returns what to tell: addresses that this computer has on a network it shares with others.
func (n *neighbours) addrs() []ma.Multiaddr {
	all, err := n.h.host.Network().InterfaceListenAddresses()
	if err != nil {
		return nil
	}
	_, hidden, _ := interfaces()
	all = slices.DeleteFunc(all, func(m ma.Multiaddr) bool {
		ip, ok := addrIP(m)
		return !ok || local(m) || hidden[ip] || kindOf(m) > kindQUIC
	})
	slices.SortFunc(all, func(a, b ma.Multiaddr) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// HandlePeerFound is called by the library in a goroutine of its own.
func (n *neighbours) HandlePeerFound(found peer.AddrInfo) {
	key, err := KeyOf(found.ID)
	if err != nil {
		n.count("bad")
		return
	}
	addrs := onLink(found.Addrs, prefixes())
	now := time.Now()
	switch {
	case n.h.Path(key) >= PathPunched: // what a relay leads to is nearer than that
		return
	case len(addrs) == 0:
		n.count("elsewhere")
		return
	case !n.peers.Allow(key, now) || !n.all.Allow(attest.Key{}, now):
		n.count("rate")
		return
	}
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	default:
		n.count("busy")
		return
	}
	if !n.h.begin() {
		return
	}
	defer n.h.running.Done()
	// Without force, a connection through a relay would do, and nothing be dialled.
	ctx, cancel := context.WithTimeout(network.WithForceDirectDial(n.h.ctx, "neighbour"), dialTimeout)
	defer cancel()
	if err := n.h.host.Connect(ctx, peer.AddrInfo{ID: found.ID, Addrs: addrs}); err != nil {
		n.count("failed")
		n.h.log.Debug("neighbour is not reached", "peer", key, "err", err)
		return
	}
	n.count("connected")
}

func (n *neighbours) count(result string) { n.h.metrics.neighbours.WithLabelValues(result).Inc() }

// onLink returns those addresses that lie in one of the networks, at most mdnsAddrs. A neighbour is on the same link by
// definition; another address is a stranger's, whom somebody wants to be knocked at.
func onLink(addrs []ma.Multiaddr, links []netip.Prefix) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, m := range addrs {
		ip, ok := addrIP(m)
		if !ok || local(m) || kindOf(m) > kindQUIC || len(out) == mdnsAddrs {
			continue
		}
		if slices.ContainsFunc(links, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			out = append(out, m)
		}
	}
	return out
}

// prefixes returns the networks that this computer is on.
func prefixes() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if bits, _ := n.Mask.Size(); ok && !ip.IsLoopback() {
			out = append(out, netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
	return out
}

// mdnsHost is a host that claims to have no other addresses than these: the library would tell those of loopback and of
// container bridges too.
type mdnsHost struct {
	host.Host
	addrs []ma.Multiaddr
}

// Network returns the host's network.
func (h mdnsHost) Network() network.Network { return mdnsNetwork{h.Host.Network(), h.addrs} }

type mdnsNetwork struct {
	network.Network
	addrs []ma.Multiaddr
}

// InterfaceListenAddresses returns the chosen addresses.
func (n mdnsNetwork) InterfaceListenAddresses() ([]ma.Multiaddr, error) { return n.addrs, nil }
