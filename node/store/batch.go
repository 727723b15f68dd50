package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
)

// Batch collects changes that become true together: a lease's new state and the receipt that led to it. The zero
// value is empty. A Batch is used by one goroutine; after [Store.Commit] it may be committed again, with the same
// effect, or thrown away.
type Batch struct {
	ops []op
	err error // the first fault, told by Commit
}

// Put adds a record.
func (b *Batch) Put(r Record) { b.ops = append(b.ops, op{rec: r}) }

// Delete adds a removal.
func (b *Batch) Delete(k Kind, key []byte) {
	b.ops = append(b.ops, op{rec: Record{Kind: k, Key: key}, del: true})
}

// SaveLease adds [Store.SaveLease].
func (b *Batch) SaveLease(id attest.Digest, value []byte) {
	b.Put(Record{Kind: KindLease, Key: id[:], Value: value})
}

// AppendReceipt adds [Store.AppendReceipt].
func (b *Batch) AppendReceipt(lease attest.Digest, seq uint64, e attest.Envelope) {
	b.envelope(KindReceipt, seqKey(lease, seq), true, e)
}

// AppendVoucher adds [Store.AppendVoucher].
func (b *Batch) AppendVoucher(lease attest.Digest, seq uint64, e attest.Envelope) {
	b.envelope(KindVoucher, seqKey(lease, seq), true, e)
}

// PutOutcome adds [Store.PutOutcome].
func (b *Batch) PutOutcome(lease attest.Digest, e attest.Envelope) {
	b.envelope(KindOutcome, append(lease[:len(lease):len(lease)], e.Signer[:]...), false, e)
}

// SaveJob adds [Store.SaveJob].
func (b *Batch) SaveJob(id string, value []byte) {
	b.Put(Record{Kind: KindJob, Key: []byte(id), Value: value})
}

// SaveMeta adds [Store.SaveMeta].
func (b *Batch) SaveMeta(name string, v []byte) {
	b.Put(Record{Kind: KindMeta, Key: []byte(name), Value: v})
}

func (b *Batch) envelope(k Kind, key []byte, once bool, e attest.Envelope) {
	err := e.Validate()
	if seq, numbered := (Ref{k, key}).Seq(); err == nil && numbered && seq == 0 {
		err = errors.New("numbers start at 1")
	}
	var v []byte
	if err == nil {
		v, err = attest.MarshalEnvelope(e)
	}
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("write %s: %w", Ref{k, key}, err)
	}
	b.ops = append(b.ops, op{rec: Record{Kind: k, Key: key, Value: v}, once: once})
}

// Commit writes all changes of b in one transaction and syncs, or changes nothing. Errors are those of [Store.Put]
// and, of a receipt or voucher, [ErrConflict].
func (s *Store) Commit(b *Batch) error {
	if b.err != nil {
		return b.err
	}
	return s.submit(&request{wait: true, ops: append([]op(nil), b.ops...)})
}

// seqKeyLen is the length of a key made by seqKey: a lease's id and a number.
const seqKeyLen = 32 + 8

// seqKey is the key of a receipt or voucher; numbers sort as they count.
func seqKey(lease attest.Digest, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(lease[:len(lease):len(lease)], seq)
}
