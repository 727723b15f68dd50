package market

import (
	"errors"
	"fmt"
	"sort"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
)

// Code says how a lease ended. 0 means not set.
type Code uint8

// The ways a lease ends.
const (
	CodeDone          Code = iota + 1 // the job ran to its end, whatever its exit code
	CodeRenterCancel                  // the renter stopped it
	CodeProviderAbort                 // the provider could not or would not go on
	CodeLost                          // the other side was not seen again
	CodeLimit                         // the job ran into one of its own limits
	CodeUnpaid                        // vouchers did not come
)

var codeNames = [...]string{CodeDone: "done", CodeRenterCancel: "renter_cancel", CodeProviderAbort: "provider_abort",
	CodeLost: "lost", CodeLimit: "limit", CodeUnpaid: "unpaid"}

// String returns the code's name in JSON.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// MarshalText returns the code's name.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// ProviderFault reports whether an end of that kind counts against the provider.
func (c Code) ProviderFault() bool { return c == CodeProviderAbort || c == CodeLost }

// Outcome is how a lease ended. Both sides sign the same bytes when both are there; an outcome that only one side
// signed weighs less.
type Outcome struct {
	Version     uint64         `cbor:"1,keyasint"`
	Lease       attest.Digest  `cbor:"2,keyasint"`
	LastSeq     uint64         `cbor:"3,keyasint"` // number of the last receipt, 0 = none
	Head        attest.Digest  `cbor:"4,keyasint"` // its id
	Due         MicroUSD       `cbor:"5,keyasint"` // P(Cum)
	Vouched     MicroUSD       `cbor:"6,keyasint"` // total of the last voucher
	Cum         gpu.Usage      `cbor:"8,keyasint"`
	EndedAt     int64          `cbor:"9,keyasint"` // Unix ms
	Code        Code           `cbor:"10,keyasint"`
	Out         *attest.Digest `cbor:"11,keyasint,omitempty"` // digest of the outputs, when the job ran to its end
	LastVoucher attest.Digest  `cbor:"15,keyasint"`           // id of the last voucher, zero = none
	ExitCode    *uint64        `cbor:"16,keyasint,omitempty"` // the job's own, when it ran to its end
	Reason      string         `cbor:"17,keyasint,omitempty"` // snake_case detail such as memory_limit
}

// Validate reports values that no outcome may have.
func (o Outcome) Validate() error {
	switch {
	case o.Version != 1 || o.Lease.IsZero() || o.EndedAt <= 0:
		return errors.New("outcome: wrong version or a missing field")
	case o.Code < CodeDone || o.Code > CodeUnpaid || len(o.Reason) > 64:
		return errors.New("outcome: unknown code, or too long a reason")
	case o.Cum.Validate() != nil:
		return fmt.Errorf("outcome: %w", o.Cum.Validate())
	case o.Due > MaxAmount || o.Vouched > o.Due:
		return errors.New("outcome: more promised than due")
	}
	return nil
}

// OpenOutcome verifies and decodes an outcome as signed by that party of the lease.
func OpenOutcome(e attest.Envelope, network, lease attest.Digest, l Lease) (Outcome, error) {
	d := OutcomeProviderDomain
	if e.Signer == l.Renter {
		d = OutcomeRenterDomain
	} else if e.Signer != l.Provider {
		return Outcome{}, fmt.Errorf("%w: outcome signed by %s, who is not a party", attest.ErrSignature, e.Signer)
	}
	o, err := attest.Open[Outcome](e, network, d)
	if err == nil && o.Lease != lease {
		err = errors.New("outcome: of another lease")
	}
	return o, err
}

// OutputsDigest is the digest of a job's outputs: SHA-256 over a line "hex-digest size path\n" for each file, sorted by
// path.
func OutputsDigest(files []File) attest.Digest {
	sorted := append([]File(nil), files...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Path < sorted[j].Path })
	var b []byte
	for _, f := range sorted {
		b = fmt.Appendf(b, "%s %d %s\n", f.Digest.Hex(), f.Bytes, f.Path)
	}
	return attest.Sum(b)
}
