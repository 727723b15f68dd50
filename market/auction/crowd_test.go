package auction_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// The simulation below holds auctions in crowds with the code that holds them in earnest: the same book, window, sampling
// and choice. Only the network is made up: who hears the bid when, how far everyone is, and how fast the renter takes
// answers in. Its limits are those of the protocol, so that what a crowd cannot get through does not count.
const (
	takeIn     = 200 * time.Microsecond // one answer off its stream, on one slow core
	medianRTT  = 80 * time.Millisecond
	canServe   = 60 // of 100 providers; the others decline
	veteran    = 40 // providers that a renter with experience knows
	answerSize = 450
)

// simPeer is a provider in one auction.
type simPeer struct {
	key    attest.Key
	rtt    time.Duration
	price  market.MicroUSD
	mean   uint64 // in the renter's eyes
	known  bool
	direct bool // gets a direct copy
	deaf   bool // does not hear the gossip
	offers bool
	fake   bool // refuses its award
	// at is when the answer of a peer that did not have to think or to be told arrives; 0 = by distance
	at time.Duration
}

func (p simPeer) entry(bid attest.Digest) auction.Entry {
	o := market.Offer{Version: 1, Bid: bid, Provider: p.key, Price: p.price}
	return auction.Entry{Envelope: attest.Envelope{Payload: make([]byte, answerSize)}, Offer: o, MeanBP: p.mean, Known: p.known, Direct: p.direct}
}

// simKeys are made once: a key costs a hash.
var simKeys = func() []attest.Key {
	keys := make([]attest.Key, 40_000)
	for i := range keys {
		keys[i] = markettest.FakeKey(uint64(1_000_000 + i))
	}
	return keys
}()

// simCrowd returns n providers, of which the renter knows some, and has chosen up to 8 for direct copies: half of them
// known ones, as far as there are.
func simCrowd(rng *rand.Rand, n, known int) []simPeer {
	peers := make([]simPeer, n)
	for i := range peers {
		rtt := time.Duration(10+rng.ExpFloat64()*70) * time.Millisecond
		peers[i] = simPeer{key: simKeys[i], rtt: min(rtt, 400*time.Millisecond), price: market.MicroUSD(200_000 + rng.IntN(400_000)),
			mean: 8000, offers: rng.IntN(100) < canServe}
	}
	for i, at := range rng.Perm(n) {
		p := &peers[at]
		if p.known = i < known; p.known {
			p.mean = 9000 + uint64(rng.IntN(900))
		}
		p.direct = i < auction.DirectCopies/2 || i >= known && i < max(known, auction.DirectCopies/2)+auction.DirectCopies/2
	}
	return peers
}

// simResult is what came of one auction.
type simResult struct {
	arrived, late, turnedAway, read, declines int
	entries                                   []auction.Entry
	award                                     *auction.Entry // after those that refused
	refused                                   int
	bestKept                                  bool
	best                                      uint64 // score of the best of all that would have offered and kept their word
	book                                      *auction.Book
}

// simulate holds one auction. Which peers get a direct copy, who is known and who hears it, is in peers.
func simulate(bid attest.Digest, peers []simPeer) simResult {
	rules := auction.Rules{Bid: bid, Theta: auction.ThetaStateless, MaxPrice: market.USD, StartWithin: time.Minute}
	r := simResult{book: auction.NewBook(rules), best: 1 << 62}
	bp := auction.DeclineBP(uint64(len(peers)))
	window := auction.Window(medianRTT)
	type arrival struct {
		at time.Duration
		p  simPeer
	}
	var arrivals, copies []arrival
	for _, p := range peers {
		if p.deaf && !p.direct {
			continue
		}
		if !p.offers && !p.direct && !auction.Sampled(bid, p.key, bp) {
			continue
		}
		if p.direct {
			copies = append(copies, arrival{2 * p.rtt, p}) // a dial, and there and back
			continue
		}
		at := 60*time.Millisecond + 3*p.rtt/2 // the gossip, a dial, and its answer
		if p.at > 0 {
			at = p.at
		}
		arrivals = append(arrivals, arrival{at, p})
	}
	byTime := func(a, b arrival) int { return cmp.Or(cmp.Compare(a.at, b.at), slices.Compare(a.p.key[:], b.p.key[:])) }
	slices.SortFunc(arrivals, byTime)
	// A stream is open until its answer is taken in. Streams beyond the protocol's limit are turned away.
	taken := copies
	var done time.Duration
	for _, a := range arrivals {
		switch {
		case a.at > window:
			r.late++
		case done > a.at && int((done-a.at)/takeIn) >= auction.MaxStreams:
			r.turnedAway++
		default:
			done = max(done, a.at) + takeIn
			taken = append(taken, arrival{done, a.p})
		}
	}
	slices.SortFunc(taken, byTime)
	for _, a := range taken {
		r.arrived++
		if a.at > window { // in the queue when the window closes: it is taken in too, see settle
			a.at = window
		}
		if !a.p.offers {
			if r.book.WantsDecline(a.p.key, a.p.known) {
				r.read++
				r.book.Decline(a.p.key, a.p.known)
			}
			r.declines++
			continue
		}
		if r.book.WantsOffer(a.p.key, a.p.known, a.p.direct) {
			r.read++
			r.book.Add(a.p.entry(bid))
		}
	}
	return r.choose(bid, peers)
}

// choose awards, and goes on to the next where the winner refuses.
func (r simResult) choose(bid attest.Digest, peers []simPeer) simResult {
	fake := map[attest.Key]bool{}
	var best attest.Key
	for _, p := range peers {
		fake[p.key] = p.fake
		if s := auction.Score(p.price, auction.ThetaStateless, p.mean); p.offers && !p.fake && s < r.best {
			r.best, best = s, p.key
		}
	}
	r.entries = r.book.Entries()
	r.bestKept = slices.ContainsFunc(r.entries, func(e auction.Entry) bool { return e.Offer.Provider == best })
	for _, e := range auction.Clear(bid, r.entries) {
		if !fake[e.Offer.Provider] {
			r.award = &e
			break
		}
		r.refused++
	}
	return r
}

// heldBytes returns how much memory what f returns holds, by what the collector finds.
func heldBytes(f func() any) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one freed is swept
	runtime.ReadMemStats(&before)
	held := f()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(held)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

func bidOf(seed uint64) attest.Digest { return attest.Sum(fmt.Append(nil, "crowd ", seed)) }

// TestCrowd holds auctions in crowds of 100, 1,000 and 10,000 providers. Whatever the crowd, what the renter takes in, reads,
// remembers and keeps is bounded. The best offer is that of all who would have offered. A renter with experience loses it
// only where it comes too late or is turned away; a new one takes the best of the few that have a seat.
func TestCrowd(t *testing.T) {
	t.Logf("%8s %8s | %7s %6s %7s %6s %8s %5s %7s | %9s %11s %8s", "crowd", "renter", "answers", "late", "away", "read", "declines", "kept", "KiB",
		"best kept", "award/best", "messages")
	for _, n := range []int{100, 1000, 10_000} {
		for _, known := range []int{veteran, 0} {
			auctions := min(100, 200_000/n)
			var sum simResult
			kept, bestKept, ratio, most := 0, 0, 0.0, simResult{}
			for seed := range uint64(auctions) {
				r := simulate(bidOf(seed), simCrowd(rand.New(rand.NewPCG(seed, uint64(n))), n, known))
				sum.arrived, sum.late, sum.turnedAway = sum.arrived+r.arrived, sum.late+r.late, sum.turnedAway+r.turnedAway
				sum.read, sum.declines, kept = sum.read+r.read, sum.declines+r.declines, kept+len(r.entries)
				most.read, most.declines, most.arrived = max(most.read, r.read), max(most.declines, r.declines), max(most.arrived, r.arrived)
				if r.bestKept {
					bestKept++
				}
				if r.award == nil || len(r.entries) > auction.MaxKept {
					t.Fatalf("crowd %d, seed %d: award %v of %d kept", n, seed, r.award, len(r.entries))
				}
				ratio += float64(r.award.Score) / float64(r.best)
			}
			peers := simCrowd(rand.New(rand.NewPCG(0, uint64(n))), n, known)
			bytes := heldBytes(func() any { return simulate(bidOf(0), peers).book })
			runtime.KeepAlive(peers)
			who := "knows 40"
			if known == 0 {
				who = "new"
			}
			share := float64(bestKept) / float64(auctions)
			t.Logf("%8d %8s | %7d %6d %7d %6d %8d %5d %7d | %8.0f%% %11.3f %8d", n, who, sum.arrived/auctions, sum.late/auctions, sum.turnedAway/auctions,
				sum.read/auctions, sum.declines/auctions, kept/auctions, bytes>>10, 100*share, ratio/float64(auctions),
				auction.DirectCopies+sum.arrived/auctions+2)
			window := auction.Window(medianRTT)
			if limit := auction.MaxStreams + int(window/takeIn) + auction.DirectCopies; most.arrived > limit {
				t.Errorf("crowd %d: %d answers were taken in, at most %d can be", n, most.arrived, limit)
			}
			if most.read > known+auction.DirectCopies+auction.MaxDeclines+120 {
				t.Errorf("crowd %d: %d signatures were checked", n, most.read)
			}
			if most.declines > 2*auction.WantedDeclines {
				t.Errorf("crowd %d: %d declines came, about %d are wanted", n, most.declines, auction.WantedDeclines)
			}
			if bytes > 1<<20 {
				t.Errorf("crowd %d: a book of %d bytes", n, bytes)
			}
			// Of 10,000 at once, two in three are turned away, whoever they are: there the best is often among them.
			if known > 0 && share < 0.75 && n <= 1000 || known > 0 && share < 0.15 {
				t.Errorf("crowd %d: the best offer was kept in %.0f %% of the auctions", n, 100*share)
			}
			if r := ratio / float64(auctions); r > 1.3 || known > 0 && n <= 1000 && r > 1.05 {
				t.Errorf("crowd %d: the award costs %.2f times the best", n, r)
			}
		}
	}
}

// TestBookOfACrowd puts more keys into a book than any network has peers.
func TestBookOfACrowd(t *testing.T) {
	const n = 200_000
	bytes := heldBytes(func() any {
		b := auction.NewBook(auction.Rules{Bid: bidID, Theta: 3, MaxPrice: market.USD, StartWithin: time.Minute})
		for i := range uint64(n) {
			k := markettest.FakeKey(i)
			if i%2 == 0 && b.WantsDecline(k, false) {
				b.Decline(k, false)
			}
			if i%2 == 1 && b.WantsOffer(k, false, false) {
				b.Add(simPeer{key: k, price: 1, mean: 8000}.entry(bidID))
			}
		}
		if b.Received+b.Declined > 20_000 || b.Received < 9000 || b.Declined < 9000 || len(b.Entries()) != auction.StrangerSeats {
			t.Errorf("%d offers and %d declines counted, %d kept", b.Received, b.Declined, len(b.Entries()))
		}
		return b
	})
	t.Logf("a book of %d KiB after %d answers", bytes>>10, n)
	if bytes > 2<<20 {
		t.Errorf("a book of %d bytes", bytes)
	}
}

// ring returns the crowd with k keys of one owner added, whose offers are there at once.
func ring(peers []simPeer, k int, fake simPeer) []simPeer {
	out := slices.Clone(peers)
	for i := range k {
		f := fake
		f.key, f.rtt, f.mean, f.offers = simKeys[20_000+i], 5*time.Millisecond, 8000, true
		f.at = 5*time.Millisecond + time.Duration(i)*takeIn/2 // twice what the renter can take in, as long as there are keys
		out = append(out, f)
	}
	return out
}

// TestRing adds the keys of one owner to a crowd of 1,000: at once with their answers, and the cheapest. What they can have is
// the seats of strangers, and the streams.
func TestRing(t *testing.T) {
	const n = 1000
	t.Logf("%6s %-9s %8s | %7s %9s %14s %13s", "keys", "they", "renter", "seats", "refusals", "same provider", "score/before")
	for _, k := range []int{10, 100, 1000, 10_000} {
		auctions := 20
		if k > n {
			auctions = 6
		}
		for _, keeps := range []bool{false, true} {
			for _, known := range []int{veteran, 0} {
				seats, refusals, same, theirs := 0, 0, 0, 0
				ratio := 0.0
				price := market.MicroUSD(10_000) // nobody else can go as low
				if keeps {
					price = 230_000 // looks honest
				}
				for seed := range uint64(auctions) {
					peers := simCrowd(rand.New(rand.NewPCG(seed, n)), n, known)
					before := simulate(bidOf(seed), peers)
					after := simulate(bidOf(seed), ring(peers, k, simPeer{price: price, fake: !keeps}))
					for _, e := range after.entries {
						if slices.Contains(simKeys[20_000:20_000+k], e.Offer.Provider) {
							seats++
						}
					}
					refusals += after.refused
					if after.refused > auction.StrangerSeats {
						t.Fatalf("%d keys: %d awards were lost to one owner", k, after.refused)
					}
					if after.award == nil {
						t.Fatalf("%d keys: nobody won", k)
					}
					if slices.Contains(simKeys[20_000:20_000+k], after.award.Offer.Provider) {
						theirs++
					} else if after.award.Offer.Provider == before.award.Offer.Provider {
						same++
					}
					ratio += float64(after.award.Score) / float64(before.award.Score)
					checkDirect(t, peers, after)
				}
				they, who := "refuse", "knows 40"
				if keeps {
					they = "keep word"
				}
				if known == 0 {
					who = "new"
				}
				t.Logf("%6d %-9s %8s | %7.1f %9.1f %13d%% %13.3f  (%d%% of the awards are theirs)", k, they, who, float64(seats)/float64(auctions),
					float64(refusals)/float64(auctions), 100*same/auctions, ratio/float64(auctions), 100*theirs/auctions)
				// Up to as many keys as there are providers nothing changes for a renter with experience but the refusals. Ten
				// times as many fill the streams all the time, and what is left are the peers asked directly.
				few := known > 0 && k <= n
				if few && theirs > 0 || known > 0 && theirs > auctions/5 {
					t.Errorf("%d keys took %d awards from providers that the renter knows", k, theirs)
				}
				if r := ratio / float64(auctions); few && r > 1.05 || r > 1.4 {
					t.Errorf("%d keys: awards cost %.2f times as much as without them", k, r)
				}
			}
		}
	}
}

