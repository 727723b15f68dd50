package bids_test

import (
	"crypto/ed25519"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// crowdKey returns the key of fresh renter i, who is no peer.
func crowdKey(i int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, "crowd")
	binary.BigEndian.PutUint64(seed[24:], uint64(i))
	return ed25519.NewKeyFromSeed(seed)
}

// signedBy returns the n-th message of a renter.
func signedBy(t testing.TB, key ed25519.PrivateKey, n uint64) ([]byte, market.Nonce) {
	t.Helper()
	b := announce(0, 1)
	b.Renter = attest.NewSigner(key, testNetwork).Key()
	binary.BigEndian.PutUint64(b.Request[:], n+1)
	copy(b.Request[8:], b.Renter[:])
	return signBid(t, key, b), b.Request
}

// shiftedBy is signedBy of a renter whose clock is that far ahead.
func shiftedBy(t testing.TB, key ed25519.PrivateKey, n uint64, ahead time.Duration) []byte {
	t.Helper()
	b := announce(0, 1)
	b.Renter = attest.NewSigner(key, testNetwork).Key()
	binary.BigEndian.PutUint64(b.Request[:], n+1)
	ms := ahead.Milliseconds()
	b.IssuedAt, b.AnnounceUntil, b.ValidUntil = b.IssuedAt+ms, b.AnnounceUntil+ms, b.ValidUntil+ms
	return signBid(t, key, b)
}

