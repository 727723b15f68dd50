package auction_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/markettest"
)

func TestSurcharge(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		limit time.Duration
		rtt   uint64
		path  market.Reach
		bp    uint64
		why   string
	}{
		{"no limit", 0, 300, market.ReachDirect, 0, ""},
		{"nothing measured, no limit", 0, 0, market.ReachUnknown, 0, ""},
		{"nothing measured", 50 * ms, 0, market.ReachDirect, 0, "latency_unknown"},
		{"next door", 50 * ms, 1, market.ReachDirect, 10, ""},
		{"half way", 50 * ms, 25, market.ReachDirect, 250, ""},
		{"at the limit", 50 * ms, 50, market.ReachDirect, 500, ""},
		{"too far", 50 * ms, 51, market.ReachDirect, 500, "too_far"},
		{"much too far", 50 * ms, math.MaxUint64, market.ReachDirect, 500, "too_far"},
		{"punched", 0, 30, market.ReachPunched, 200, ""},
		{"relayed", 0, 30, market.ReachRelayed, 500, ""},
		{"relayed and at the limit", 50 * ms, 50, market.ReachRelayed, 1000, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rules
			r.Latency = tt.limit
			e := entry(1, 400_000, 10_000, true)
			e.RTTMS, e.Path = tt.rtt, tt.path
			got := auction.NewBook(r).Add(e)
			if got.SurchargeBP != tt.bp || got.Excluded != tt.why || got.Score != 400_000+40*tt.bp {
				t.Errorf("surcharge %d, score %d, excluded %q; want %d, %d, %q", got.SurchargeBP, got.Score, got.Excluded, tt.bp, 400_000+40*tt.bp, tt.why)
			}
		})
	}
}

func TestSurcharged(t *testing.T) {
	for _, tt := range []struct {
		price market.MicroUSD
		bp    uint64
		want  market.MicroUSD
	}{
		{0, 500, 0}, {100, 0, 100}, {1, 1, 2}, {10_000, 1, 10_001}, {10_001, 1, 10_003}, {400_000, 500, 420_000},
		{math.MaxUint64, 0, math.MaxUint64}, {math.MaxUint64, 1, math.MaxUint64}, {math.MaxUint64, math.MaxUint64, math.MaxUint64}, {1, math.MaxUint64, math.MaxUint64/10_000 + 2},
	} {
		if got := auction.Surcharged(tt.price, tt.bp); got != tt.want {
			t.Errorf("Surcharged(%d, %d) = %d, want %d", tt.price, tt.bp, got, tt.want)
		}
	}
}

// A peer that cannot be where it says it is loses a job that asks for a place, and no other.
func TestJudgePlaceFault(t *testing.T) {
	r := rules
	r.Demand = markettest.Bid(markettest.FakeKey(2))
	e := entry(1, 360_000, 4000, false)
	e.PlaceFault = true
	if got := r.Judge(e); got != "" {
		t.Errorf("without a place asked for: %q", got)
	}
	r.Demand.Require = []market.Place{{Continent: "eu"}}
	if got := r.Judge(e); got != "impossible_place" {
		t.Errorf("with a place asked for: %q", got)
	}
}

// What the renter chose to ask is kept like what it knows, and no crowd can take its place; for all else it is a stranger.
func TestDirectCopies(t *testing.T) {
	b := auction.NewBook(rules)
	for i := range uint64(5000) {
		b.Add(entry(1000+i, 100_000, 8000, false))
	}
	for seed := range uint64(auction.DirectCopies) {
		e := entry(seed, 900_000, 8000, false)
		e.Direct = true
		if got := b.Add(e); got.Excluded != "" || auction.ClosesEarly(got, market.USD) {
			t.Errorf("excluded %q, closes early %v", got.Excluded, auction.ClosesEarly(got, market.USD))
		}
	}
	if got := len(order(b.Entries())); got != auction.DirectCopies {
		t.Errorf("%d of %d are kept", got, auction.DirectCopies)
	}
	if b.ReceivedKnown != 0 || b.Received != 5000+auction.DirectCopies {
		t.Errorf("counted %+v", b.Tally)
	}
}

// An offer may come by gossip first and again as the answer to the direct copy, whether it has a seat by then or not.
func TestOfferComesTwice(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		b := auction.NewBook(rules)
		first := entry(1, 300_000, 8000, false)
		k := first.Offer.Provider
		if !b.WantsOffer(k, false, false) {
			t.Fatal("the first offer is not wanted")
		}
		b.Add(first)
		if crowded {
			for i := range uint64(1000) {
				b.Add(entry(1000+i, 100_000, 8000, false))
			}
			if len(order(b.Entries())) != 0 {
				t.Skip("the seed of this test has a seat of its own")
			}
		}
		second := entry(1, 200_000, 8000, false)
		second.Direct = true
		if b.WantsOffer(k, false, false) || !b.WantsOffer(k, false, true) {
			t.Error("only a direct one is wanted again")
		}
		b.Add(second)
		if b.WantsOffer(k, false, true) || b.Add(second).Excluded != auction.Repeated {
			t.Error("a third one counts")
		}
		got := b.Entries()
		n := 0
		for _, e := range got {
			if e.Offer.Provider == k {
				n++
				if !e.Direct || !crowded && e.Offer.Price != 300_000 {
					t.Errorf("crowded %v: direct %v, price %s", crowded, e.Direct, e.Offer.Price)
				}
			}
		}
		if want := map[bool]int{false: 1, true: 1001}[crowded]; n != 1 || b.Received != want {
			t.Errorf("crowded %v: kept %d times, %d received, want once and %d", crowded, n, b.Received, want)
		}
	}
}

