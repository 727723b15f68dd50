// Package auction clears one bid: sealed offers and scores give an award and its runners-up.
//
// It is a first-score auction with pay-what-was-offered. An offer's score is the expected cost under retry,
//
//	score = price · (1 + θ·(1−m)/m)
//
// with m the mean success rate of its provider in the renter's own eyes and θ the cost of one failed interval in
// interval prices. The price is first raised by what the way to the provider costs, see [Rules.Surcharge]. Lower is
// better; ties go to the earlier start, then to the lower key. All numbers are integers, so that the same offers give the
// same award on any machine, and [Record] keeps all that is needed to compute it again.
//
// A [Book] collects the answers as they come and keeps a bounded number of them, whatever the crowd; [Window] says how
// long, [DeclineBP] how many may decline. The package is pure; a Book is not safe for concurrent use.
package auction

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// θ by kind of job, in prices of one interval.
const (
	ThetaStateless    = 3
	ThetaCheckpointed = 5
	ThetaOther        = 20
)

// Theta returns the cost of one failed interval for the spec: its own, or by whether it saves checkpoints. A WASM job
// is deterministic, but a long one loses all it did.
func Theta(s market.Spec) uint64 {
	switch {
	case s.Theta > 0:
		return s.Theta
	case s.Checkpoint != "":
		return ThetaCheckpointed
	case s.Duration <= 10*time.Minute:
		return ThetaStateless
	}
	return ThetaOther
}

// Bounds of an auction.
const (
	MaxKept       = 32  // offers kept, the best by score
	StrangerSeats = 8   // of these, seats that keys without own evidence share, see [Keep]
	DirectCopies  = 8   // peers that get the bid directly
	MaxStreams    = 512 // answers that a renter takes in at once, over all its auctions
	minWindow     = 250 * time.Millisecond
	maxWindow     = 2 * time.Second
)

// Window returns how long the auction stays open: four times the median round trip, between 250 ms and 2 s. Without a
// measurement (0) it is 1 s.
func Window(medianRTT time.Duration) time.Duration {
	if medianRTT <= 0 {
		return time.Second
	}
	return min(max(4*medianRTT, minWindow), maxWindow)
}

// Entry is one offer in an auction, with what the renter made of it.
type Entry struct {
	Envelope  attest.Envelope `cbor:"1,keyasint"`
	Offer     market.Offer    `cbor:"-"`
	MeanBP    uint64          `cbor:"2,keyasint"` // m in basis points
	Known     bool            `cbor:"3,keyasint"` // the renter has own evidence on the provider
	Score     uint64          `cbor:"4,keyasint"`
	ArrivedMS uint64          `cbor:"5,keyasint"`           // after the auction opened; after its window where the bid waited
	Excluded  string          `cbor:"6,keyasint,omitempty"` // why it cannot win, snake_case; empty = it can

	// What the renter found out about the way to the provider, and about what it states.
	RTTMS       uint64       `cbor:"7,keyasint,omitempty"`  // round trip as measured, rounded up; 0 = not measured
	Path        market.Reach `cbor:"8,keyasint,omitempty"`  // how the connection to it runs; 0 = not looked at
	SurchargeBP uint64       `cbor:"9,keyasint,omitempty"`  // on the price, by RTTMS and Path
	Direct      bool         `cbor:"10,keyasint,omitempty"` // the renter chose to send it the bid itself
	PlaceFault  bool         `cbor:"11,keyasint,omitempty"` // it cannot be where it says it is; MeanBP is halved for that
}

// own reports whether the renter chose the peer, by experience or by a direct copy: no crowd can make more of these.
func (e Entry) own() bool { return e.Known || e.Direct }

// Score returns price·(1 + θ·(1−m)/m), rounded down, for m in basis points (at least 1), or the largest number when it
// does not fit.
func Score(price market.MicroUSD, theta, meanBP uint64) uint64 {
	m := min(max(meanBP, 1), 10_000)
	over, risk := bits.Mul64(theta, 10_000-m)
	factor, carry := bits.Add64(risk, m, 0)
	hi, lo := bits.Mul64(uint64(price), factor)
	if over != 0 || carry != 0 || hi >= m {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, m)
	return q
}

// What the way to a provider costs, in basis points of its price. The path's share is known to be small: it stands for
// expected trouble, never for a rule. Latency counts only where the renter set a limit.
const (
	// LatencyBP is the surcharge of a provider at the renter's latency limit; at no latency it is 0, and between it grows
	// evenly. A renter that cares gives a twentieth of the price for the whole span, no more.
	LatencyBP = 500
	// PunchedBP is the surcharge of a hole-punched path: two routers must keep it open, and when one forgets, a new one
	// takes 5 to 10 s, which is about a fiftieth of a short job.
	PunchedBP = 200
	// RelayedBP is the surcharge of a path through a relay that carries data: a third party's bandwidth, caps and uptime
	// come on top of the provider's own.
	RelayedBP = 500
)

