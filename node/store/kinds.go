package store

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode"

	"github.com/lacuna-network/lacuna/attest"
)

// Kind tells records apart; its byte begins every key in the database. Numbers are never used again.
type Kind byte

// The kinds of records.
const (
	kindSchema Kind = iota + 1 // the version of the layout; one record
	kindLost                   // acknowledged records that a start did not find again; key: kind and key of the record

	KindJob      // a renter's job by its id
	KindAuction  // one auction for a job: length and id of the job, number
	KindLease    // a lease by its digest
	KindReceipt  // a signed receipt: lease, number
	KindVoucher  // a signed voucher: lease, number
	KindOutcome  // a signed outcome: lease, signer
	KindEvidence // what was seen of a peer: peer, Unix ms, digest of what it refers to
	KindPrice    // a clearing price: length and name of the class, Unix ms, running number
	KindMeta     // a single value by its name
)

// kindNames are the names in print, by number.
var kindNames = [...]string{kindSchema: "schema", kindLost: "lost", KindJob: "job", KindAuction: "auction", KindLease: "lease",
	KindReceipt: "receipt", KindVoucher: "voucher", KindOutcome: "outcome", KindEvidence: "evidence", KindPrice: "price",
	KindMeta: "meta"}

// String returns the kind's name, or "kind(n)" for one that is not known.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", byte(k))
}

// valid reports whether k may be written by callers.
func (k Kind) valid() bool { return k >= KindJob && k <= KindMeta }

// Ref names one record.
type Ref struct {
	Kind Kind
	Key  []byte
}

// Lease returns the lease a lease, receipt, voucher or outcome belongs to.
func (r Ref) Lease() (attest.Digest, bool) {
	switch r.Kind {
	case KindLease, KindReceipt, KindVoucher, KindOutcome:
		if len(r.Key) >= len(attest.Digest{}) {
			return attest.Digest(r.Key[:len(attest.Digest{})]), true
		}
	}
	return attest.Digest{}, false
}

// Seq returns the number of a receipt or voucher.
func (r Ref) Seq() (uint64, bool) {
	if (r.Kind == KindReceipt || r.Kind == KindVoucher) && len(r.Key) == len(attest.Digest{})+8 {
		return binary.BigEndian.Uint64(r.Key[len(attest.Digest{}):]), true
	}
	return 0, false
}

// String names the record for people: its kind, then what its key says, "receipt 7 of lease 3f2a…".
func (r Ref) String() string {
	lease, ok := r.Lease()
	if seq, numbered := r.Seq(); numbered {
		return fmt.Sprintf("%s %d of lease %s", r.Kind, seq, lease.Hex())
	}
	switch {
	case ok && r.Kind == KindOutcome && len(r.Key) == 64:
		return fmt.Sprintf("outcome of lease %s by %s", lease.Hex(), attest.Key(r.Key[32:]))
	case ok:
		return fmt.Sprintf("%s %s", r.Kind, lease.Hex())
	case r.Kind == 0:
		return "a record that can not be named"
	}
	return r.Kind.String() + " " + printable(r.Key)
}

// printable returns the key as text if it is text, else as hex digits.
func printable(key []byte) string {
	for _, c := range string(key) {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return fmt.Sprintf("%x", key)
		}
	}
	return strconv.Quote(string(key))
}
