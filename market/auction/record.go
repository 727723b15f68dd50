package auction

import (
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// ClosedBy says what ended an auction's window.
type ClosedBy string

// What ends a window.
const (
	ByWindow ClosedBy = "window"
	ByEarly  ClosedBy = "early_offer"
)

// MaxDeclines bounds the declines that a record keeps; all are counted.
const MaxDeclines = 64

// Record is one whole auction: everything that the choice was made from, so that anyone who trusts the renter's view
// of its peers (MeanBP) can make it again.
type Record struct {
	Bid          attest.Envelope   `cbor:"1,keyasint"`
	OpenedAt     int64             `cbor:"2,keyasint"` // Unix ms
	WindowMS     uint64            `cbor:"3,keyasint"`
	TookMS       uint64            `cbor:"4,keyasint"`
	ClosedBy     ClosedBy          `cbor:"5,keyasint"`
	Reference    market.MicroUSD   `cbor:"6,keyasint"` // 0 = none
	Theta        uint64            `cbor:"7,keyasint"`
	MaxPrice     market.MicroUSD   `cbor:"8,keyasint"`
	StartWithin  uint64            `cbor:"9,keyasint"` // ms
	Providers    []attest.Key      `cbor:"10,keyasint,omitempty"`
	Exclude      []attest.Key      `cbor:"11,keyasint,omitempty"`
	Entries      []Entry           `cbor:"12,keyasint"`
	Received     uint64            `cbor:"13,keyasint"` // peers that offered, also those not kept
	Declines     []attest.Envelope `cbor:"14,keyasint"`
	DeclineCount uint64            `cbor:"15,keyasint"` // peers that declined; of those without evidence, counted unread beyond MaxDeclines
	Heard        uint64            `cbor:"16,keyasint"` // peers known on the bid's topics, and those with a direct copy
	Refusals     []attest.Envelope `cbor:"17,keyasint"` // signed refusals of awards, in order
	Award        *attest.Key       `cbor:"18,keyasint,omitempty"`
	Lease        *attest.Digest    `cbor:"19,keyasint,omitempty"`
	DryRun       bool              `cbor:"20,keyasint,omitempty"`
	Failed       []attest.Key      `cbor:"21,keyasint,omitempty"` // awarded, but they did not answer
	// Follows is set where the choice was made again, among the runners-up: the lease whose provider was lost. Failed then
	// names that provider too, and those whose offers did not bind any more.
	Follows *attest.Digest `cbor:"22,keyasint,omitempty"`

	Latency       uint64      `cbor:"23,keyasint,omitempty"` // longest round trip in ms; 0 = any
	Unreached     []Unreached `cbor:"24,keyasint,omitempty"` // passed over before an award, in order
	ReceivedKnown uint64      `cbor:"25,keyasint,omitempty"` // of Received, peers of whom there is own evidence
	DeclinedKnown uint64      `cbor:"26,keyasint,omitempty"` // of DeclineCount, the same
	Stopped       bool        `cbor:"27,keyasint,omitempty"` // the job was stopped before all who could win were asked
}

// Unreached is a peer that ranked first among those left and was passed over, since the renter found no way to it that
// carries a job. Nothing was signed to it.
type Unreached struct {
	Peer   attest.Key `cbor:"1,keyasint"`
	Reason string     `cbor:"2,keyasint"` // RelayLimited or CannotReach
}

// Why a peer was passed over.
const (
	RelayLimited = "relay_limited" // only a relay that carries signalling leads there
	CannotReach  = "unreachable"   // nothing does any more
)

// Take fills in what the book holds by now.
func (r *Record) Take(b *Book) {
	r.Entries, r.Received, r.ReceivedKnown = b.Entries(), uint64(b.Received), uint64(b.ReceivedKnown)
	r.DeclineCount, r.DeclinedKnown = uint64(b.Declined), uint64(b.DeclinedKnown)
}

// Decode fills the decoded offers of a record that came from the store.
func (r *Record) Decode() error {
	for i := range r.Entries {
		o, err := attest.Decode[market.Offer](r.Entries[i].Envelope)
		if err != nil {
			return err
		}
		r.Entries[i].Offer = o
	}
	return nil
}

// Rules returns the renter's conditions of the auction. If the bid cannot be decoded, offers are not held against it.
func (r Record) Rules() Rules {
	demand, err := attest.Decode[market.Bid](r.Bid)
	if err != nil {
		demand = market.Bid{}
	}
	return Rules{Bid: r.Bid.ID(), Theta: r.Theta, MaxPrice: r.MaxPrice, StartWithin: msDuration(r.StartWithin),
		Latency: msDuration(r.Latency), Providers: r.Providers, Exclude: r.Exclude, Demand: demand}
}

// Recompute makes the choice again from the signed offers and holds it against the record. It verifies every
// signature, every score, and that each peer ranked before the winner refused in writing or, as the record states, did
// not answer or could not be reached. It returns nil if the record explains its award. The record does not hold the awards, so that a refusal
// counts by its signer; offers that were dropped from the record, or peers that were wrongly listed as silent, cannot be
// seen.
func (r Record) Recompute(network attest.Digest) error {
	bid := r.Bid.ID()
	if _, err := attest.Open[market.Bid](r.Bid, network, market.BidDomain); err != nil {
		return err
	}
	entries, err := r.recomputeEntries(network)
	if err != nil {
		return err
	}
	passed, err := r.passed(network)
	if err != nil {
		return err
	}
	for _, e := range Clear(bid, entries) {
		if passed[e.Offer.Provider] {
			continue
		}
		if r.Award == nil {
			if r.DryRun || r.Stopped {
				return nil
			}
			return fmt.Errorf("offer of %s could win, but nobody did", e.Offer.Provider.Short())
		}
		if *r.Award != e.Offer.Provider {
			return fmt.Errorf("%s won, but %s ranks first", r.Award.Short(), e.Offer.Provider.Short())
		}
		return nil
	}
	if r.Award != nil {
		return fmt.Errorf("%s won, but made no acceptable offer", r.Award.Short())
	}
	return nil
}

// recomputeEntries verifies, scores and judges the offers again and returns them as long as nothing differs.
func (r Record) recomputeEntries(network attest.Digest) ([]Entry, error) {
	bid, rules := r.Bid.ID(), r.Rules()
	seen := make(map[attest.Key]bool, len(r.Entries))
	entries := make([]Entry, 0, len(r.Entries))
	for _, e := range r.Entries {
		o, err := attest.Open[market.Offer](e.Envelope, network, market.OfferDomain)
		switch {
		case err != nil:
			return nil, err
		case o.Bid != bid || o.Provider != e.Envelope.Signer:
			return nil, fmt.Errorf("offer of %s answers another bid, or was signed by another peer", o.Provider.Short())
		case seen[o.Provider]:
			return nil, fmt.Errorf("offer of %s stands in it twice", o.Provider.Short())
		}
		seen[o.Provider] = true
		again := e
		again.Offer = o
		again = rules.rate(again)
		if again.Score != e.Score || again.Excluded != e.Excluded || again.SurchargeBP != e.SurchargeBP {
			return nil, fmt.Errorf("offer of %s: score %d (%q, surcharge %d) kept, %d (%q, surcharge %d) computed", o.Provider.Short(),
				e.Score, e.Excluded, e.SurchargeBP, again.Score, again.Excluded, again.SurchargeBP)
		}
		entries = append(entries, again)
	}
	return entries, nil
}

// passed returns the peers that came first and refused, did not answer, or could not be reached.
func (r Record) passed(network attest.Digest) (map[attest.Key]bool, error) {
	passed := map[attest.Key]bool{}
	for _, e := range r.Refusals {
		d, err := attest.Open[market.Decline](e, network, market.DeclineDomain)
		if err != nil {
			return nil, err
		}
		if d.Provider != e.Signer || d.About == r.Bid.ID() {
			return nil, fmt.Errorf("the decline of %s is no refusal of an award", d.Provider.Short())
		}
		passed[e.Signer] = true
	}
	for _, k := range r.Failed {
		passed[k] = true
	}
	for _, u := range r.Unreached {
		if u.Reason != RelayLimited && u.Reason != CannotReach {
			return nil, fmt.Errorf("%s was passed over for %.40q, which is no reason", u.Peer.Short(), u.Reason)
		}
		passed[u.Peer] = true
	}
	return passed, nil
}
