package market

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// Domains of the objects of this package, one per object and role.
const (
	AskDomain             attest.Domain = "lacuna/ask/provider/1"
	BidDomain             attest.Domain = "lacuna/bid/renter/1"
	OfferDomain           attest.Domain = "lacuna/offer/provider/1"
	DeclineDomain         attest.Domain = "lacuna/decline/provider/1"
	AwardDomain           attest.Domain = "lacuna/lease/renter/1"   // the renter's signature over a lease
	AcceptDomain          attest.Domain = "lacuna/lease/provider/1" // the provider's signature over the same bytes
	VoucherDomain         attest.Domain = "lacuna/voucher/renter/1"
	OutcomeRenterDomain   attest.Domain = "lacuna/outcome/renter/1"
	OutcomeProviderDomain attest.Domain = "lacuna/outcome/provider/1"
)

// Sizes of the largest envelopes, in bytes. Streams hold payloads against them.
const (
	MaxAskBytes     = 4 << 10
	MaxBidBytes     = 1 << 10
	MaxOfferBytes   = 8 << 10 // an offer of MaxDevices devices
	MaxDeclineBytes = 3 << 10
	MaxLeaseBytes   = 4 << 10
	MaxVoucherBytes = 512
	MaxOutcomeBytes = 2 << 10
)

// MaxDevices is the largest number of devices in one bid, offer or lease.
const MaxDevices = 64

// MaxAskLife is the longest time from now until an ask expires.
const MaxAskLife = time.Hour

// ClockTolerance is the one tolerance for the wall clocks of other peers.
const ClockTolerance = 120 * time.Second

// ErrExpired means that an object's time is over.
var ErrExpired = errors.New("expired")

// Lot is a number of equal devices on sale at one lowest price.
type Lot struct {
	Model     string   `cbor:"1,keyasint" json:"model"`
	Class     string   `cbor:"2,keyasint" json:"class"`
	MemBytes  uint64   `cbor:"3,keyasint,omitempty" json:"mem_bytes,omitempty"` // per device; 0 = unknown
	Count     uint64   `cbor:"4,keyasint" json:"count"`
	Free      uint64   `cbor:"5,keyasint" json:"free"` // when the ask was made
	Price     MicroUSD `cbor:"6,keyasint" json:"price_per_gpu_hour_microusd"`
	Simulated bool     `cbor:"7,keyasint,omitempty" json:"simulated,omitempty"`
}

// Ask is a provider's standing advertisement.
type Ask struct {
	Version   uint64     `cbor:"1,keyasint"`
	Provider  attest.Key `cbor:"2,keyasint"`
	Seq       uint64     `cbor:"3,keyasint"` // the newest of a provider counts
	IssuedAt  int64      `cbor:"4,keyasint"` // Unix ms
	ExpiresAt int64      `cbor:"5,keyasint"` // Unix ms
	Lots      []Lot      `cbor:"6,keyasint"`
	Place     Place      `cbor:"7,keyasint"`
	Workloads []Workload `cbor:"8,keyasint"`
	Tiers     []Tier     `cbor:"9,keyasint"`
	Addrs     []string   `cbor:"10,keyasint"` // multiaddrs under which the provider can be reached
	Agent     string     `cbor:"11,keyasint"` // software and version
	Reach     Reach      `cbor:"12,keyasint,omitempty"`
}

// Validate reports values that no ask may have.
func (a Ask) Validate() error {
	switch {
	case a.Version != 1:
		return fmt.Errorf("ask version %d, want 1", a.Version)
	case a.IssuedAt <= 0 || a.ExpiresAt <= a.IssuedAt || a.ExpiresAt-a.IssuedAt > MaxAskLife.Milliseconds():
		return errors.New("ask: lives longer than an hour, or ends before it begins")
	case len(a.Lots) == 0 || len(a.Lots) > 16 || len(a.Workloads) > 8 || len(a.Tiers) > 3 || len(a.Addrs) > 16 || len(a.Agent) > 64:
		return errors.New("ask: lists are empty or too long")
	}
	for _, l := range a.Lots {
		if l.Count == 0 || l.Count > 4096 || l.Free > l.Count || l.Price == 0 || l.Price > MaxAmount || len(l.Model) > 64 || len(l.Class) > 16 {
			return fmt.Errorf("ask: lot %.64q is out of range", l.Model)
		}
	}
	for _, addr := range a.Addrs {
		if len(addr) > MaxAddrBytes {
			return errors.New("ask: address too long")
		}
	}
	if err := a.Reach.Validate(); err != nil {
		return err
	}
	return a.Place.Validate()
}

// OpenAsk verifies and decodes an ask, whose signer must be the provider it names, and holds its expiry against now.
func OpenAsk(e attest.Envelope, network attest.Digest, now time.Time) (Ask, error) {
	a, err := attest.Open[Ask](e, network, AskDomain)
	if err != nil {
		return a, err
	}
	if a.Provider != e.Signer {
		return a, fmt.Errorf("%w: ask of %s signed by %s", attest.ErrSignature, a.Provider, e.Signer)
	}
	if now.UnixMilli() >= a.ExpiresAt {
		return a, fmt.Errorf("ask: %w", ErrExpired)
	}
	if a.IssuedAt > now.Add(ClockTolerance).UnixMilli() {
		return a, errors.New("ask: issued in the future")
	}
	return a, nil
}