func signBid(t testing.TB, key ed25519.PrivateKey, b market.Bid) []byte {
	t.Helper()
	e, err := attest.NewSigner(key, testNetwork).Sign(market.BidDomain, b)
	if err != nil {
		t.Fatal(err)
	}
	data, err := attest.MarshalEnvelope(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// arrivals are when bids came to whom.
type arrivals struct {
	mu    sync.Mutex
	sent  map[market.Nonce]time.Time
	delay map[market.Nonce][]time.Duration
}

func (a *arrivals) hear(c <-chan bids.Heard) {
	for h := range c {
		now := time.Now()
		a.mu.Lock()
		if at, ok := a.sent[h.Bid.Request]; ok {
			a.delay[h.Bid.Request] = append(a.delay[h.Bid.Request], now.Sub(at))
		}
		a.mu.Unlock()
	}
}

// result is how honest bids fared.
type result struct {
	share    float64 // of all deliveries that should have been
	p50, p95 time.Duration
	dropped  map[string]uint64
}

// attack says what attackers do while honest bids are announced.
type attack struct {
	peers   int                                 // attackers, each beside 10 honest peers
	perSec  int                                 // messages a second, all attackers together
	message func(t testing.TB, n uint64) []byte // the n-th
	known   bool                                // the honest renters have evidence

	name      string
	perMinute int    // the limit of one renter
	why       string // what most of it is dropped for
	hopeless  bool   // honest bids are served by chance
}

const (
	floodPeers   = 50
	floodSeconds = 8
	honestBids   = 20
)

// flood returns how honest bids fare among 50 peers at 50 ms RTT and 20 Mbit/s, of which each has about 8 neighbours.
func flood(t *testing.T, a attack) (r result) {
	synctest.Test(t, func(t *testing.T) {
		w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{Mbps: 20}), t: t}
		defer w.close()
		renters := make(map[attest.Key]bool)
		score := func(k attest.Key) float64 {
			if a.known && renters[k] {
				return 1
			}
			return 0
		}
		for i := range honestBids {
			renters[attest.NewSigner(crowdKey(1e6+i), testNetwork).Key()] = true
		}
		for range floodPeers {
			w.add(p2p.Testnet, bids.Options{Score: score, PerMinute: a.perMinute})
		}
		w.connectRandomly(4)
		var attackers []*bids.Attacker
		for i := range a.peers {
			at, err := bids.NewAttacker(w.Add(p2p.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			defer at.Close()
			attackers = append(attackers, at)
			for j := range 10 {
				w.Connect(w.Host(floodPeers+i), w.Host((i*17+j*5)%floodPeers))
			}
		}
		arrived := &arrivals{sent: make(map[market.Nonce]time.Time), delay: make(map[market.Nonce][]time.Duration)}
		var hearing sync.WaitGroup
		for i := range floodPeers {
			c := w.subscribe(i, nv24[0])
			hearing.Go(func() { arrived.hear(c) })
		}
		time.Sleep(10 * time.Second) // the mesh forms
		start := time.Now()
		var attacking sync.WaitGroup
		for n := 0; a.perSec > 0 && n < a.perSec*floodSeconds; n++ {
			data := a.message(t, uint64(n))
			at := start.Add(time.Duration(n) * time.Second / time.Duration(a.perSec))
			attacking.Go(func() {
				time.Sleep(time.Until(at))
				if err := attackers[n%len(attackers)].Send(nv24[0], data); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Second) // the honest suffer what is left when buckets are empty
		for i := range honestBids {
			data, request := signedBy(t, crowdKey(1e6+i), 1)
			arrived.mu.Lock()
			arrived.sent[request] = time.Now()
			arrived.mu.Unlock()
			if err := w.gossip[i*7%floodPeers].Announce(t.Context(), nv24[0], data); err != nil {
				t.Error(err)
			}
			time.Sleep((floodSeconds - 5) * time.Second / honestBids)
		}
		attacking.Wait()
		time.Sleep(3 * time.Second)
		r = arrived.result(floodPeers)
		r.dropped = make(map[string]uint64)
		for _, g := range w.gossip {
			for why, n := range g.Stats().Dropped {
				r.dropped[why] += n
			}
		}
		for _, g := range w.gossip {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		w.gossip = nil
		hearing.Wait()
	})
	t.Logf("%.2f %% delivered, p50 %v, p95 %v, dropped %v", 100*r.share, r.p50, r.p95, r.dropped)
	return r
}

func (a *arrivals) result(peers int) result {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []time.Duration
	for _, d := range a.delay {
		all = append(all, d...)
	}
	if len(all) == 0 {
		return result{}
	}
	slices.Sort(all)
	return result{
		share: float64(len(all)) / float64(len(a.sent)*(peers-1)), p50: all[len(all)/2], p95: all[len(all)*95/100],
	}
}

// attacks are the attacks at scale/30 of the rates that RATIONALE.md speaks of, against peers whose limits are scaled alike.
func attacks(scale int) []attack {
	valid := func(keys uint64) func(testing.TB, uint64) []byte {
		return func(t testing.TB, n uint64) []byte {
			data, _ := signedBy(t, crowdKey(int(n%keys)), n)
			return data
		}
	}
	rate := func(perSec int) int { return perSec * scale / 30 }
	return []attack{
		{name: "calm", perMinute: scale},
		{name: "one key", perMinute: scale, peers: 1, perSec: rate(100), message: valid(1), why: "rate"},
		{name: "garbage", perMinute: scale, peers: 20, perSec: rate(400), why: "malformed", message: func(_ testing.TB, n uint64) []byte {
			return binary.BigEndian.AppendUint64([]byte("garbage"), n)
		}},
		{name: "fresh keys", perMinute: scale, peers: 3, perSec: rate(100), message: valid(uint64(rate(200))), why: "crowd"},
		{name: "a key for each bid, renters with evidence", perMinute: scale, peers: 3, perSec: rate(200), message: valid(1e6), known: true, why: "crowd"},
		{name: "a key for each bid, renters without", perMinute: scale, peers: 3, perSec: rate(200), message: valid(1e6), why: "crowd", hopeless: true},
	}
}

// TestFloodsDoNotStopHonestBids holds what RATIONALE.md says of floods, at a fifth of the rates.
func TestFloodsDoNotStopHonestBids(t *testing.T) {
	const rtt = 50 * time.Millisecond
	var calm result
	for _, a := range attacks(6) {
		if a.hopeless {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			r := flood(t, a)
			if a.why == "" {
				calm = r
			} else if r.dropped[a.why] == 0 {
				t.Error("the attack met no resistance")
			}
			if r.share < 0.99 {
				t.Errorf("%.2f %% of honest deliveries came, want 99 %%", 100*r.share)
			}
			if r.p95 == 0 || r.p95 > calm.p95+rtt {
				t.Errorf("p95 is %v, calm it is %v", r.p95, calm.p95)
			}
		})
	}
}
