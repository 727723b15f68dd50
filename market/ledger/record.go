package ledger

import (
	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
)

// Role is which side of a lease a peer is. 0 means not set.
type Role uint8

// The two sides.
const (
	Renter Role = iota + 1
	Provider
)

// String returns the role's name in JSON and in print.
func (r Role) String() string {
	switch r {
	case Renter:
		return "renter"
	case Provider:
		return "provider"
	}
	return "unknown"
}

// Abandoned is the reason of a lease that this side gave up because it may have signed something on it that it no longer
// has. Nothing is signed on it again, not even an outcome.
const Abandoned = "abandoned"

// Record is what one side keeps of a lease, beside its receipts, vouchers and outcomes. It is written before what it
// says is sent.
type Record struct {
	Role      Role              `cbor:"1,keyasint"`
	Award     attest.Envelope   `cbor:"2,keyasint"`
	Accept    attest.Envelope   `cbor:"3,keyasint"`
	Offer     attest.Envelope   `cbor:"4,keyasint"`
	Terms     []byte            `cbor:"5,keyasint"` // encoded [market.Terms]
	State     market.LeaseState `cbor:"6,keyasint"`
	AwardedAt int64             `cbor:"7,keyasint"`           // Unix ms
	ReadyAt   int64             `cbor:"8,keyasint,omitempty"` // first process start, 0 = never
	EndedAt   int64             `cbor:"9,keyasint,omitempty"` // 0 = in force
	Reason    string            `cbor:"10,keyasint,omitempty"`
	Job       string            `cbor:"11,keyasint,omitempty"` // the renter's job
	// Challenge is, for the renter, the one it gave last; for the provider, the one it echoes.
	Challenge receipt.Challenge `cbor:"12,keyasint"`
	// Addrs are the addresses under which the other side was last reached.
	Addrs []string `cbor:"14,keyasint,omitempty"`
	// LogBase is where this lease's output begins in the log of the renter's job.
	LogBase uint64 `cbor:"15,keyasint,omitempty"`
}

// Abandon gives the lease up at that time, in Unix ms.
func (r *Record) Abandon(at int64) { r.State, r.Reason, r.EndedAt = market.Lost, Abandoned, at }

// ID returns the lease's id.
func (r Record) ID() attest.Digest { return r.Award.ID() }

// Lease decodes the lease. The record was verified before it was written.
func (r Record) Lease() (market.Lease, error) { return attest.Decode[market.Lease](r.Award) }