// Surcharged returns the price raised by that many basis points, rounded up; at most the largest number.
func Surcharged(price market.MicroUSD, bp uint64) market.MicroUSD {
	hi, lo := bits.Mul64(uint64(price), bp)
	if hi >= 10_000 {
		return math.MaxUint64
	}
	q, rem := bits.Div64(hi, lo, 10_000)
	if rem > 0 {
		q++
	}
	sum, carry := bits.Add64(uint64(price), q, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return market.MicroUSD(sum)
}

// Rules are the renter's own conditions, which no provider sees.
type Rules struct {
	Bid         attest.Digest
	Theta       uint64
	MaxPrice    market.MicroUSD
	StartWithin time.Duration
	Latency     time.Duration // longest round trip, as measured; 0 = any, and then it does not count
	Providers   []attest.Key  // only these; empty = anyone
	Exclude     []attest.Key
	Demand      market.Bid // what the offers must answer; of version 0 = not held against them
}

// Judge returns why the offer cannot win, "" if it can.
func (r Rules) Judge(e Entry) string {
	o := e.Offer
	switch {
	case r.Demand.Version != 0 && o.Answers(r.Demand) != nil:
		return "differs_from_bid"
	case o.Price > r.MaxPrice:
		return "price_above_limit"
	case msDuration(o.StartInMS) > r.StartWithin:
		return "starts_too_late"
	case len(r.Providers) > 0 && !slices.Contains(r.Providers, o.Provider):
		return "not_among_providers"
	case slices.Contains(r.Exclude, o.Provider):
		return "excluded"
	case e.PlaceFault && len(r.Demand.Require) > 0:
		return "impossible_place"
	case r.Latency > 0 && e.RTTMS == 0:
		return "latency_unknown"
	case r.Latency > 0 && e.RTTMS > uint64(r.Latency.Milliseconds()):
		return "too_far"
	}
	return ""
}

// Surcharge returns what the way to the provider adds to its price, in basis points.
func (r Rules) Surcharge(e Entry) uint64 {
	var bp uint64
	if limit := uint64(r.Latency.Milliseconds()); limit > 0 {
		bp = LatencyBP * min(e.RTTMS, limit) / limit
	}
	switch e.Path {
	case market.ReachPunched:
		bp += PunchedBP
	case market.ReachRelayed:
		bp += RelayedBP
	}
	return bp
}

// rate fills in what follows from the offer and from what was measured.
func (r Rules) rate(e Entry) Entry {
	e.SurchargeBP = r.Surcharge(e)
	e.Score = Score(Surcharged(e.Offer.Price, e.SurchargeBP), r.Theta, e.MeanBP)
	e.Excluded = r.Judge(e)
	return e
}

// better is the order of the auction: those that can win first, then score, earlier start, lower key.
func better(a, b Entry) bool {
	switch {
	case (a.Excluded == "") != (b.Excluded == ""):
		return a.Excluded == ""
	case a.Score != b.Score:
		return a.Score < b.Score
	case a.Offer.StartInMS != b.Offer.StartInMS:
		return a.Offer.StartInMS < b.Offer.StartInMS
	}
	return bytes.Compare(a.Offer.Provider[:], b.Offer.Provider[:]) < 0
}

// Clear returns the entries that can win, best first: the winner and its runners-up. It is empty if no offer is
// acceptable.
func Clear(bid attest.Digest, entries []Entry) []Entry {
	kept := Keep(bid, entries)
	for i, e := range kept {
		if e.Excluded != "" {
			return kept[:i]
		}
	}
	return kept
}

// ClosesEarly reports whether an offer ends the auction before its window does: it comes from a provider of whom the
// renter has own evidence, it can win, and it asks no more than the renter's reference price (0 = none, never early).
func ClosesEarly(e Entry, reference market.MicroUSD) bool {
	return e.Known && e.Excluded == "" && reference > 0 && e.Offer.Price <= reference
}

// Reference returns the median of recent clearing prices, the lower of the two middle ones of an even number, 0 for none.
func Reference(recent []market.MicroUSD) market.MicroUSD {
	if len(recent) == 0 {
		return 0
	}
	s := append([]market.MicroUSD(nil), recent...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	return s[(len(s)-1)/2]
}

func msDuration(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }
