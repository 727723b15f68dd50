package store

import (
	"errors"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
)

// maxEnvelope bounds a stored envelope: the largest payload, and the rest of the envelope around it.
const maxEnvelope = attest.MaxEnvelope + 256

// SaveLease stores what the caller knows of the lease, in the caller's encoding, over what was there.
func (s *Store) SaveLease(id attest.Digest, value []byte) error {
	return s.Put(Record{Kind: KindLease, Key: id[:], Value: value})
}

// Lease returns what SaveLease stored, or an error that wraps [ErrNotFound].
func (s *Store) Lease(id attest.Digest) ([]byte, error) { return s.Get(KindLease, id[:]) }

// Leases calls f for each lease in the order of ids, until f returns an error; that error is returned. A damaged record
// does not hide those behind it: f gets its error, a [*CorruptError], and no value. f may not keep value.
func (s *Store) Leases(f func(id attest.Digest, value []byte, damage error) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	defer s.leave()
	if err := s.flushKind(KindLease); err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	return walk(txn, []byte{byte(KindLease)}, false, func(full, value []byte, err error) error {
		key := full[1:]
		if len(key) != len(attest.Digest{}) {
			return f(attest.Digest{}, nil, badKey(KindLease, key))
		}
		return f(attest.Digest(key), value, err)
	})
}

// AppendReceipt stores a receipt under its number, from 1. When it returns nil the receipt is durable and may be
// sent. The same receipt again is no error; a different one under a number that was ever used is refused with
// [ErrConflict], also if the first was lost, as long as its loss is known. The caller checks that it follows its
// predecessor.
func (s *Store) AppendReceipt(lease attest.Digest, seq uint64, e attest.Envelope) error {
	var b Batch
	b.AppendReceipt(lease, seq, e)
	return s.Commit(&b)
}

// Receipts returns the receipts of the lease by number, none for an unknown lease. If a number below the last is not
// there, the error wraps a [*MissingError], and the receipts that are there come with it.
func (s *Store) Receipts(lease attest.Digest) ([]attest.Envelope, error) {
	return s.chain(KindReceipt, lease)
}

// LastReceipt returns the receipt with the highest number and that number, or an error that wraps [ErrNotFound].
func (s *Store) LastReceipt(lease attest.Digest) (uint64, attest.Envelope, error) {
	return s.lastOf(KindReceipt, lease)
}

// AppendVoucher stores a voucher under its number, by the rules of [Store.AppendReceipt].
func (s *Store) AppendVoucher(lease attest.Digest, seq uint64, e attest.Envelope) error {
	var b Batch
	b.AppendVoucher(lease, seq, e)
	return s.Commit(&b)
}

// Vouchers returns the vouchers of the lease by number, none for an unknown lease. As a voucher is cumulative, numbers
// may be missing.
func (s *Store) Vouchers(lease attest.Digest) ([]attest.Envelope, error) {
	return s.chain(KindVoucher, lease)
}

// LastVoucher returns the voucher with the highest number and that number, or an error that wraps [ErrNotFound].
func (s *Store) LastVoucher(lease attest.Digest) (uint64, attest.Envelope, error) {
	return s.lastOf(KindVoucher, lease)
}

// VouchersBack calls f for each voucher of the lease, from the last one back, until f returns false.
func (s *Store) VouchersBack(lease attest.Digest, f func(e attest.Envelope) bool) error {
	err := s.ScanReverse(KindVoucher, lease[:], func(key, value []byte) error {
		e, err := parseEnvelope(KindVoucher, key, value)
		if err == nil && !f(e) {
			err = errStop
		}
		return err
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// PutOutcome stores the outcome of the lease as its signer states it, over what that signer stated before.
func (s *Store) PutOutcome(lease attest.Digest, e attest.Envelope) error {
	var b Batch
	b.PutOutcome(lease, e)
	return s.Commit(&b)
}

// Outcomes returns the outcomes of the lease by signer, at most one of each.
func (s *Store) Outcomes(lease attest.Digest) ([]attest.Envelope, error) {
	return s.chain(KindOutcome, lease)
}

// MissingError says that a chain has a hole.
type MissingError struct {
	Lease attest.Digest
	Seqs  []uint64 // the first numbers that are not there, at most 100
}

// Error names the first number that is missing.
func (e *MissingError) Error() string {
	return fmt.Sprintf("receipts missing from lease %s, first: %d", e.Lease.Hex(), e.Seqs[0])
}

func (s *Store) chain(k Kind, lease attest.Digest) ([]attest.Envelope, error) {
	var out []attest.Envelope
	var missing []uint64
	next := uint64(1)
	err := s.Scan(k, lease[:], func(key, value []byte) error {
		e, err := parseEnvelope(k, key, value)
		if err != nil {
			return err
		}
		out = append(out, e)
		seq, _ := Ref{k, key}.Seq()
		for ; next < seq && len(missing) < 100; next++ {
			missing = append(missing, next)
		}
		next = seq + 1
		return nil
	})
	if err != nil {
		return nil, err
	}
	if k == KindReceipt && len(missing) > 0 {
		return out, &MissingError{Lease: lease, Seqs: missing}
	}
	return out, nil
}

func (s *Store) lastOf(k Kind, lease attest.Digest) (uint64, attest.Envelope, error) {
	key, value, err := s.Last(k, lease[:])
	if err != nil {
		return 0, attest.Envelope{}, err
	}
	seq, ok := Ref{k, key}.Seq()
	if !ok {
		return 0, attest.Envelope{}, badKey(k, key)
	}
	e, err := parseEnvelope(k, key, value)
	return seq, e, err
}

func parseEnvelope(k Kind, key, value []byte) (attest.Envelope, error) {
	e, err := attest.ParseEnvelope(value, maxEnvelope)
	if err != nil {
		return e, fmt.Errorf("read %s: %w", Ref{k, key}, err)
	}
	return e, nil
}

func badKey(k Kind, key []byte) error {
	return &CorruptError{Kind: k, Key: append([]byte{}, key...), Detail: "key of an unknown form"}
}
