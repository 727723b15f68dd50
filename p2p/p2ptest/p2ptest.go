// Package p2ptest makes networks of real hosts in memory, for tests inside a testing/synctest bubble.
//
// A [Network] carries QUIC packets between hosts with latency, loss and bandwidth, all in virtual time: minutes of network
// life take milliseconds, and a machine under load changes no result. Hosts are [p2p.Host]s with the rules of a test
// network and the public addresses of a simulation, or stand behind a [Box] that translates addresses as home routers do.
// Groups of hosts can be cut off from each other and joined again. TCP does not exist in it, so p2p.Gone cannot be seen
// there, and AutoNAT does not work: say with p2p.Options.Reach what it would find.
//
// It is used by the tests of p2p, of the packages below it and of node. Hosts must be added by one goroutine at a time;
// all else is safe for concurrent use.
package p2ptest

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"

	"github.com/lacuna-network/lacuna/p2p"
)

// Options set up a [Network]. The zero value is a network with 25 ms and 100 Mbit/s that loses nothing.
type Options struct {
	Latency time.Duration // one way, at least; 0 = 25 ms
	Spread  time.Duration // each pair of hosts has, for good, up to this much more, drawn evenly
	Jitter  time.Duration // each packet takes up to this much more, drawn evenly; packets may overtake each other
	LossBP  int           // packets lost, in basis points (100 = 1 %)
	Seed    uint64        // of all that is drawn
	// Pair, if not nil, gives the latency between hosts a and b (their numbers, in the order in which they were added), one
	// way, in place of Latency and Spread. It is called for each packet and must not block.
	Pair func(a, b int) time.Duration

	Mbps    int           // each way, per host; 0 = 100
	Name    string        // of the network; empty = "test"
	Mapping time.Duration // how long a [Box] remembers that something was sent; 0 = 2 min
}

// Network is a network in memory.
type Network struct {
	tb      testing.TB
	o       Options
	sim     *simnet.Simnet
	link    simnet.NodeBiDiLinkSettings
	next    int // number of the next host
	mu      sync.Mutex
	random  *rand.Rand
	places  map[netip.Addr]place // where the hosts are
	outside map[netip.Addr]*Box
	muted   map[netip.Addr]bool // hosts whose packets are lost
	groups  map[netip.Addr]int  // hosts in partitions; the others are in group 0
	hosts   []*p2p.Host
	quic    []*quicreuse.ConnManager
}

// place is where one host is.
type place struct {
	host int
	box  *Box // nil: in the open
}

// New returns a network of n connected-to-nobody hosts. It must be called inside a bubble, whose function must
// defer [Network.Close].
func New(tb testing.TB, n int, o Options) *Network {
	tb.Helper()
	if o.Latency == 0 {
		o.Latency = 25 * time.Millisecond
	}
	if o.Mbps == 0 {
		o.Mbps = 100
	}
	if o.Name == "" {
		o.Name = "test"
	}
	if o.Mapping == 0 {
		o.Mapping = 2 * time.Minute
	}
	speed := simnet.LinkSettings{BitsPerSecond: o.Mbps * 1_000_000}
	w := &Network{
		tb: tb, o: o, link: simnet.NodeBiDiLinkSettings{Downlink: speed, Uplink: speed},
		random: rand.New(rand.NewPCG(o.Seed, 1)), places: make(map[netip.Addr]place), outside: make(map[netip.Addr]*Box),
		muted: make(map[netip.Addr]bool),
	}
	w.sim = &simnet.Simnet{Logger: slog.New(slog.DiscardHandler), LatencyFunc: w.route}
	w.sim.Start()
	for range n {
		w.Add(p2p.Options{})
	}
	return w
}

