package bids_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// TestPublishOverLimitedConnection has a renter announce through a hub to which only a relay leads that carries
// signalling alone, where gossip does not run.
func TestPublishOverLimitedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
		defer w.close()
		relay := w.Add(p2p.Options{Libp2p: []libp2p.Option{libp2p.EnableRelay(), libp2p.EnableRelayService()}})
		behind := func(kind p2ptest.NAT, profile p2p.Profile) *bids.Gossip {
			listening := make(chan peer.AddrInfo, 1)
			h := w.AddBehind(kind, p2p.Options{Profile: profile, Libp2p: []libp2p.Option{
				libp2p.EnableRelay(), libp2p.ForceReachabilityPrivate(),
				libp2p.EnableAutoRelayWithPeerSource(func(context.Context, int) <-chan peer.AddrInfo { return listening },
					autorelay.WithBootDelay(0), autorelay.WithMinCandidates(1)),
			}})
			listening <- peer.AddrInfo{ID: relay.Libp2p().ID(), Addrs: relay.Libp2p().Addrs()}
			close(listening)
			g, err := bids.New(bids.Options{Host: h})
			if err != nil {
				t.Fatal(err)
			}
			w.gossip = append(w.gossip, g)
			return g
		}
		behind(p2ptest.PortRestricted, p2p.Hub)
		light := behind(p2ptest.Symmetric, p2p.Light)
		c := w.subscribe(0, nv24...)
		time.Sleep(5 * time.Second)
		var circuits []string
		for _, a := range w.Host(1).Addrs() {
			if strings.HasSuffix(a, "/p2p-circuit") {
				circuits = append(circuits, a)
			}
		}
		if err := w.Host(2).Connect(t.Context(), w.Host(1).Key(), circuits); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if p := w.Host(2).Path(w.Host(1).Key()); p != p2p.PathLimited {
			t.Fatalf("path to the hub = %v, want limited", p)
		}
		n, err := light.Publish(t.Context(), sign(t, 2, announce(2, 1)), []string{"nv-24g"}, nil)
		if err != nil || n != 1 {
			t.Errorf("Publish = %d, %v, want 1", n, err)
		}
		if h := <-c; h.From != w.Host(2).Key() {
			t.Errorf("heard from %s, want the renter itself", h.From.Short())
		}
	})
}

// TestRack has more peers behind one address than a mesh has places, all at one hub.
func TestRack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const machines = 24
		w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
		defer w.close()
		s := &scores{}
		var o bids.Options
		o.Inspect(s.set)
		if _, err := w.add(p2p.Hub, o).Relay(nv24...); err != nil {
			t.Fatal(err)
		}
		w.add(p2p.Light, bids.Options{})
		w.Connect(w.Host(1), w.Host(0))
		box := w.Box(p2ptest.PortRestricted)
		var heard []<-chan bids.Heard
		for i := range machines {
			g, err := bids.New(bids.Options{Host: box.Add(p2p.Options{})})
			if err != nil {
				t.Fatal(err)
			}
			w.gossip = append(w.gossip, g)
			w.Connect(w.Host(2+i), w.Host(0))
			heard = append(heard, w.subscribe(2+i, nv24...))
		}
		time.Sleep(30 * time.Second)
		for i := byte(1); i <= 5; i++ {
			n, err := w.gossip[1].Publish(t.Context(), sign(t, 1, announce(1, i)), []string{"nv-24g"}, []string{"eu"})
			if err != nil || n != machines {
				t.Errorf("Publish = %d, %v, want %d", n, err, machines)
			}
			time.Sleep(5 * time.Second)
		}
		for i, c := range heard {
			if len(c) != 5 {
				t.Errorf("machine %d heard %d of 5 bids", i, len(c))
			}
			if got := s.of(w.Host(2 + i)); got < 0 {
				t.Errorf("score of machine %d at the hub = %v", i, got)
			}
		}
	})
}
