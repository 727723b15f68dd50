package market

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// MaxAnnounce is the longest time that one announcement of a bid may be passed on.
const MaxAnnounce = 90 * time.Second

// MaxDuration bounds the length of a lease.
const MaxDuration = 366 * 24 * time.Hour

// Bounds that bids, offers, leases and specs share.
const (
	MinInterval = 200 * time.Millisecond // between two receipts
	MaxInterval = 10 * time.Minute
	MaxGrace    = time.Hour // notice that a job gets to write a checkpoint
)

// inMS reports whether a span of that many milliseconds lies between the two.
func inMS(ms uint64, least, most time.Duration) bool {
	return ms >= uint64(least.Milliseconds()) && ms <= uint64(most.Milliseconds())
}

// Nonce is 16 random bytes that make an object unlike any other.
type Nonce [16]byte

// Bid is a renter's demand in coarse terms, fit for everybody's eyes: no image, no budget, no price.
type Bid struct {
	Version       uint64     `cbor:"1,keyasint"`
	Renter        attest.Key `cbor:"2,keyasint"`
	Request       Nonce      `cbor:"3,keyasint"` // the same for each announcement of one demand
	Seq           uint64     `cbor:"4,keyasint"` // rises with each announcement, from 1
	IssuedAt      int64      `cbor:"5,keyasint"` // Unix ms
	AnnounceUntil int64      `cbor:"6,keyasint"` // Unix ms; nobody passes it on later
	ValidUntil    int64      `cbor:"7,keyasint"` // Unix ms; nobody answers later
	Workload      Workload   `cbor:"8,keyasint"`
	Count         uint64     `cbor:"9,keyasint"`            // devices, or CPU slots
	Class         string     `cbor:"10,keyasint"`           // vendor of the class wanted: "nv", "amd", "intel", "cpu", or "any" for any GPU
	Models        []string   `cbor:"11,keyasint,omitempty"` // canonical names; empty = any
	MemBytes      uint64     `cbor:"12,keyasint,omitempty"` // per device, 0 = no demand
	HostMemBytes  uint64     `cbor:"13,keyasint,omitempty"` // main memory of the job, 0 = no demand
	DurationMS    uint64     `cbor:"14,keyasint"`           // longest the job may take
	StartWithinMS uint64     `cbor:"15,keyasint"`           // latest start after the award
	Tier          Tier       `cbor:"16,keyasint"`           //
	Require       []Place    `cbor:"17,keyasint,omitempty"` // the provider lies in one of them; empty = anywhere
	GraceMS       uint64     `cbor:"18,keyasint,omitempty"` // notice the job needs to write a checkpoint
	ReplyTo       []string   `cbor:"19,keyasint,omitempty"` // multiaddrs of the renter
	DeclineBP     uint64     `cbor:"20,keyasint"`           // share of providers that may send a decline, basis points
	IntervalMS    uint64     `cbor:"21,keyasint"`           // between receipts
	Simulated     bool       `cbor:"22,keyasint,omitempty"` // simulated devices will do
}

// Validate reports values that no bid may have.
func (b Bid) Validate() error {
	switch {
	case b.Version != 1:
		return fmt.Errorf("bid version %d, want 1", b.Version)
	case b.Seq == 0 || b.Request == Nonce{}:
		return errors.New("bid: no request id or sequence")
	case b.IssuedAt <= 0 || b.AnnounceUntil <= b.IssuedAt || b.AnnounceUntil-b.IssuedAt > MaxAnnounce.Milliseconds():
		return errors.New("bid: announced longer than 90 s, or ends before it begins")
	case b.ValidUntil < b.AnnounceUntil || b.ValidUntil-b.IssuedAt > (7*24*time.Hour).Milliseconds():
		return errors.New("bid: valid longer than 7 days, or shorter than announced")
	case b.Workload != WASM:
		return fmt.Errorf("bid: %w workload %d", ErrUnknown, b.Workload)
	case b.Count == 0 || b.Count > MaxDevices:
		return fmt.Errorf("bid: want 1 to %d devices", MaxDevices)
	case b.DurationMS == 0 || b.DurationMS > uint64(MaxDuration.Milliseconds()) || b.StartWithinMS > uint64(MaxDuration.Milliseconds()):
		return errors.New("bid: duration out of range")
	case b.Tier < Gold || b.Tier > Bronze:
		return errors.New("bid: no tier")
	case b.MemBytes > MaxBytes || b.HostMemBytes > MaxBytes || !inMS(b.GraceMS, 0, MaxGrace):
		return errors.New("bid: size or grace out of range")
	case !inMS(b.IntervalMS, MinInterval, MaxInterval):
		return errors.New("bid: interval between receipts must be 200 ms to 600 s")
	case b.DeclineBP > 10_000:
		return errors.New("bid: decline rate above 10,000 basis points")
	case len(b.Models) > 8 || len(b.Require) > 8 || len(b.ReplyTo) > 8 || len(b.Class) > 8:
		return errors.New("bid: lists too long")
	}
	for _, m := range b.Models {
		if m == "" || len(m) > 64 {
			return errors.New("bid: model name empty or too long")
		}
	}
	for _, a := range b.ReplyTo {
		if len(a) > MaxAddrBytes {
			return errors.New("bid: address too long")
		}
	}
	for _, p := range b.Require {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Duration returns the longest the job may take.
func (b Bid) Duration() time.Duration { return time.Duration(b.DurationMS) * time.Millisecond }

// OpenBid verifies and decodes a bid, whose signer must be the renter it names, and holds its times against now. It
// returns an error that wraps [ErrExpired] when nobody should pass it on or answer it any more.
func OpenBid(e attest.Envelope, network attest.Digest, now time.Time) (Bid, error) {
	b, err := attest.Open[Bid](e, network, BidDomain)
	if err != nil {
		return b, err
	}
	if b.Renter != e.Signer {
		return b, fmt.Errorf("%w: bid of %s signed by %s", attest.ErrSignature, b.Renter, e.Signer)
	}
	return b, b.Fresh(now)
}

// Fresh holds the times of a bid against now. The error wraps [ErrExpired] when nobody should pass it on or answer it any
// more; any other says that it was issued in the future.
func (b Bid) Fresh(now time.Time) error {
	ms := now.UnixMilli()
	switch {
	case ms > b.AnnounceUntil+ClockTolerance.Milliseconds() || ms > b.ValidUntil+ClockTolerance.Milliseconds():
		return fmt.Errorf("bid: %w", ErrExpired)
	case b.IssuedAt > now.Add(ClockTolerance).UnixMilli():
		return errors.New("bid: issued in the future")
	}
	return nil
}
