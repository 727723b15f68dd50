package p2ptest_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// sockets are bare sockets of a network; what one hears is noted under its name.
type sockets struct {
	t     *testing.T
	w     *p2ptest.Network
	conns map[string]net.PacketConn
	heard chan string
}

func (s *sockets) open(name, at string, box *p2ptest.Box) {
	c := s.w.Socket(netip.MustParseAddrPort(at), box)
	s.conns[name] = c
	go func() { // ends with the socket
		b := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			s.heard <- name + ": " + string(b[:n]) + " from " + from.String()
		}
	}()
}

// send sends from one socket to an address and returns what was heard within a second, by anyone.
func (s *sockets) send(from, to string) []string {
	s.t.Helper()
	if _, err := s.conns[from].WriteTo([]byte(from), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Second)
	out := []string{}
	for len(s.heard) > 0 {
		out = append(out, <-s.heard)
	}
	return out
}

// TestNAT sends single packets through each kind of router: home → x, and then back from x, from another port of x's
// computer and from a stranger.
func TestNAT(t *testing.T) {
	for _, tt := range []struct {
		kind                    p2ptest.NAT
		keeps, sameIP, stranger bool
	}{
		{p2ptest.FullCone, true, true, true},
		{p2ptest.AddressRestricted, true, true, false},
		{p2ptest.PortRestricted, true, false, false},
		{p2ptest.Symmetric, false, false, false},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p2ptest.New(t, 0, p2ptest.Options{Mapping: time.Minute})
				defer w.Close()
				box := w.Box(tt.kind)
				s := &sockets{t: t, w: w, conns: make(map[string]net.PacketConn), heard: make(chan string, 10)}
				s.open("home", "10.0.0.1:99", box)
				s.open("sister", "10.0.0.2:99", box)
				s.open("x", "9.0.0.1:1", nil)
				s.open("x2", "9.0.0.1:2", nil)
				s.open("y", "9.0.0.2:1", nil)
				defer func() {
					for _, c := range s.conns {
						_ = c.Close()
					}
				}()
				if got := s.send("x", box.IP()+":99"); len(got) != 0 {
					t.Errorf("before anything was sent out: %q", got)
				}
				got := s.send("home", "9.0.0.1:1")
				if len(got) != 1 || !strings.HasPrefix(got[0], "x: home from "+box.IP()+":") {
					t.Fatalf("out: %q", got)
				}
				seen := strings.TrimPrefix(got[0], "x: home from ")
				if keeps := seen == box.IP()+":99"; keeps != tt.keeps {
					t.Errorf("x sees %s, want the own port: %v", seen, tt.keeps)
				}
				for _, back := range []struct {
					from string
					in   bool
				}{{"x", true}, {"x2", tt.sameIP}, {"y", tt.stranger}} {
					if got := s.send(back.from, seen); (len(got) == 1) != back.in {
						t.Errorf("%s sends to %s: heard %q, want it to get in: %v", back.from, seen, got, back.in)
					}
				}
				if got := s.send("home", "9.0.0.2:1"); len(got) != 1 || (got[0] == "y: home from "+seen) != tt.keeps {
					t.Errorf("y hears %q, x saw %s, want the same: %v", got, seen, tt.keeps)
				}
				if diff := cmp.Diff([]string{"home: sister from 10.0.0.2:99"}, s.send("sister", "10.0.0.1:99")); diff != "" {
					t.Errorf("within the home (-want +got):\n%s", diff)
				}
				if got := s.send("x", "10.0.0.1:99"); len(got) != 0 {
					t.Errorf("a private address from outside: %q", got)
				}
				time.Sleep(time.Minute)
				if got := s.send("x", seen); len(got) != 0 {
					t.Errorf("after a minute of silence: %q", got)
				}
				again := s.send("home", "9.0.0.1:1")
				box.Restart()
				if got := s.send("x", seen); len(again) != 1 || len(got) != 0 {
					t.Errorf("sent %q, and after a restart: %q", again, got)
				}
			})
		})
	}
}

// punchers returns a relay in the open and two hosts behind routers that have a place on it.
func punchers(w *p2ptest.Network, a, b p2ptest.NAT) (relay *p2p.Host, pair [2]*p2p.Host) {
	relay = w.Add(p2p.Options{Libp2p: []libp2p.Option{libp2p.EnableRelay(), libp2p.EnableRelayService()}})
	for i, kind := range []p2ptest.NAT{a, b} {
		listening := make(chan peer.AddrInfo)
		source := func(context.Context, int) <-chan peer.AddrInfo { return listening }
		pair[i] = w.AddBehind(kind, p2p.Options{Libp2p: []libp2p.Option{
			libp2p.EnableRelay(), libp2p.EnableHolePunching(), libp2p.ForceReachabilityPrivate(),
			libp2p.EnableAutoRelayWithPeerSource(source, autorelay.WithBootDelay(0), autorelay.WithMinCandidates(1)),
		}})
		// Only now: a host that dials before it listens does so from a port whose mapping is of no use to others.
		listening <- peer.AddrInfo{ID: relay.Libp2p().ID(), Addrs: relay.Libp2p().Addrs()}
		close(listening)
	}
	return relay, pair
}

func relayed(addrs []string) []string {
	return slices.DeleteFunc(addrs, func(a string) bool { return !strings.HasSuffix(a, "/p2p-circuit") })
}

// TestPunch connects hosts behind routers through a relay in the open, and says which pairs get a direct connection.
func TestPunch(t *testing.T) {
	const full, addr, port, sym = p2ptest.FullCone, p2ptest.AddressRestricted, p2ptest.PortRestricted, p2ptest.Symmetric
	for _, tt := range []struct {
		a, b   p2ptest.NAT
		direct bool
	}{
		{full, full, true}, {full, port, true}, {full, sym, true}, {addr, addr, true}, {addr, sym, true}, {sym, addr, true},
		{port, port, true}, {port, sym, false}, {sym, port, false}, {sym, sym, false},
	} {
		t.Run(fmt.Sprint(tt.a, " to ", tt.b), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p2ptest.New(t, 0, p2ptest.Options{})
				defer w.Close()
				_, pair := punchers(w, tt.a, tt.b)
				a, b := pair[0].Libp2p(), pair[1].Libp2p()
				time.Sleep(5 * time.Second)
				start, addrs := time.Now(), relayed(pair[1].Addrs())
				if len(addrs) != 1 {
					t.Fatalf("b has the addresses %v, want one through the relay", pair[1].Addrs())
				}
				if err := a.Connect(t.Context(), peer.AddrInfo{ID: b.ID(), Addrs: addrsOf(t, addrs)}); err != nil {
					t.Fatal(err)
				}
				if c := a.Network().Connectedness(b.ID()); c != network.Limited {
					t.Errorf("before the punch: %v, want limited", c)
				}
				for a.Network().Connectedness(b.ID()) != network.Connected && time.Since(start) < 30*time.Second {
					time.Sleep(50 * time.Millisecond)
				}
				direct := a.Network().Connectedness(b.ID()) == network.Connected
				if direct != tt.direct {
					t.Errorf("direct: %v, want %v", direct, tt.direct)
				}
				t.Logf("direct: %v after %v", direct, time.Since(start).Round(50*time.Millisecond))
			})
		})
	}
}
