package market

import (
	"errors"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
)

// Voucher is the renter's cumulative promise to pay on one lease. It accepts the receipts up to Ack, so that one
// signature pays and countersigns. Its total is exactly [Due] of what it acknowledges; anything below is void.
type Voucher struct {
	Version   uint64            `cbor:"1,keyasint"`
	Channel   Nonce             `cbor:"2,keyasint"` // the pair, see [Channel]
	Lease     attest.Digest     `cbor:"3,keyasint"`
	Seq       uint64            `cbor:"4,keyasint"` // from 1, rising
	Total     MicroUSD          `cbor:"5,keyasint"` // on this lease, cumulative
	AckSeq    uint64            `cbor:"6,keyasint"` // number of the last accepted receipt
	Ack       attest.Digest     `cbor:"7,keyasint"` // its id
	At        int64             `cbor:"8,keyasint"` // Unix ms
	Challenge receipt.Challenge `cbor:"10,keyasint"`
}

// Validate reports values that no voucher may have.
func (v Voucher) Validate() error {
	if v.Version != 1 || v.Seq == 0 || v.AckSeq == 0 || v.Ack.IsZero() || v.Lease.IsZero() || v.At <= 0 || v.Total > MaxAmount {
		return errors.New("voucher: wrong version, a missing field, or an amount out of range")
	}
	return nil
}

// Channel names the pair of a renter and a provider; all their leases are lanes of it.
func Channel(renter, provider attest.Key) Nonce {
	d := attest.Sum(append(append([]byte("channel"), renter[:]...), provider[:]...))
	return Nonce(d[:16])
}

// NewVoucher returns the voucher that accepts the chain up to tail, after the last one (nil for none). It fails if there
// is no receipt that the last one does not acknowledge already, and with [ErrOverflow].
func NewVoucher(l Lease, tail receipt.Tail, last *Voucher, at int64, challenge receipt.Challenge) (Voucher, error) {
	if tail.Seq == 0 {
		return Voucher{}, errors.New("voucher: there is no receipt to acknowledge")
	}
	total, err := Due(l.Price, tail.Last.Cum)
	if err != nil {
		return Voucher{}, err
	}
	v := Voucher{Version: 1, Channel: Channel(l.Renter, l.Provider), Lease: tail.Lease, Seq: 1, Total: total,
		AckSeq: tail.Seq, Ack: tail.ID, At: at, Challenge: challenge}
	if last != nil {
		v.Seq = last.Seq + 1
		if tail.Seq <= last.AckSeq {
			return Voucher{}, fmt.Errorf("voucher: receipt %d is acknowledged already", tail.Seq)
		}
	}
	return v, nil
}

var (
	// ErrVoid means that a voucher is not the price of the receipts it acknowledges, belongs elsewhere, or contradicts
	// the voucher before it.
	ErrVoid = errors.New("voucher is void")
	// ErrStale means that a voucher was overtaken by the one before it, or is that one again. Messages are lost and
	// reordered: it changes nothing and is nobody's fault.
	ErrStale = errors.New("voucher was overtaken")
)

// CheckVoucher holds v against the lease it pays on, the usage and the id of the receipt number v.AckSeq, and the last
// voucher that was accepted (nil for none). Errors wrap [ErrVoid], [ErrStale] or [ErrOverflow].
func CheckVoucher(v Voucher, l Lease, lease attest.Digest, acked gpu.Usage, ack attest.Digest, last *Voucher) error {
	due, err := Due(l.Price, acked)
	switch {
	case err != nil:
		return err
	case v.Lease != lease || v.Channel != Channel(l.Renter, l.Provider):
		return fmt.Errorf("voucher %d: %w: it belongs to another lease", v.Seq, ErrVoid)
	case v.Ack != ack:
		return fmt.Errorf("voucher %d: %w: it acknowledges an unknown receipt %d", v.Seq, ErrVoid, v.AckSeq)
	case v.Total != due:
		return fmt.Errorf("voucher %d: %w: it promises %s, the receipts it acknowledges cost %s", v.Seq, ErrVoid, v.Total, due)
	case last == nil:
		return nil
	case v == *last, v.Seq < last.Seq && v.Total <= last.Total && v.AckSeq < last.AckSeq:
		return fmt.Errorf("voucher %d: %w by voucher %d", v.Seq, ErrStale, last.Seq)
	case v.Seq <= last.Seq || v.Total < last.Total || v.AckSeq <= last.AckSeq:
		return fmt.Errorf("voucher %d: %w: it contradicts voucher %d", v.Seq, ErrVoid, last.Seq)
	}
	return nil
}

// OpenVoucher verifies and decodes a voucher that the renter signed.
func OpenVoucher(e attest.Envelope, network attest.Digest, renter attest.Key) (Voucher, error) {
	if e.Signer != renter {
		return Voucher{}, fmt.Errorf("%w: voucher signed by %s, not by the renter", attest.ErrSignature, e.Signer)
	}
	return attest.Open[Voucher](e, network, VoucherDomain)
}
