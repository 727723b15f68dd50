// Package auction clears one bid: sealed offers and scores give an award and its runners-up.
//
// It is a first-score auction with pay-what-was-offered. An offer's score is the expected cost under retry,
//
//	score = price · (1 + θ·(1−m)/m)
//
// with m the mean success rate of its provider in the renter's own eyes and θ the cost of one failed interval in
// interval prices. Lower is better; ties go to the earlier start, then to the lower key. All numbers are integers, so
// that the same offers give the same award on any machine, and [Record] keeps all that is needed to compute it again.
//
// A [Book] collects the offers as they come and keeps a bounded number of them; [Window] says how long. The package is
// pure; a Book is not safe for concurrent use.
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
	MaxKept       = 32 // offers kept, the best by score
	StrangerSeats = 8  // of these, seats that keys without own evidence share, see [Keep]
	DirectCopies  = 8  // peers that get the bid directly
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
	ArrivedMS uint64          `cbor:"5,keyasint"`           // after the auction opened
	Excluded  string          `cbor:"6,keyasint,omitempty"` // why it cannot win, snake_case; empty = it can
}

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

// Rules are the renter's own conditions, which no provider sees.
type Rules struct {
	Bid         attest.Digest
	Theta       uint64
	MaxPrice    market.MicroUSD
	StartWithin time.Duration
	Providers   []attest.Key // only these; empty = anyone
	Exclude     []attest.Key
	Demand      market.Bid // what the offers must answer; of version 0 = not held against them
}

// Judge returns why the offer cannot win, "" if it can.
func (r Rules) Judge(o market.Offer) string {
	has := func(list []attest.Key) bool {
		for _, k := range list {
			if k == o.Provider {
				return true
			}
		}
		return false
	}
	switch {
	case r.Demand.Version != 0 && o.Answers(r.Demand) != nil:
		return "differs_from_bid"
	case o.Price > r.MaxPrice:
		return "price_above_limit"
	case time.Duration(o.StartInMS)*time.Millisecond > r.StartWithin:
		return "starts_too_late"
	case len(r.Providers) > 0 && !has(r.Providers):
		return "not_among_providers"
	case has(r.Exclude):
		return "excluded"
	}
	return ""
}

// Book collects the offers to one bid. What it keeps depends on the set of offers alone, not on their order, and it
// holds at most MaxKept + StrangerSeats of them. Use [NewBook].
type Book struct {
	rules Rules
	// Strangers are kept apart: one that has a seat but ranks too low now still keeps the seat from another stranger.
	known, strangers []Entry
	seen             map[attest.Key]bool
	Received         int // distinct providers that offered; of strangers the first maxSeen are counted
}

// NewBook returns an empty book.
func NewBook(r Rules) *Book { return &Book{rules: r, seen: map[attest.Key]bool{}} }

// maxSeen bounds what a crowd of made-up keys can make the renter remember. Known peers are few and always remembered.
const maxSeen = 20_000

// Repeated is why an offer is excluded whose provider offered before.
const Repeated = "repeated"

// Add scores an offer and keeps it if it is among the best. A provider's first offer counts; a later one is ignored and
// comes back with Excluded set to [Repeated].
func (b *Book) Add(e Entry) Entry {
	p := e.Offer.Provider
	e.Score = Score(e.Offer.Price, b.rules.Theta, e.MeanBP)
	e.Excluded = b.rules.Judge(e.Offer)
	mine := func(other Entry) bool { return other.Offer.Provider == p }
	if b.seen[p] || slices.ContainsFunc(b.strangers, mine) {
		e.Excluded = Repeated
		return e
	}
	if e.Known || len(b.seen) < maxSeen {
		b.seen[p] = true
		b.Received++
	}
	if e.Known {
		b.known = Keep(b.rules.Bid, append(b.known, e))
	} else {
		b.strangers = seated(b.rules.Bid, append(b.strangers, e))
	}
	return e
}

// Entries returns what is kept, best first. The slice is the caller's.
func (b *Book) Entries() []Entry { return Keep(b.rules.Bid, slices.Concat(b.known, b.strangers)) }

// Keep returns the entries that an auction keeps, best first: at most [MaxKept], among them at most [StrangerSeats] of
// keys without own evidence: of those that can win, then of the others, the ones with the lowest H(bid ‖ key), which no
// one can choose.
func Keep(bid attest.Digest, entries []Entry) []Entry {
	var out, strangers []Entry
	for _, e := range entries {
		if e.Known {
			out = append(out, e)
		} else {
			strangers = append(strangers, e)
		}
	}
	out = append(out, seated(bid, strangers)...)
	sort.SliceStable(out, func(i, j int) bool { return better(out[i], out[j]) })
	return out[:min(len(out), MaxKept)]
}

// seated returns the strangers that get a seat. An offer that cannot win takes none from one that can: a provider that
// the renter names would else be drawn out by a crowd that it did not ask for.
func seated(bid attest.Digest, strangers []Entry) []Entry {
	if len(strangers) <= StrangerSeats {
		return strangers
	}
	type place struct {
		seat attest.Digest
		i    int
	}
	places := make([]place, len(strangers))
	for i, e := range strangers {
		places[i] = place{attest.Sum(append(bid[:len(bid):len(bid)], e.Offer.Provider[:]...)), i}
	}
	sort.SliceStable(places, func(i, j int) bool {
		a, b := strangers[places[i].i].Excluded != "", strangers[places[j].i].Excluded != ""
		if a != b {
			return b
		}
		return bytes.Compare(places[i].seat[:], places[j].seat[:]) < 0
	})
	out := make([]Entry, StrangerSeats)
	for i := range out {
		out[i] = strangers[places[i].i]
	}
	return out
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
