package deal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
)

// Code is what a peer did with a message. 0 means not set.
type Code uint8

// The codes.
const (
	OK      Code = iota + 1 // taken in
	Closed                  // the auction is over, or the lease has ended otherwise
	Unknown                 // no such bid or lease here
	Refused                 // the message does not hold: signature, terms or numbers
)

var codeNames = [...]string{OK: "ok", Closed: "closed", Unknown: "unknown", Refused: "refused"}

// String returns the code's name.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// Limits of single messages.
const (
	// MaxReceipts is the most receipts in one message.
	MaxReceipts = 64
	// maxReceiptBytes is the room for receipts in one frame, beside an outcome.
	maxReceiptBytes = 48 << 10
	// envelopeOverhead is the encoding of an envelope with an empty payload, rounded up: signature 66, key 34, domain
	// 66, lengths and keys.
	envelopeOverhead = 180
)

// largest are the limits of payloads, in bytes; a receipt has the limit of all envelopes.
var largest = map[attest.Domain]int{
	market.BidDomain: market.MaxBidBytes, market.OfferDomain: market.MaxOfferBytes, market.DeclineDomain: market.MaxDeclineBytes,
	market.AwardDomain: market.MaxLeaseBytes, market.AcceptDomain: market.MaxLeaseBytes, market.VoucherDomain: market.MaxVoucherBytes,
	market.OutcomeRenterDomain: market.MaxOutcomeBytes, market.OutcomeProviderDomain: market.MaxOutcomeBytes,
	receipt.Domain: attest.MaxEnvelope,
}

// check reports an envelope that is malformed, of none of the domains, or larger than any of its domain.
func check(what string, e attest.Envelope, domains ...attest.Domain) error {
	if err := e.Validate(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !slices.Contains(domains, e.Domain) {
		return fmt.Errorf("%s: %w: %.64q", what, attest.ErrDomain, e.Domain)
	}
	if n, most := len(e.Payload), largest[e.Domain]; n > most {
		return fmt.Errorf("%s of %d bytes, at most %d", what, n, most)
	}
	return nil
}

type bidRequest struct {
	Bid attest.Envelope `cbor:"1,keyasint"`
}

// Validate reports what is no bid.
func (r bidRequest) Validate() error {
	return check("bid", r.Bid, market.BidDomain)
}

type bidAnswer struct {
	Answer *attest.Envelope `cbor:"1,keyasint,omitempty"` // nil = no answer
}

// Validate reports what is no answer to a bid.
func (a bidAnswer) Validate() error {
	if a.Answer == nil {
		return nil
	}
	return check("answer", *a.Answer, market.OfferDomain, market.DeclineDomain)
}

type answerRequest struct {
	Answer attest.Envelope `cbor:"1,keyasint"`
}

// Validate reports what is no answer to a bid.
func (r answerRequest) Validate() error {
	return check("answer", r.Answer, market.OfferDomain, market.DeclineDomain)
}

type ack struct {
	Code Code `cbor:"1,keyasint"`
}

// Validate reports an acknowledgement that says nothing.
func (a ack) Validate() error {
	if a.Code == 0 {
		return errors.New("acknowledgement without a code")
	}
	return nil
}

type awardRequest struct {
	Award attest.Envelope `cbor:"1,keyasint"`
	Terms []byte          `cbor:"2,keyasint"`
}

// Validate reports what is no award.
func (r awardRequest) Validate() error {
	if len(r.Terms) == 0 || len(r.Terms) > market.MaxTermsBytes {
		return fmt.Errorf("award: terms of %d bytes, want 1 to %d", len(r.Terms), market.MaxTermsBytes)
	}
	return check("award", r.Award, market.AwardDomain)
}

type awardAnswer struct {
	Answer attest.Envelope `cbor:"1,keyasint"`
}

// Validate reports what is no answer to an award.
func (a awardAnswer) Validate() error {
	return check("answer to an award", a.Answer, market.AcceptDomain, market.DeclineDomain)
}

// Ending is how a lease ended for one side, and the receipts that the other side may lack.
type Ending struct {
	Outcome  attest.Envelope   `cbor:"1,keyasint"`           // signed by the sender in its role
	Receipts []attest.Envelope `cbor:"2,keyasint,omitempty"` // in the order of the chain
}

// Validate reports what is no ending, or more than one message carries.
func (e Ending) Validate() error {
	if len(e.Receipts) > MaxReceipts {
		return fmt.Errorf("%d receipts, at most %d", len(e.Receipts), MaxReceipts)
	}
	for _, r := range e.Receipts {
		if err := check("receipt", r, receipt.Domain); err != nil {
			return err
		}
	}
	return check("outcome", e.Outcome, market.OutcomeRenterDomain, market.OutcomeProviderDomain)
}

// Settlement is the answer to an [Ending]: what the other side did with it, its last voucher if it is the renter, and
// its own outcome if it has signed one. Nil means none.
type Settlement struct {
	Code    Code             `cbor:"1,keyasint"`
	Voucher *attest.Envelope `cbor:"2,keyasint,omitempty"`
	Outcome *attest.Envelope `cbor:"3,keyasint,omitempty"`
}

// Validate reports what is no settlement.
func (s Settlement) Validate() error {
	if s.Code == 0 {
		return errors.New("settlement without a code")
	}
	if s.Voucher != nil {
		if err := check("voucher", *s.Voucher, market.VoucherDomain); err != nil {
			return err
		}
	}
	if s.Outcome != nil {
		return check("outcome", *s.Outcome, market.OutcomeRenterDomain, market.OutcomeProviderDomain)
	}
	return nil
}
