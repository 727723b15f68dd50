package p2p_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// send opens a stream and sends n bytes, and returns how many the other side acknowledges.
func send(t *testing.T, from, to *p2p.Host, p p2p.Protocol, n int) (int, error) {
	t.Helper()
	got := make(chan int, 1)
	to.Handle(p, func(_ context.Context, s *p2p.Stream) {
		buf, sum := make([]byte, 32<<10), 0
		for {
			m, err := s.Read(buf)
			sum += m
			if err != nil {
				got <- sum
				return
			}
		}
	})
	s, err := from.Open(t.Context(), to.Key(), to.Addrs(), p)
	if err != nil {
		return 0, err
	}
	_, err = s.Write(make([]byte, n))
	if err == nil {
		err = s.CloseWrite()
	}
	sum := <-got
	_ = s.Close()
	return sum, err
}

func flow(bulk bool) p2p.Protocol {
	return p2p.Protocol{Name: "flow", Major: 1, Timeout: 48 * time.Hour, MaxIn: 64, MaxPerPeer: 8, PerMinute: 600, Bulk: bulk}
}

// TestRelayLimits sends more than signalling through a relay that carries signalling.
func TestRelayLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		reg := prometheus.NewRegistry()
		relay := hub(w, p2p.RelayPolicy{}, reg)
		pair := homes(t, w, relay, p2ptest.Symmetric, p2ptest.Symmetric)
		a, b := pair[0], pair[1]
		if n, err := send(t, a, b, flow(false), 512<<10); n != 512<<10 || err != nil {
			t.Errorf("half of what a circuit may carry: %d bytes, %v", n, err)
		}
		n, _ := send(t, a, b, flow(false), 4<<20) // whether the writer sees an error depends on what is still under way
		if n < 300<<10 || n > 1<<20 {
			t.Errorf("%d bytes came through a circuit of 1 MiB of which half was used", n)
		}
		time.Sleep(time.Minute)
		if err := over(a, b.Key(), b.Addrs(), echo()); err != nil {
			t.Fatalf("after a circuit was cut: %v", err)
		}
		time.Sleep(11 * time.Minute)
		if p := a.Path(b.Key()); p != p2p.PathNone {
			t.Errorf("a circuit is still there after 11 minutes: %v", p)
		}
		if sum := gather(t, reg)["lacuna_p2p_relay_bytes_total"]; sum < 1<<20 || sum > 2<<20 {
			t.Errorf("the relay counts %v bytes", sum)
		}
	})
}

// TestBulkRelay lets a job's data pass through a relay whose owner allows it.
func TestBulkRelay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy p2p.RelayPolicy
		send   int
		want   func(n int, d time.Duration) bool
	}{
		{
			"within the limits", p2p.RelayPolicy{Bulk: true}, 4 << 20,
			func(n int, d time.Duration) bool { return n == 4<<20 && d < 3*time.Second },
		},
		{
			"held to a speed", p2p.RelayPolicy{Bulk: true, BulkPerSec: 256 << 10}, 4 << 20,
			func(n int, d time.Duration) bool { return n == 4<<20 && d > 14*time.Second && d < 20*time.Second },
		},
		{
			"cut at the day's data", p2p.RelayPolicy{Bulk: true, PerDay: 2 << 20}, 8 << 20,
			func(n int, _ time.Duration) bool { return n > 1<<20 && n < 3<<20 },
		},
		{
			"cut at the circuit's data", p2p.RelayPolicy{Bulk: true, BulkData: 64 << 20}, 80 << 20,
			func(n int, _ time.Duration) bool { return n > 60<<20 && n <= 64<<20 },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p2ptest.New(t, 0, p2ptest.Options{Latency: time.Millisecond, Mbps: 1000})
				defer w.Close()
				relay := hub(w, tt.policy, nil)
				pair := homes(t, w, relay, p2ptest.Symmetric, p2ptest.Symmetric)
				a, b := pair[0], pair[1]
				if p, err := a.Widen(t.Context(), b.Key(), b.Addrs()); p != p2p.PathRelayed || err != nil {
					t.Fatalf("Widen = %v, %v, want relayed", p, err)
				}
				start := time.Now()
				if n, err := send(t, a, b, flow(true), tt.send); !tt.want(n, time.Since(start)) {
					t.Errorf("%d bytes in %v (%v)", n, time.Since(start), err)
				}
			})
		})
	}
}

