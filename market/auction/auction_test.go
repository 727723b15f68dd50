package auction_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// bidID names the bid of the auctions below.
var bidID = attest.Sum([]byte("bid"))

// rules accept anything.
var rules = auction.Rules{Bid: bidID, Theta: 3, MaxPrice: market.MaxAmount, StartWithin: time.Hour}

// entry is an offer of a peer whose key is made from the seed.
func entry(seed uint64, price market.MicroUSD, meanBP uint64, known bool) auction.Entry {
	o := markettest.Offer(markettest.FakeKey(seed), bidID)
	o.Price = price
	return auction.Entry{Offer: o, MeanBP: meanBP, Known: known}
}

// seeds is the way back from the keys of the first hundred seeds.
var seeds = func() map[attest.Key]uint64 {
	m := map[attest.Key]uint64{}
	for seed := range uint64(100) {
		m[markettest.FakeKey(seed)] = seed
	}
	return m
}()

// order names the providers of entries by their seeds and leaves out those of seeds from 100 on.
func order(entries []auction.Entry) []uint64 {
	var out []uint64
	for _, e := range entries {
		if seed, ok := seeds[e.Offer.Provider]; ok {
			out = append(out, seed)
		}
	}
	return out
}

// book adds the entries one by one.
func book(r auction.Rules, entries []auction.Entry) *auction.Book {
	b := auction.NewBook(r)
	for _, e := range entries {
		b.Add(e)
	}
	return b
}

func TestScore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		price  market.MicroUSD
		theta  uint64
		meanBP uint64
		want   uint64
	}{
		// Three offers: 1.80 at .95, 1.50 at .60, 1.95 at .97; a dearer failure turns the first and the third round.
		{"A, stateless", 1_800_000, 3, 9500, 2_084_210},
		{"B, stateless", 1_500_000, 3, 6000, 4_500_000},
		{"C, stateless", 1_950_000, 3, 9700, 2_130_927},
		{"A, long", 1_800_000, 20, 9500, 3_694_736},
		{"B, long", 1_500_000, 20, 6000, 21_500_000},
		{"C, long", 1_950_000, 20, 9700, 3_156_185},
		{"never fails", 1_800_000, 20, 10_000, 1_800_000},
		{"more than never fails", 1_800_000, 20, 20_000, 1_800_000},
		{"failure costs nothing", 1_800_000, 0, 1, 1_800_000},
		{"always fails", 1, 3, 0, 29_998},
		{"free", 0, 20, 1, 0},
		{"does not fit", math.MaxUint64, 1000, 1, math.MaxUint64},
		{"theta does not fit", 1, math.MaxUint64, 1, math.MaxUint64},
		{"theta does not fit, but nothing fails", 7, math.MaxUint64, 10_000, 7},
		{"theta times risk wraps to a small number", 1, 1<<63 + 1, 9998, math.MaxUint64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := auction.Score(tt.price, tt.theta, tt.meanBP); got != tt.want {
				t.Errorf("Score(%d, %d, %d) = %d, want %d", tt.price, tt.theta, tt.meanBP, got, tt.want)
			}
		})
	}
}

func TestScoreIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		price := market.MicroUSD(rng.Uint64() >> rng.IntN(64))
		theta, m := rng.Uint64()>>(rng.IntN(64)), 1+rng.Uint64N(10_000)
		// price · (1 + θ·(1−m)/m)
		mean := big.NewRat(int64(m), 10_000)
		risk := new(big.Rat).Sub(big.NewRat(1, 1), mean)
		score := new(big.Rat).Quo(risk, mean)
		score.Mul(score, new(big.Rat).SetInt(new(big.Int).SetUint64(theta)))
		score.Add(score, big.NewRat(1, 1))
		score.Mul(score, new(big.Rat).SetInt(new(big.Int).SetUint64(uint64(price))))
		want := uint64(math.MaxUint64)
		if q := new(big.Int).Quo(score.Num(), score.Denom()); q.IsUint64() {
			want = q.Uint64()
		}
		got := auction.Score(price, theta, m)
		// What does not fit on the way is the largest number too, unless the price is 0 or tiny: it is never too low.
		if got != want && !(got == math.MaxUint64 && theta > math.MaxUint64/10_000) {
			t.Fatalf("Score(%d, %d, %d) = %d, want %d", price, theta, m, got, want)
		}
	}
}