// What a book does not want to read makes no difference to what it keeps.
func TestUnreadOffersWouldNotBeKept(t *testing.T) {
	r := rules
	r.MaxPrice = 450_000
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 5))
		offers := crowd(rng, rng.IntN(60), rng.IntN(300))
		for i := range offers {
			offers[i].Direct = i%40 == 0
		}
		rng.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
		all, some, read := auction.NewBook(r), auction.NewBook(r), 0
		for _, e := range offers {
			all.Add(e)
			if some.WantsOffer(e.Offer.Provider, e.Known, e.Direct) {
				some.Add(e)
				read++
			}
		}
		if diff := cmp.Diff(all.Entries(), some.Entries()); diff != "" {
			t.Fatalf("seed %d, %d of %d read (-all +some):\n%s", seed, read, len(offers), diff)
		}
		if all.Tally != some.Tally || some.Received != len(offers) {
			t.Fatalf("seed %d: counted %+v and %+v of %d", seed, all.Tally, some.Tally, len(offers))
		}
	}
}

// A peer cannot make the renter check one bad answer after the other.
func TestLooksAreBounded(t *testing.T) {
	for _, known := range []bool{false, true} {
		b, k, n := auction.NewBook(rules), markettest.FakeKey(1), 0
		for range 100 {
			if b.WantsOffer(k, known, true) {
				n++
			}
			if b.WantsDecline(k, known) {
				n++
			}
		}
		if n != 4 {
			t.Errorf("known %v: %d answers of one peer were looked at, want 4", known, n)
		}
	}
}

func TestTally(t *testing.T) {
	b := auction.NewBook(rules)
	for seed := range uint64(200) {
		k := markettest.FakeKey(seed)
		known := seed%10 == 0
		if b.WantsDecline(k, known) {
			if !b.Decline(k, known) || b.Decline(k, known) {
				t.Fatal("a decline counts once")
			}
		} else if known {
			t.Errorf("the decline of known peer %d is not read", seed)
		}
		if b.WantsDecline(k, known) {
			t.Fatal("a second decline is wanted")
		}
	}
	b.Add(entry(500, 1, 9000, true))
	b.Add(entry(501, 1, 8000, false))
	b.Add(entry(0, 1, 9000, true)) // declined first, and can serve now
	want := auction.Tally{Received: 3, ReceivedKnown: 2, Declined: 200, DeclinedKnown: 20}
	if diff := cmp.Diff(want, b.Tally); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
}

// Revise changes what was measured, and the order with it.
func TestRevise(t *testing.T) {
	b := auction.NewBook(rules)
	for seed := range uint64(3) {
		e := entry(seed, 400_000+market.MicroUSD(seed)*4000, 9000, true)
		e.Path = market.ReachRelayed
		b.Add(e)
	}
	b.Add(entry(3, 415_000, 9000, false))
	b.Revise(func(e *auction.Entry) {
		if seeds[e.Offer.Provider] != 0 {
			e.Path = market.ReachPunched
		}
	})
	if diff := cmp.Diff([]uint64{1, 2, 0, 3}, order(b.Entries())); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestDeclines(t *testing.T) {
	for crowd, want := range map[uint64]uint64{0: 10_000, 1: 10_000, 64: 10_000, 65: 9846, 128: 5000, 1000: 640, 10_000: 64, 1_000_000: 1, math.MaxUint64: 1} {
		if got := auction.DeclineBP(crowd); got != want {
			t.Errorf("DeclineBP(%d) = %d, want %d", crowd, got, want)
		}
	}
	for _, n := range []uint64{10, 100, 1000, 20_000} {
		bp, declines := auction.DeclineBP(n), 0
		for i := range n {
			if auction.Sampled(bidID, markettest.FakeKey(i), bp) {
				declines++
			}
		}
		if n <= auction.WantedDeclines && declines != int(n) || n > auction.WantedDeclines && (declines < 35 || declines > 95) {
			t.Errorf("%d of %d decline", declines, n)
		}
		if got := auction.Crowd(auction.Tally{Declined: declines}, bp); got < n/2 || got > 3*n/2 {
			t.Errorf("a crowd of %d looks like %d", n, got)
		}
	}
	if got := auction.Crowd(auction.Tally{Received: 3, Declined: 4}, 0); got != 40_003 {
		t.Errorf("a rate of 0 counts as the lowest: %d", got)
	}
}
