package p2p_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// TestConnectionsOfOneAddress connects more peers behind one router than an address may have.
func TestConnectionsOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{Name: "home"})
		defer w.Close()
		reg := prometheus.NewRegistry()
		server := w.Add(p2p.Options{Reach: market.ReachDirect, Profile: p2p.Hub, Registerer: reg})
		box := w.Box(p2ptest.FullCone)
		const limit, n = 64, 70
		var hosts []*p2p.Host
		for range n {
			hosts = append(hosts, box.Add(p2p.Options{Reach: market.ReachRelayed, Profile: p2p.Light}))
		}
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i, h := range hosts {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				errs[i] = h.Connect(ctx, server.Key(), server.Addrs())
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if got := len(server.Peers()); got != limit {
			t.Errorf("%d peers of one address are connected, want %d", got, limit)
		}
		if got := gather(t, reg)["lacuna_p2p_resources_refused_total address"]; got < n-limit {
			t.Errorf("%v refusals are counted, want %d or more", got, n-limit)
		}
	})
}

// TestWrongPeer dials a peer at an address where another one answers.
func TestWrongPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		reg := prometheus.NewRegistry()
		other := w.Add(p2p.Options{Registerer: reg})
		caller := w.Add(p2p.Options{})
		wanted := attest.Key(p2ptest.Key(77).Public().(ed25519.PublicKey))
		try := func() (time.Duration, error) {
			start := time.Now()
			err := caller.Connect(t.Context(), wanted, other.Addrs())
			if !errors.Is(err, p2p.ErrUnreachable) {
				t.Fatalf("Connect = %v, want unreachable", err)
			}
			return time.Since(start), err
		}
		if d, err := try(); d == 0 || !strings.Contains(err.Error(), "peer id mismatch") {
			t.Errorf("first: %v after %v, want to hear that another peer answers", err, d)
		}
		for range 100 {
			if d, err := try(); d != 0 {
				t.Fatalf("again: %v after %v, want a refusal without a dial", err, d)
			}
		}
		time.Sleep(5*time.Minute + time.Second)
		if d, err := try(); d == 0 {
			t.Errorf("five minutes later: %v without a dial", err)
		}
		if err := caller.Connect(t.Context(), other.Key(), other.Addrs()); err != nil {
			t.Errorf("the peer that is there: %v", err)
		}
	})
}

func TestRTTsAreBoundedAndAge(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r := p2p.NewRTTs()
	for i, d := range []time.Duration{90, 20, 50, 60, 70} {
		r.Note(key(1), d*time.Millisecond, now.Add(time.Duration(i)*time.Minute))
		want := []time.Duration{90, 20, 20, 20, 20}[i] * time.Millisecond
		if got, ok := r.Get(key(1), now.Add(time.Duration(i)*time.Minute)); got != want || !ok {
			t.Errorf("after %d measurements: %v, want %v", i+1, got, want)
		}
	}
	r.Note(key(1), 80*time.Millisecond, now.Add(5*time.Minute))
	if got, _ := r.Get(key(1), now.Add(5*time.Minute)); got != 50*time.Millisecond {
		t.Errorf("the lowest of the last four is %v, want 50ms", got)
	}
	if _, ok := r.Get(key(1), now.Add(66*time.Minute)); ok {
		t.Error("a measurement of an hour ago still counts")
	}
	for i := range 10_000 {
		r.Note(attest.Key{byte(i), byte(i >> 8), 1}, time.Millisecond, now.Add(time.Hour))
	}
	if n := r.Len(); n != 4096 {
		t.Errorf("%d peers are remembered, want 4096", n)
	}
}

// TestMoveToBulkRelay has a peer with places at two relays, one of which lets data pass, and a caller that came through
// the other.
func TestMoveToBulkRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		small, large := hub(w, p2p.RelayPolicy{}, nil), hub(w, p2p.RelayPolicy{Bulk: true}, nil)
		pair := homes(t, w, small, p2ptest.Symmetric, p2ptest.Symmetric)
		a, b := pair[0], pair[1]
		w.Connect(b, large)
		await(t, b, func(r p2p.Reach) bool { return len(r.Relays) == 2 })
		var through []string
		for _, addr := range b.Addrs() {
			if strings.Contains(addr, small.Libp2p().ID().String()) {
				through = append(through, addr)
			}
		}
		if err := over(a, b.Key(), through, echo()); err != nil || a.Path(b.Key()) != p2p.PathLimited {
			t.Fatalf("through the small relay: %v, path %v", err, a.Path(b.Key()))
		}
		start := time.Now()
		if err := over(a, b.Key(), b.Addrs(), bulk()); err != nil {
			t.Fatal(err)
		}
		t.Logf("moved after %v", time.Since(start))
		if p := a.Path(b.Key()); p != p2p.PathRelayed {
			t.Errorf("path %v, want relayed", p)
		}
		if got := fmt.Sprint(b.Path(a.Key())); got != "relayed" {
			t.Errorf("the other side calls it %s", got)
		}
	})
}