// Key returns the private key of host i, the same in each run.
func Key(i int) ed25519.PrivateKey {
	var seed [ed25519.SeedSize]byte
	copy(seed[:], "p2ptest")
	binary.BigEndian.PutUint64(seed[24:], uint64(i))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Options returns options for the next host, in the open: o with an address on the network, and with a key and the
// network's name where o has none. It is for callers that make the host themselves, and close it.
func (w *Network) Options(o p2p.Options) p2p.Options {
	return w.options(o, public(w.next), nil)
}

// public returns the n-th address of the internet.
func public(n int) netip.Addr {
	a, _ := netip.AddrFromSlice(simnet.IntToPublicIPv4(n).To4())
	return a
}

// port is the one on which all hosts listen.
const port = 4711

func (w *Network) options(o p2p.Options, ip netip.Addr, box *Box) p2p.Options {
	i := w.next
	w.next++
	if o.Key == nil {
		o.Key = Key(i)
	}
	if o.Network == "" {
		o.Network = w.o.Name
	}
	w.mu.Lock()
	w.places[ip] = place{host: i, box: box}
	w.mu.Unlock()
	o.Listen = []string{fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", ip, port)}
	o.Libp2p = append(slices.Clone(o.Libp2p), w.sockets(ip, box))
	return o
}

// sockets returns the option that replaces the UDP sockets of the host at ip by the network in memory.
func (w *Network) sockets(ip netip.Addr, box *Box) libp2p.Option {
	source := &sourceIP{}
	free := uint32(firstFree)
	return libp2p.QUICReuse(kept(quicreuse.NewConnManager, w.keep),
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source, nil }),
		quicreuse.OverrideListenUDP(func(_ string, a *net.UDPAddr) (net.PacketConn, error) {
			if a.IP.IsUnspecified() { // a host that dials before it listens does so from any port
				return w.listen(netip.AddrPortFrom(ip, uint16(atomic.AddUint32(&free, 1))), box), nil
			}
			source.set(a.IP)
			return w.listen(addrPort(a), box), nil
		}))
}

// firstFree is below the ports of sockets that ask for none.
const firstFree = 50_000

// listen opens a socket. Its address has four bytes: the network takes one of sixteen for another.
func (w *Network) listen(at netip.AddrPort, box *Box) net.PacketConn {
	w.mu.Lock()
	c := w.sim.NewEndpoint(net.UDPAddrFromAddrPort(at), w.link)
	w.mu.Unlock()
	if box == nil {
		return c
	}
	return guarded{SimConn: c, box: box, inner: at}
}

// kept wraps the library's constructor so that what it makes can be closed. The types of quic-go are inferred, which
// keeps that module out of the imports.
func kept[A, B any](f func(A, B, ...quicreuse.Option) (*quicreuse.ConnManager, error), keep func(*quicreuse.ConnManager)) func(A, B, ...quicreuse.Option) (*quicreuse.ConnManager, error) {
	return func(a A, b B, o ...quicreuse.Option) (*quicreuse.ConnManager, error) {
		m, err := f(a, b, o...)
		if err == nil {
			keep(m)
		}
		return m, err
	}
}

func (w *Network) keep(m *quicreuse.ConnManager) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quic = append(w.quic, m)
}

// sourceIP tells the QUIC transport which address it sends from.
type sourceIP struct {
	mu sync.Mutex
	ip net.IP
}

func (s *sourceIP) set(ip net.IP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ip = ip
}

// PreferredSourceIPForDestination returns the host's only address.
func (s *sourceIP) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ip, nil
}

// Add adds a host; see [Network.Options].
func (w *Network) Add(o p2p.Options) *p2p.Host {
	w.tb.Helper()
	return w.add(w.Options(o))
}

func (w *Network) add(o p2p.Options) *p2p.Host {
	w.tb.Helper()
	h, err := p2p.New(o)
	if err != nil {
		w.tb.Fatalf("p2ptest: %v", err)
	}
	w.hosts = append(w.hosts, h)
	return h
}

// Hosts returns the hosts in the order in which they were added.
func (w *Network) Hosts() []*p2p.Host { return w.hosts }

// Host returns host i.
func (w *Network) Host(i int) *p2p.Host { return w.hosts[i] }

// Connect connects a to b.
func (w *Network) Connect(a, b *p2p.Host) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := a.Connect(ctx, b.Key(), b.Addrs()); err != nil {
		w.tb.Fatalf("p2ptest: %v", err)
	}
}

// ConnectAll connects every host to the k next ones, which makes a ring with chords; k ≥ number of hosts is a full mesh.
func (w *Network) ConnectAll(k int) {
	w.tb.Helper()
	n := len(w.hosts)
	for i := range n {
		for j := 1; j <= min(k, n-1); j++ {
			w.Connect(w.hosts[i], w.hosts[(i+j)%n])
		}
	}
}

// Close closes all hosts and the network. Whatever runs on the hosts must be closed before.
func (w *Network) Close() {
	w.tb.Helper()
	var wg sync.WaitGroup
	for _, h := range w.hosts {
		wg.Go(func() {
			if err := h.Close(); err != nil {
				w.tb.Errorf("p2ptest: %v", err)
			}
		})
	}
	wg.Wait()
	for _, m := range w.quic {
		if err := m.Close(); err != nil {
			w.tb.Errorf("p2ptest: close quic: %v", err)
		}
	}
	w.sim.Close()
}
