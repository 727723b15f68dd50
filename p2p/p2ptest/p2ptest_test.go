package p2ptest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

func addrsOf(t *testing.T, addrs []string) []ma.Multiaddr {
	t.Helper()
	var out []ma.Multiaddr
	for _, s := range addrs {
		m, err := ma.NewMultiaddr(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func rtt(t *testing.T, a, b *p2p.Host) time.Duration {
	t.Helper()
	d, err := a.MeasureRTT(t.Context(), b.Key())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// near reports a duration within 2 ms above the wanted one, which is what the links add.
func near(d, want time.Duration) bool { return d >= want && d < want+2*time.Millisecond }

func TestLatency(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    p2ptest.Options
		want func(w *p2ptest.Network, a, b int) time.Duration // one way
	}{
		{"the same for all", p2ptest.Options{Latency: 40 * time.Millisecond}, func(*p2ptest.Network, int, int) time.Duration { return 40 * time.Millisecond }},
		{"drawn for each pair", p2ptest.Options{Latency: 10 * time.Millisecond, Spread: 90 * time.Millisecond, Seed: 7}, func(w *p2ptest.Network, a, b int) time.Duration {
			return w.Latency(w.Host(a), w.Host(b))
		}},
		{"given for each pair", p2ptest.Options{Pair: func(a, b int) time.Duration { return time.Duration(10*(a+b)) * time.Millisecond }}, func(_ *p2ptest.Network, a, b int) time.Duration {
			return time.Duration(10*(a+b)) * time.Millisecond
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p2ptest.New(t, 4, tt.o)
				defer w.Close()
				w.ConnectAll(4)
				seen := make(map[time.Duration]bool)
				for a := range 4 {
					for b := range a {
						want := tt.want(w, a, b)
						seen[want] = true
						if d := rtt(t, w.Host(a), w.Host(b)); !near(d, 2*want) || !near(rtt(t, w.Host(b), w.Host(a)), 2*want) {
							t.Errorf("between %d and %d: %v there and back, want %v", a, b, d, 2*want)
						}
					}
				}
				if tt.o.Spread > 0 && len(seen) != 6 {
					t.Errorf("six pairs have the latencies %v", seen)
				}
			})
		})
	}
}

func TestJitterAndLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 2, p2ptest.Options{Latency: 10 * time.Millisecond, Jitter: 30 * time.Millisecond, LossBP: 1000, Seed: 3})
		defer w.Close()
		w.ConnectAll(1)
		var fast, slow, lost int
		for range 200 {
			switch d := rtt(t, w.Host(0), w.Host(1)); {
			case d < 20*time.Millisecond:
				t.Fatalf("round trip of %v", d)
			case d < 40*time.Millisecond:
				fast++
			case d < 85*time.Millisecond:
				slow++
			default: // sent again
				lost++
			}
		}
		if fast < 20 || slow < 20 || lost < 10 || lost > 100 {
			t.Errorf("of 200 round trips %d took less than 40 ms, %d less than 85 ms, %d more", fast, slow, lost)
		}
	})
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 5, p2ptest.Options{})
		defer w.Close()
		w.ConnectAll(5)
		hosts := w.Hosts()
		w.Partition(hosts[:2], hosts[2:3])
		check := func(when string, hears func(a, b int) bool) {
			t.Helper()
			for a := range hosts {
				for b := range a {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err := hosts[a].MeasureRTT(ctx, hosts[b].Key())
					cancel()
					if (err == nil) != hears(a, b) {
						t.Errorf("%s: ping between %d and %d: %v", when, a, b, err)
					}
				}
			}
		}
		group := []int{1, 1, 2, 0, 0}
		check("cut", func(a, b int) bool { return group[a] == group[b] })
		time.Sleep(time.Minute)
		if n := len(hosts[2].Peers()); n != 0 {
			t.Errorf("the lonely host has %d connections after a minute", n)
		}
		w.Heal()
		w.ConnectAll(5)
		check("healed", func(int, int) bool { return true })
		w.Mute(hosts[4], true)
		check("muted", func(a, b int) bool { return a != 4 && b != 4 })
	})
}