func TestExampleRanksAsExplained(t *testing.T) {
	offers := []auction.Entry{entry(1, 1_800_000, 9500, true), entry(2, 1_500_000, 6000, true), entry(3, 1_950_000, 9700, true)}
	for _, tt := range []struct {
		theta uint64
		want  []uint64
	}{{3, []uint64{1, 3, 2}}, {20, []uint64{3, 1, 2}}} {
		r := rules
		r.Theta = tt.theta
		got := auction.Clear(bidID, book(r, offers).Entries())
		if diff := cmp.Diff(tt.want, order(got)); diff != "" {
			t.Errorf("theta %d (-want +got):\n%s", tt.theta, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	me, other := markettest.FakeKey(1), markettest.FakeKey(2)
	for _, tt := range []struct {
		name   string
		change func(*auction.Rules, *market.Offer)
		want   string
	}{
		{"nothing against it", func(*auction.Rules, *market.Offer) {}, ""},
		{"price at the limit", func(r *auction.Rules, o *market.Offer) { r.MaxPrice = o.Price }, ""},
		{"price above it", func(r *auction.Rules, o *market.Offer) { r.MaxPrice = o.Price - 1 }, "price_above_limit"},
		{"starts just in time", func(r *auction.Rules, o *market.Offer) { r.StartWithin = 500 * time.Millisecond }, ""},
		{"starts too late", func(r *auction.Rules, o *market.Offer) { r.StartWithin = 499 * time.Millisecond }, "starts_too_late"},
		{"among the providers", func(r *auction.Rules, o *market.Offer) { r.Providers = []attest.Key{other, me} }, ""},
		{"not among them", func(r *auction.Rules, o *market.Offer) { r.Providers = []attest.Key{other} }, "not_among_providers"},
		{"excluded", func(r *auction.Rules, o *market.Offer) { r.Exclude = []attest.Key{other, me} }, "excluded"},
		{"another excluded", func(r *auction.Rules, o *market.Offer) { r.Exclude = []attest.Key{other} }, ""},
		{"answers the bid", func(r *auction.Rules, o *market.Offer) { r.Demand = markettest.Bid(other) }, ""},
		{"wrong tier", func(r *auction.Rules, o *market.Offer) {
			r.Demand, o.Tier = markettest.Bid(other), market.Bronze
		}, "differs_from_bid"},
		{"fewer devices", func(r *auction.Rules, o *market.Offer) {
			r.Demand = markettest.Bid(other)
			r.Demand.Count = 2
		}, "differs_from_bid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, e := rules, entry(1, 360_000, 8000, false)
			tt.change(&r, &e.Offer)
			b := auction.NewBook(r)
			got := b.Add(e)
			if got.Excluded != tt.want || r.Judge(e) != tt.want {
				t.Errorf("excluded %q and %q, want %q", got.Excluded, r.Judge(e), tt.want)
			}
			if cleared := auction.Clear(bidID, b.Entries()); (len(cleared) == 1) != (tt.want == "") {
				t.Errorf("%d offers can win", len(cleared))
			}
		})
	}
}

func TestTies(t *testing.T) {
	later, earlier := entry(1, 100, 10_000, true), entry(2, 100, 10_000, true)
	later.Offer.StartInMS, earlier.Offer.StartInMS = 600, 500
	got := book(rules, []auction.Entry{later, earlier}).Entries()
	if diff := cmp.Diff([]uint64{2, 1}, order(got)); diff != "" {
		t.Errorf("by start (-want +got):\n%s", diff)
	}
	var same []auction.Entry
	for seed := range uint64(8) {
		same = append(same, entry(seed, 100, 10_000, true))
	}
	got = book(rules, same).Entries()
	if !slices.IsSortedFunc(got, func(a, b auction.Entry) int {
		return slices.Compare(a.Offer.Provider[:], b.Offer.Provider[:])
	}) || len(got) != 8 {
		t.Errorf("equal offers are not in the order of their keys: %v", order(got))
	}
	// A lower price with a lower mean may tie by score too; the score decides, not the price.
	if got := book(rules, []auction.Entry{entry(3, 50, 6000, true), entry(4, 100, 10_000, true)}).Entries(); order(got)[0] != 4 {
		t.Errorf("order %v, want the surer offer first", order(got))
	}
}

func TestExcludedRankLast(t *testing.T) {
	r := rules
	r.MaxPrice = 500_000
	got := book(r, []auction.Entry{entry(1, 600_000, 10_000, true), entry(2, 490_000, 5000, true), entry(3, 400_000, 5000, true)}).Entries()
	if diff := cmp.Diff([]uint64{3, 2, 1}, order(got)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{3, 2}, order(auction.Clear(bidID, got))); diff != "" {
		t.Errorf("can win (-want +got):\n%s", diff)
	}
	if got := auction.Clear(bidID, nil); len(got) != 0 {
		t.Errorf("nothing clears to %v", got)
	}
}

func TestFirstOfferOfAProviderCounts(t *testing.T) {
	b := auction.NewBook(rules)
	first := b.Add(entry(1, 500_000, 9000, true))
	second := b.Add(entry(1, 100_000, 9000, true))
	if first.Excluded != "" || second.Excluded != auction.Repeated || auction.ClosesEarly(second, market.USD) {
		t.Errorf("excluded %q and %q, want the second", first.Excluded, second.Excluded)
	}
	stranger := b.Add(entry(2, 500_000, 8000, false))
	again := b.Add(entry(2, 100_000, 8000, false))
	if stranger.Excluded != "" || again.Excluded != auction.Repeated {
		t.Errorf("excluded %q and %q, want the second", stranger.Excluded, again.Excluded)
	}
	got := b.Entries()
	if b.Received != 2 || len(got) != 2 || got[0].Offer.Price != 500_000 || got[1].Offer.Price != 500_000 {
		t.Errorf("received %d, kept %d", b.Received, len(got))
	}
}

// crowd is a random auction with few distinct scores, so that there are ties, and with excluded offers among them.
func crowd(rng *rand.Rand, known, strangers int) []auction.Entry {
	var out []auction.Entry
	for i := range known + strangers {
		e := entry(uint64(i), market.MicroUSD(1+rng.IntN(12))*50_000, 5000+uint64(rng.IntN(3))*2000, i < known)
		e.Offer.StartInMS = uint64(rng.IntN(3)) * 100
		out = append(out, e)
	}
	return out
}

// The award depends on the set of offers alone: in any order, at once or one by one, the same ones are kept, in the
// same order.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	r := rules
	r.MaxPrice = 450_000
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		offers := crowd(rng, rng.IntN(60), rng.IntN(40))
		judged := slices.Clone(offers)
		for i := range judged {
			judged[i].Score, judged[i].Excluded = auction.Score(judged[i].Offer.Price, r.Theta, judged[i].MeanBP), r.Judge(judged[i])
		}
		want := order(auction.Keep(bidID, judged))
		winners := order(auction.Clear(bidID, judged))
		for range 8 {
			rng.Shuffle(len(offers), func(i, j int) {
				offers[i], offers[j] = offers[j], offers[i]
				judged[i], judged[j] = judged[j], judged[i]
			})
			b := book(r, offers)
			if diff := cmp.Diff(want, order(b.Entries())); diff != "" {
				t.Fatalf("seed %d, one by one (-at once +one by one):\n%s", seed, diff)
			}
			if diff := cmp.Diff(want, order(auction.Keep(bidID, judged))); diff != "" {
				t.Fatalf("seed %d, at once:\n%s", seed, diff)
			}
			if diff := cmp.Diff(winners, order(auction.Clear(bidID, b.Entries()))); diff != "" {
				t.Fatalf("seed %d, winners:\n%s", seed, diff)
			}
			if b.Received != len(offers) {
				t.Fatalf("seed %d: received %d of %d", seed, b.Received, len(offers))
			}
		}
	}
}

