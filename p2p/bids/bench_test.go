package bids_test

import (
	"crypto/ed25519"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// BenchmarkCheck is the cost of checking a message, beside one bare verification of an Ed25519 signature over a bid: of
// the first copy, and of those on other topics and ways.
func BenchmarkCheck(b *testing.B) {
	const ring = 4096 // more than are remembered as verified
	messages := make([][]byte, ring)
	for i := range messages {
		messages[i], _ = signedBy(b, crowdKey(i), 1)
	}
	e, err := attest.ParseEnvelope(messages[0], market.MaxBidBytes)
	if err != nil {
		b.Fatal(err)
	}
	text := slices.Concat([]byte(market.BidDomain), []byte{0}, testNetwork[:], e.Payload)
	const trials = 5000
	start := time.Now()
	for range trials {
		ed25519.Verify(e.Signer[:], text, e.Sig[:])
	}
	bare := float64(time.Since(start).Nanoseconds()) / trials
	for _, tt := range []struct {
		name string
		from int // messages in turn
	}{{"first", ring}, {"copy", 1}} {
		b.Run(tt.name, func(b *testing.B) {
			g := bids.NewGuard(testNetwork, 1e6, nil)
			i := 0
			for b.Loop() {
				if why, _ := g.Check(messages[i%tt.from], time.Now()); why != "" {
					b.Fatal(why)
				}
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i)/bare, "x-ed25519")
		})
	}
}

// BenchmarkReach is the share of 200 peers that bids reach, and how long it takes, in virtual time with 50 ms between
// any two peers and back.
func BenchmarkReach(b *testing.B) {
	virtual(b, func(t *testing.T) (float64, time.Duration) { return reach(t, 200, 10) })
}

// BenchmarkFlood is how honest bids fare among 50 peers under attacks: the table of RATIONALE.md.
func BenchmarkFlood(b *testing.B) {
	for _, a := range attacks(30) {
		b.Run(a.name, func(b *testing.B) {
			virtual(b, func(t *testing.T) (float64, time.Duration) {
				r := flood(t, a)
				return r.share, r.p95
			})
		})
	}
}

// virtual reports the mean of what f measures in virtual time, which only a test can have.
func virtual(b *testing.B, f func(*testing.T) (share float64, p95 time.Duration)) {
	var share, p95 float64
	n := 0.0
	for b.Loop() {
		measure := testing.InternalTest{Name: b.Name(), F: func(t *testing.T) {
			s, d := f(t)
			share, p95, n = share+s, p95+float64(d.Milliseconds()), n+1
		}}
		if !testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{measure}) {
			b.Fatal("the network failed")
		}
	}
	b.ReportMetric(share/n, "share")
	b.ReportMetric(p95/n, "p95-virtual-ms")
}

// reach announces bids among that many peers with about 8 neighbours each, and returns the share of peers that heard one, and
// within what time 95 % of those did.
func reach(t *testing.T, peers, announcements int) (share float64, p95 time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, peers)
		w.connectRandomly(4)
		arrived := &arrivals{sent: make(map[market.Nonce]time.Time), delay: make(map[market.Nonce][]time.Duration)}
		var hearing sync.WaitGroup
		for i := range peers {
			c := w.subscribe(i, nv24[0])
			hearing.Go(func() { arrived.hear(c) })
		}
		time.Sleep(10 * time.Second)
		for i := range announcements {
			who := i * 37 % peers
			bid := announce(who, byte(i+1))
			arrived.mu.Lock()
			arrived.sent[bid.Request] = time.Now()
			arrived.mu.Unlock()
			if _, err := w.gossip[who].Publish(t.Context(), sign(t, who, bid), []string{"nv-24g"}, nil); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		r := arrived.result(peers)
		share, p95 = r.share, r.p95
		w.close()
		hearing.Wait()
	})
	return share, p95
}

// TestReach holds what BenchmarkReach measures, on fewer peers.
func TestReach(t *testing.T) {
	share, p95 := reach(t, 60, 10)
	if share < 0.999 || p95 > 250*time.Millisecond {
		t.Errorf("%.2f %% of 60 peers heard a bid, 95 %% of them within %v; want all within 250 ms", 100*share, p95)
	}
}
