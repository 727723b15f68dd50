package hello_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// Two peers behind routers that cannot be punched say hello over a relay that carries signalling only.
func TestOverLimitedRelay(t *testing.T) {
	run(t, func(w *world) {
		relay := w.Add(p2p.Options{Reach: market.ReachDirect, Relay: p2p.RelayPolicy{Serve: true}})
		var hosts []*p2p.Host
		var services []*hello.Service
		for i := range 2 {
			key := p2ptest.Key(2_000_000 + i)
			h := w.AddBehind(p2ptest.Symmetric, p2p.Options{Reach: market.ReachRelayed, Key: key})
			s, _ := w.service(h, key, hello.Options{})
			w.Connect(h, relay)
			for changed := h.ReachChanged(); len(h.Reach().Relays) == 0; changed = h.ReachChanged() {
				select {
				case <-changed:
				case <-time.After(time.Minute):
					t.Fatalf("no place at the relay: %+v", h.Reach())
				}
			}
			hosts, services = append(hosts, h), append(services, s)
		}
		w.Connect(hosts[0], hosts[1])
		w.wait(5 * time.Second)
		if p := hosts[0].Path(hosts[1].Key()); p != p2p.PathLimited {
			t.Fatalf("path %v, want limited", p)
		}
		for i, s := range services {
			m, ok := s.Met(hosts[1-i].Key())
			if !ok || m.Reach != market.ReachRelayed || m.RoundTrip < 4*25*time.Millisecond {
				t.Errorf("peer %d: Met = %+v, %v, want the other one after four hops", i, m, ok)
			}
		}
	})
}

// When the way to a peer has changed, everybody it is connected to hears of it.
func TestReachChangeIsTold(t *testing.T) {
	const n = 15
	run(t, func(w *world) {
		relay := w.Add(p2p.Options{Reach: market.ReachDirect, Relay: p2p.RelayPolicy{Serve: true}})
		key := p2ptest.Key(2_000_000)
		h := w.AddBehind(p2ptest.Symmetric, p2p.Options{Reach: market.ReachRelayed, Key: key})
		var mu sync.Mutex
		heard := make(map[attest.Key]int)
		for range n {
			p := w.Add(p2p.Options{})
			p.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
				mu.Lock()
				heard[p.Key()]++
				mu.Unlock()
				answerWith(s, hello.Answer{Clock: time.Now().UnixMilli()})
			})
			w.Connect(h, p)
		}
		w.service(h, key, hello.Options{})
		w.wait(15 * time.Second) // meeting, and the first round
		mu.Lock()
		clear(heard)
		mu.Unlock()
		changed := h.ReachChanged()
		w.Connect(h, relay)
		select {
		case <-changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("the reachability did not change: %+v", h.Reach())
		}
		w.wait(12 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(heard) != n {
			t.Errorf("%d of %d peers heard of the change within 12 s", len(heard), n)
		}
	})
}