// Keep keeps at most 32, of strangers the 8 with the lowest digest of bid and key; what it keeps it keeps again, and it
// leaves the caller's slice alone.
func TestKeep(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		offers := crowd(rng, rng.IntN(60), rng.IntN(40))
		before := order(offers)
		kept := auction.Keep(bidID, offers)
		if !slices.Equal(before, order(offers)) {
			t.Fatal("the caller's entries were reordered")
		}
		if again := auction.Keep(bidID, kept); !slices.Equal(order(again), order(kept)) {
			t.Fatalf("seed %d: kept %v, of these %v", seed, order(kept), order(again))
		}
		seat := func(e auction.Entry) attest.Digest { return attest.Sum(append(bidID[:], e.Offer.Provider[:]...)) }
		var seats []attest.Digest
		for _, e := range offers {
			if !e.Known {
				seats = append(seats, seat(e))
			}
		}
		slices.SortFunc(seats, func(a, b attest.Digest) int { return slices.Compare(a[:], b[:]) })
		strangers := 0
		for _, e := range kept {
			if !e.Known {
				strangers++
				if !slices.Contains(seats[:min(len(seats), auction.StrangerSeats)], seat(e)) {
					t.Fatalf("seed %d: a stranger without a seat was kept", seed)
				}
			}
		}
		if len(kept) > auction.MaxKept || strangers > auction.StrangerSeats {
			t.Fatalf("seed %d: %d kept, %d strangers", seed, len(kept), strangers)
		}
	}
}