// TestDaySpent refuses circuits when the day's bytes are used.
func TestDaySpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		reg := prometheus.NewRegistry()
		relay := hub(w, p2p.RelayPolicy{PerDay: 300 << 10}, reg)
		pair := homes(t, w, relay, p2ptest.Symmetric, p2ptest.Symmetric)
		a, b := pair[0], pair[1]
		if n, _ := send(t, a, b, flow(false), 600<<10); n > 320<<10 {
			t.Errorf("%d bytes came through", n)
		}
		if err := over(a, b.Key(), b.Addrs(), echo()); !errors.Is(err, p2p.ErrUnreachable) {
			t.Errorf("after the day was spent: %v", err)
		}
		counted := gather(t, reg)
		for _, reason := range []string{"day_spent", "circuit_denied"} {
			if counted["lacuna_p2p_relay_refused_total "+reason] == 0 {
				t.Errorf("the relay counts no %s", reason)
			}
		}
	})
}

// TestManyAnswersThroughOneRelay has 40 peers call one behind a router at once, with the limits of a real network.
func TestManyAnswersThroughOneRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{Name: "home"})
		defer w.Close()
		relay := w.Add(p2p.Options{Reach: market.ReachDirect, Profile: p2p.Hub, Relay: p2p.RelayPolicy{Serve: true}})
		renter := w.AddBehind(p2ptest.Symmetric, p2p.Options{Reach: market.ReachRelayed, Profile: p2p.Light})
		renter.Handle(echo(), serveEcho)
		w.Connect(renter, relay)
		await(t, renter, func(r p2p.Reach) bool { return len(r.Relays) == 1 })
		const n = 40
		var providers []*p2p.Host
		for range n {
			h := w.AddBehind(p2ptest.Symmetric, p2p.Options{Reach: market.ReachRelayed, Profile: p2p.Provider})
			w.Connect(h, relay)
			providers = append(providers, h)
		}
		errs := make([]error, n)
		var wg sync.WaitGroup
		addrs, start := renter.Addrs(), time.Now()
		for i, h := range providers {
			wg.Go(func() { errs[i] = over(h, renter.Key(), addrs, echo()) })
		}
		wg.Wait()
		t.Logf("all answers after %v", time.Since(start))
		for i, err := range errs {
			if err != nil {
				t.Errorf("answer %d: %v", i, err)
			}
		}
	})
}

// TestReservationHeals loses a relay, and has it back after a while.
func TestReservationHeals(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, 10 * time.Minute, 12 * time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p2ptest.New(t, 0, p2ptest.Options{})
				defer w.Close()
				relay := hub(w, p2p.RelayPolicy{}, nil)
				home := homes(t, w, relay, p2ptest.Symmetric)[0]
				w.Mute(relay, true)
				if d := await(t, home, func(r p2p.Reach) bool { return len(r.Relays) == 0 }); d > 45*time.Second {
					t.Errorf("the loss was noticed after %v", d)
				}
				if addrs := home.Addrs(); slices.ContainsFunc(addrs, func(s string) bool { return strings.Contains(s, "p2p-circuit") }) {
					t.Errorf("the lost relay is still told: %v", addrs)
				}
				time.Sleep(away)
				w.Mute(relay, false)
				start := time.Now()
				for len(home.Reach().Relays) == 0 && time.Since(start) < 5*time.Minute {
					select {
					case <-home.ReachChanged():
					case <-time.After(time.Minute):
					}
				}
				if d := time.Since(start); d > 150*time.Second {
					t.Errorf("no place %v after the relay was back", d)
				}
			})
		})
	}
}

// TestReservationsAreFew counts what a relay is asked for in a day: one place for each hour of life, not more.
func TestReservationsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		reg := prometheus.NewRegistry()
		relay := hub(w, p2p.RelayPolicy{}, reg)
		home := homes(t, w, relay, p2ptest.Symmetric)[0]
		time.Sleep(3 * time.Hour)
		if r := home.Reach(); len(r.Relays) != 1 || r.Since.After(time.Now().Add(-3*time.Hour)) {
			t.Errorf("three hours later: %+v", r)
		}
		if n := gather(t, reg)["lacuna_p2p_relay_reservations"]; n != 1 {
			t.Errorf("%v reservations", n)
		}
		if n := gather(t, reg)["lacuna_p2p_relay_requests_total"]; n < 3 || n > 5 {
			t.Errorf("%v requests for a place in three hours, want about one an hour", n)
		}
	})
}
