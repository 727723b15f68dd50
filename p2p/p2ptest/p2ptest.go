// Package p2ptest makes networks of real hosts in memory, for tests inside a testing/synctest bubble.
//
// A [Network] carries QUIC packets between hosts with a latency and a bandwidth, all in virtual time: minutes of network
// life take milliseconds, and a machine under load changes no result. Hosts are [p2p.Host]s with the rules of a test
// network and the public addresses of a simulation. TCP does not exist in it, so p2p.Gone cannot be seen there.
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
	"net"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"

	"github.com/lacuna-network/lacuna/p2p"
)

// Options set up a [Network]. The zero value is a network with 25 ms and 100 Mbit/s.
type Options struct {
	Latency time.Duration // one way; 0 = 25 ms
	Mbps    int           // each way, per host; 0 = 100
	Name    string        // of the network; empty = "test"
}

// Network is a network in memory.
type Network struct {
	tb    testing.TB
	o     Options
	sim   *simnet.Simnet
	link  simnet.NodeBiDiLinkSettings
	next  int
	mu    sync.Mutex
	muted map[string]bool // addresses whose packets are lost
	hosts []*p2p.Host
	quic  []*quicreuse.ConnManager
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
	speed := simnet.LinkSettings{BitsPerSecond: o.Mbps * 1_000_000}
	w := &Network{tb: tb, o: o, link: simnet.NodeBiDiLinkSettings{Downlink: speed, Uplink: speed}, muted: make(map[string]bool)}
	w.sim = &simnet.Simnet{Logger: slog.New(slog.DiscardHandler), LatencyFunc: w.latency}
	w.sim.Start()
	for range n {
		w.Add(p2p.Options{})
	}
	return w
}

// lost is the latency of packets that never arrive: longer than any test.
const lost = 100 * 365 * 24 * time.Hour

func (w *Network) latency(p *simnet.Packet) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.muted) > 0 && (w.muted[ip(p.From)] || w.muted[ip(p.To)]) {
		return lost
	}
	return w.o.Latency
}

func ip(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}

// Key returns the private key of host i, the same in each run.
func Key(i int) ed25519.PrivateKey {
	var seed [ed25519.SeedSize]byte
	copy(seed[:], "p2ptest")
	binary.BigEndian.PutUint64(seed[24:], uint64(i))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Options returns options for the next host: o with an address on the network, and with a key and the network's name
// where o has none. It is for callers that make the host themselves, and close it.
func (w *Network) Options(o p2p.Options) p2p.Options {
	i := w.next
	w.next++
	if o.Key == nil {
		o.Key = Key(i)
	}
	if o.Network == "" {
		o.Network = w.o.Name
	}
	o.Listen = []string{fmt.Sprintf("/ip4/%s/udp/4711/quic-v1", simnet.IntToPublicIPv4(i))}
	o.Libp2p = append(o.Libp2p, w.sockets())
	return o
}

// sockets returns the option that replaces UDP by the network in memory.
func (w *Network) sockets() libp2p.Option {
	source := &sourceIP{}
	return libp2p.QUICReuse(kept(quicreuse.NewConnManager, w.keep),
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source, nil }),
		quicreuse.OverrideListenUDP(func(_ string, a *net.UDPAddr) (net.PacketConn, error) {
			source.set(a.IP)
			return w.sim.NewEndpoint(a, w.link), nil
		}))
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
	h, err := p2p.New(w.Options(o))
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

// Mute loses all packets from and to the host from now on, or no longer.
func (w *Network) Mute(h *p2p.Host, muted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range h.Libp2p().Network().ListenAddresses() {
		if s, err := m.ValueForProtocol(4); err == nil { // 4 is multiaddr's code for ip4
			w.muted[s] = muted
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