// checkDirect holds what no crowd may take away: the award is no worse than the offer of any honest peer that the renter
// asked directly.
func checkDirect(t *testing.T, peers []simPeer, r simResult) {
	t.Helper()
	for _, p := range peers {
		if s := auction.Score(p.price, auction.ThetaStateless, p.mean); p.direct && p.offers && !p.fake && r.award.Score > s {
			t.Fatalf("the award has score %d, an honest peer that was asked directly has %d", r.award.Score, s)
		}
	}
}

// TestLyingHub has a hub that passes the bid on to its friends alone. They offer as they like, and some refuse their awards.
// One direct copy reaches an honest stranger: whatever the friends do, the award is no worse than its offer.
func TestLyingHub(t *testing.T) {
	worst := 0.0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		known := []int{0, 3, auction.MaxKept - 2*auction.StrangerSeats}[rng.IntN(3)]
		peers := simCrowd(rng, 200, known)
		honest := -1
		for i := range peers { // the hub keeps the bid from all of them, and its friends crowd the asks
			peers[i].deaf = true
			if peers[i].direct && !peers[i].known && honest < 0 {
				honest = i
				peers[i].offers = true
			} else if !peers[i].known {
				peers[i].direct = false
			}
		}
		friends := 1 + rng.IntN(3000)
		top := 50_000 + rng.IntN(900_000)
		for i := range friends {
			peers = append(peers, simPeer{key: simKeys[20_000+i], rtt: 5 * time.Millisecond, mean: 8000, offers: rng.IntN(10) > 0,
				at: 5*time.Millisecond + time.Duration(i)*takeIn, price: market.MicroUSD(1 + rng.IntN(top)), fake: rng.IntN(3) > 0, direct: i < auction.DirectCopies-1})
		}
		r := simulate(bidOf(seed), peers)
		if r.award == nil {
			t.Fatalf("seed %d: nobody won", seed)
		}
		checkDirect(t, peers, r)
		worst = max(worst, float64(r.award.Score)/float64(auction.Score(peers[honest].price, auction.ThetaStateless, peers[honest].mean)))
		if !slices.ContainsFunc(r.entries, func(e auction.Entry) bool { return e.Offer.Provider == peers[honest].key }) {
			t.Fatalf("seed %d: the honest offer was not kept among %d", seed, len(r.entries))
		}
	}
	t.Logf("the worst award cost %.3f times the honest direct offer", worst)
}

// BenchmarkCrowd holds auctions over signed offers: what one costs the renter, beside the streams themselves.
func BenchmarkCrowd(b *testing.B) {
	bid := bidOf(1)
	for _, n := range []int{100, 1000, 10_000} {
		signed := make([]attest.Envelope, n)
		for i := range signed {
			s := markettest.Signer(uint64(i))
			o := markettest.Offer(s.Key(), bid)
			o.Price = market.MicroUSD(200_000 + i*37%400_000)
			signed[i] = markettest.Sign(b, s, market.OfferDomain, o)
		}
		known := func(i int) bool { return i%max(1, n/veteran) == 0 }
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			read, kept := 0, 0
			for b.Loop() {
				book := auction.NewBook(auction.Rules{Bid: bid, Theta: 3, MaxPrice: market.USD, StartWithin: time.Minute})
				for i, e := range signed {
					if !book.WantsOffer(e.Signer, known(i), false) {
						continue
					}
					read++
					o, err := market.OpenOffer(e, markettest.NetworkID(), bid, markettest.Start())
					if err != nil {
						b.Fatal(err)
					}
					book.Add(auction.Entry{Envelope: e, Offer: o, MeanBP: 8000, Known: known(i)})
				}
				kept += len(auction.Clear(bid, book.Entries()))
			}
			b.ReportMetric(float64(read)/float64(b.N), "checks/op")
			b.ReportMetric(float64(kept)/float64(b.N), "kept/op")
			b.ReportMetric(float64(n+auction.DirectCopies+2), "messages/op")
		})
	}
}