// A flood of made-up keys with the best of offers, before and after, evicts no known peer and takes 8 places.
func TestFloodOfNewcomers(t *testing.T) {
	const known = 20
	for _, flood := range []int{10_000, 25_000} {
		b := auction.NewBook(rules)
		fakes := func(from, to int) {
			for i := from; i < to; i++ {
				b.Add(entry(uint64(1000+i), 1, 10_000, false))
			}
		}
		fakes(0, flood/2)
		for i := range uint64(known) {
			b.Add(entry(i, 400_000+market.MicroUSD(i), 9000, true))
		}
		fakes(flood/2, flood)
		got := b.Entries()
		if len(got) != known+auction.StrangerSeats {
			t.Errorf("%d fakes: %d kept, want %d", flood, len(got), known+auction.StrangerSeats)
		}
		var want []uint64
		for i := range uint64(known) {
			want = append(want, i)
		}
		if diff := cmp.Diff(want, order(got)); diff != "" {
			t.Errorf("%d fakes: known peers kept (-want +got):\n%s", flood, diff)
		}
		if b.Received < min(flood, 20_000-known) || b.Received > flood+known {
			t.Errorf("%d fakes and %d known: received %d", flood, known, b.Received)
		}
	}
}

// A stranger that the renter names keeps its seat among many that it did not ask for.
func TestNamedStrangerKeepsItsSeat(t *testing.T) {
	for named := range uint64(40) {
		r := rules
		r.Providers = []attest.Key{markettest.FakeKey(named)}
		b := auction.NewBook(r)
		for i := range uint64(40) {
			b.Add(entry(i, 250_000, 8000, false))
		}
		if diff := cmp.Diff([]uint64{named}, order(auction.Clear(bidID, b.Entries()))); diff != "" {
			t.Errorf("who can win (-want +got):\n%s", diff)
		}
		if n := len(b.Entries()); n != auction.StrangerSeats {
			t.Errorf("%d kept, want %d", n, auction.StrangerSeats)
		}
	}
}

// With the price that a stranger's first failure costs, the known peer at 0.25 beats every made-up key at the same price.
func TestKnownPeerBeatsStrangersAtItsPrice(t *testing.T) {
	b := auction.NewBook(rules)
	for i := range uint64(10_000) {
		b.Add(entry(1000+i, 250_000, 8000, false))
	}
	b.Add(entry(1, 250_000, 9500, true))
	if got := auction.Clear(bidID, b.Entries()); got[0].Offer.Provider != markettest.FakeKey(1) {
		t.Error("a stranger won")
	}
}

func TestClosesEarly(t *testing.T) {
	for _, tt := range []struct {
		name      string
		known     bool
		excluded  string
		price     market.MicroUSD
		reference market.MicroUSD
		want      bool
	}{
		{"at the reference", true, "", 100, 100, true},
		{"below it", true, "", 99, 100, true},
		{"above it", true, "", 101, 100, false},
		{"from a stranger", false, "", 1, 100, false},
		{"that cannot win", true, "excluded", 1, 100, false},
		{"without a reference", true, "", 1, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := entry(1, tt.price, 9000, tt.known)
			e.Excluded = tt.excluded
			if got := auction.ClosesEarly(e, tt.reference); got != tt.want {
				t.Errorf("ClosesEarly = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestReference(t *testing.T) {
	for _, tt := range []struct {
		recent []market.MicroUSD
		want   market.MicroUSD
	}{{nil, 0}, {[]market.MicroUSD{7}, 7}, {[]market.MicroUSD{9, 1}, 1}, {[]market.MicroUSD{9, 1, 5}, 5}, {[]market.MicroUSD{4, 9, 1, 5}, 4}} {
		before := slices.Clone(tt.recent)
		if got := auction.Reference(tt.recent); got != tt.want || !slices.Equal(before, tt.recent) {
			t.Errorf("Reference(%v) = %d, want %d and the list as it was", before, got, tt.want)
		}
	}
}

func TestWindow(t *testing.T) {
	const ms = time.Millisecond
	for rtt, want := range map[time.Duration]time.Duration{
		0: time.Second, -ms: time.Second, 1: 250 * ms, 62 * ms: 250 * ms, 63 * ms: 252 * ms, 100 * ms: 400 * ms,
		500 * ms: 2 * time.Second, 501 * ms: 2 * time.Second, time.Hour: 2 * time.Second,
	} {
		if got := auction.Window(rtt); got != want {
			t.Errorf("Window(%s) = %s, want %s", rtt, got, want)
		}
	}
}

func TestTheta(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec market.Spec
		want uint64
	}{
		{"short", market.Spec{Duration: 10 * time.Minute}, 3},
		{"long", market.Spec{Duration: 11 * time.Minute}, 20},
		{"long with checkpoints", market.Spec{Duration: time.Hour, Checkpoint: "/ckpt"}, 5},
		{"its own", market.Spec{Duration: time.Hour, Checkpoint: "/ckpt", Theta: 7}, 7},
	} {
		if got := auction.Theta(tt.spec); got != tt.want {
			t.Errorf("%s: Theta = %d, want %d", tt.name, got, tt.want)
		}
	}
}
