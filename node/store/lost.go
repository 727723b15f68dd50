package store

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// Lost returns the records that were durable once and were not there when the store was opened, now or earlier: the
// end of a log was cut off or overwritten from outside. At most the last 256 writes before the damage are known by
// name. A record leaves the list when it is written again; under a receipt's or voucher's number only the lost bytes
// are taken, all others are refused with [ErrConflict]. The caller abandons the leases named here: on each of them
// something was signed that this peer no longer has.
func (s *Store) Lost() []Ref {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	refs := make([]Ref, 0, len(s.lost))
	for full := range s.lost {
		refs = append(refs, Ref{Kind(full[0]), []byte(full[1:])})
	}
	slices.SortFunc(refs, func(a, b Ref) int {
		return slices.Compare(fullKey(a.Kind, a.Key), fullKey(b.Kind, b.Key))
	})
	return refs
}

func (s *Store) isLost(full []byte) bool {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	_, ok := s.lost[string(full)]
	return ok
}

// forgetLost takes the written keys off the list.
func (s *Store) forgetLost(written []*request) {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	for _, r := range written {
		for _, o := range r.ops {
			delete(s.lost, string(o.full))
		}
	}
}

// loadLost reads the list that earlier starts wrote.
func (s *Store) loadLost() error {
	return s.db.View(func(txn *badger.Txn) error {
		return scan(txn, []byte{byte(kindLost)}, false, func(full, value []byte) error {
			if len(value) != 4 || len(full) < 3 {
				return &CorruptError{Kind: kindLost, Key: slices.Clone(full[1:]), Detail: "no checksum"}
			}
			s.lost[string(full[1:])] = binary.BigEndian.Uint32(value)
			return nil
		})
	})
}

// findLost holds the notes of the last writes against the database. What is missing, or older than noted, is logged,
// goes on the list for good, and is noted no longer, so that the next start is silent.
func (s *Store) findLost(noted []ack) error {
	var gone []ack
	for _, a := range noted {
		if a.gone {
			continue
		}
		version, err := s.version(a.full)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if version < a.version {
			gone = append(gone, a)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	for _, a := range gone {
		key := fullKey(kindLost, a.full)
		if err := txn.Set(key, seal(key, binary.BigEndian.AppendUint32(nil, a.sum))); err != nil {
			return err
		}
		s.lost[string(a.full)] = a.sum
		s.log.Error("acknowledged record lost", "record", Ref{Kind(a.full[0]), a.full[1:]}.String())
	}
	if err := txn.Commit(); err != nil {
		return err
	}
	return s.acks.forget(gone)
}

// version returns the version of the transaction that wrote the record, 0 and [ErrNotFound] without one.
func (s *Store) version(full []byte) (uint64, error) {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	item, err := txn.Get(full)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return 0, ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return item.Version(), nil
}
