package node_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/renter"
)

// held is what one auction took.
type held struct {
	took   time.Duration // bid signed → award countersigned
	window time.Duration
	early  bool // an offer closed it before the window
	offers uint64
}

// hold has a renter hold an auction and stops the job as soon as it is awarded.
func (m *memoryNet) hold(p *memoryPeer, spec market.Spec) held {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	j, err := p.do.Submit(ctx, spec, false)
	if err != nil {
		m.t.Fatal(err)
	}
	var h held
	err = p.do.Events(ctx, j.ID, 0, true, func(e renter.Event) error {
		if e.Kind == renter.EvAward {
			h.took = time.Duration(*e.Award.AuctionMS) * time.Millisecond
			_, err := p.do.Stop(ctx, j.ID)
			return err
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if j, err = p.do.Wait(ctx, j.ID); err != nil {
		m.t.Fatal(err)
	}
	auctions, err := p.do.Auctions(ctx, j.ID)
	if err != nil || len(auctions) != 1 || h.took == 0 {
		m.t.Fatalf("job ended as %s (%s %s) with %d auctions, award after %v, %v; want one auction with an award", j.State, j.Reason, j.Detail, len(auctions), h.took, err)
	}
	a := auctions[0]
	h.window, h.early, h.offers = time.Duration(a.WindowMS)*time.Millisecond, a.ClosedBy == string(auction.ByEarly), uint64(a.Received)
	return h
}

// auctionTimes is what a series of auctions took.
type auctionTimes struct {
	full    []held  // of renters that know nobody
	early   []held  // of renters that trust some providers and are connected to them
	cold    []held  // the same, each renter's first, while it is connected to none of them
	streams float64 // of our protocols that all peers opened, per full auction
	heard   float64 // peers that heard the bid by gossip, per full auction
}

// measureAuctions has each renter hold so many auctions: first as one that knows nobody, then with experience of three
// providers. As many more renters, which have such experience too, hold their first.
func measureAuctions(t *testing.T, providers, renters, rounds int) (r auctionTimes) {
	module := filepath.Join(t.TempDir(), "m.wasm")
	if err := os.WriteFile(module, []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryNet(t, providers, 2*renters)
		defer m.close()
		spec := market.Spec{Module: module, GPUs: 1, Models: []string{"RTX 4090"}, MaxPrice: market.USD, Budget: market.USD, Duration: 10 * time.Minute}
		newcomers, returned := m.renters[:renters], m.renters[renters:]
		streams, heard := m.total("lacuna_p2p_streams_total", "out"), m.total("lacuna_bids_heard_total", "")
		for range rounds {
			for _, p := range newcomers {
				r.full = append(r.full, m.hold(p, spec))
				time.Sleep(auctionPause)
			}
		}
		r.streams = (m.total("lacuna_p2p_streams_total", "out") - streams) / float64(len(r.full))
		r.heard = (m.total("lacuna_bids_heard_total", "") - heard) / float64(len(r.full))
		trusted := func(i int) (keys []attest.Key) {
			for k := range 3 {
				keys = append(keys, m.providers[(7*i+31*k)%len(m.providers)].Key())
			}
			return keys
		}
		for i, p := range m.renters {
			for _, k := range trusted(i) {
				m.trust(p, k)
			}
		}
		early := func(p *memoryPeer) held {
			m.raise(p)
			h := m.hold(p, spec)
			time.Sleep(auctionPause)
			return h
		}
		for i, p := range returned {
			for _, k := range trusted(renters + i) {
				p.Disconnect(k)
			}
			time.Sleep(auctionPause)
			r.cold = append(r.cold, early(p))
		}
		for range rounds {
			for _, p := range newcomers {
				r.early = append(r.early, early(p))
			}
		}
	})
	return r
}

// quantile returns what the share q of the auctions did not exceed.
func quantile(all []held, q float64, of func(held) time.Duration) time.Duration {
	s := make([]time.Duration, len(all))
	for i, h := range all {
		s[i] = of(h)
	}
	slices.SortFunc(s, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func took(h held) time.Duration { return h.took }

// over is what an auction took beyond its window, of which the award's own round trip is one.
func over(h held) time.Duration { return h.took - h.window }

// report writes what the auctions took as the metrics of a benchmark.
func (r auctionTimes) report(b *testing.B) {
	ms := func(d time.Duration) float64 { return float64(d.Milliseconds()) }
	window := func(h held) time.Duration { return h.window }
	offers := 0.0
	for _, h := range r.full {
		offers += float64(h.offers) / float64(len(r.full))
	}
	b.ReportMetric(0, "ns/op") // what the machine takes says nothing
	b.ReportMetric(ms(quantile(r.full, 0.5, window)), "window-ms")
	b.ReportMetric(ms(quantile(r.full, 0.5, took)), "award-p50-ms")
	b.ReportMetric(ms(quantile(r.full, 0.95, took)), "award-p95-ms")
	b.ReportMetric(ms(quantile(r.full, 0.5, over))/ms(crowdRTT), "over-window-p50-rtt")
	b.ReportMetric(ms(quantile(r.early, 0.5, took)), "early-p50-ms")
	b.ReportMetric(ms(quantile(r.early, 0.95, took)), "early-p95-ms")
	b.ReportMetric(ms(quantile(r.early, 0.5, took))/ms(crowdRTT), "early-p50-rtt")
	b.ReportMetric(ms(quantile(r.cold, 0.5, took))/ms(crowdRTT), "cold-p50-rtt")
	b.ReportMetric(offers, "offers")
	b.ReportMetric(r.heard, "heard")
	b.ReportMetric(r.streams, "streams")
}

// BenchmarkAuctionTimes is the time from a signed bid to a countersigned award among 100 whole nodes, 80 ms of virtual time
// apart. It is not repeated: virtual time does not depend on the machine.
func BenchmarkAuctionTimes(b *testing.B) {
	var r auctionTimes
	if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "auctions", F: func(t *testing.T) {
		r = measureAuctions(t, 90, 5, 4)
	}}}) {
		b.Fatal("an auction failed")
	}
	b.Run("100", func(b *testing.B) {
		for range b.N { // measured above
		}
		r.report(b)
	})
}

// TestAuctionTimes holds what BenchmarkAuctionTimes measures, among fewer nodes.
func TestAuctionTimes(t *testing.T) {
	r := measureAuctions(t, 20, 2, 3)
	for _, h := range r.early {
		if !h.early {
			t.Errorf("%+v: a trusted offer at the reference price did not close the auction", h)
		}
	}
	for _, tt := range []struct {
		name       string
		took, most time.Duration
	}{
		{"window and award, median beyond the window", quantile(r.full, 0.5, over), 3 * crowdRTT / 2},
		{"window and award, p95", quantile(r.full, 0.95, took), 1500 * time.Millisecond},
		{"early, median", quantile(r.early, 0.5, took), 4 * crowdRTT},
		// One each for the handshake, identify, bid and award, and half of one where the provider dials too meanwhile.
		{"early, not connected, median", quantile(r.cold, 0.5, took), 9 * crowdRTT / 2},
		{"early, p95", quantile(r.early, 0.95, took), 1500 * time.Millisecond},
	} {
		if tt.took <= 0 || tt.took > tt.most {
			t.Errorf("%s: %v, want at most %v", tt.name, tt.took, tt.most)
		}
	}
	if most := 40.0 + 3*20; r.streams > most {
		t.Errorf("%.0f streams per auction among 22 peers, want at most %.0f", r.streams, most)
	}
}
