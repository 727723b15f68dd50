package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// Get returns a copy of the value. Errors wrap [ErrNotFound], a [*CorruptError] or [ErrClosed].
func (s *Store) Get(k Kind, key []byte) ([]byte, error) {
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("read store: %w", err)
	}
	defer s.leave()
	if err := s.flushKind(k); err != nil {
		return nil, fmt.Errorf("read store: %w", err)
	}
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	v, err := get(txn, fullKey(k, key))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Ref{k, key}, err)
	}
	return v, nil
}

// Scan calls f for each record of the kind whose key begins with prefix (nil for all), in the order of the keys,
// until f returns an error; that error is returned. f sees the store as it was when Scan began and may keep neither
// slice. It may call the store, also to write. A damaged record ends the scan with an error that wraps a
// [*CorruptError].
func (s *Store) Scan(k Kind, prefix []byte, f func(key, value []byte) error) error {
	return s.scan(k, prefix, false, f)
}

// ScanReverse is [Store.Scan] from the last key to the first.
func (s *Store) ScanReverse(k Kind, prefix []byte, f func(key, value []byte) error) error {
	return s.scan(k, prefix, true, f)
}

// errStop ends a scan early.
var errStop = errors.New("stop")

// Last returns the record with the highest key that begins with prefix, or an error that wraps [ErrNotFound].
func (s *Store) Last(k Kind, prefix []byte) (key, value []byte, err error) {
	err = s.scan(k, prefix, true, func(k, v []byte) error {
		key, value = append([]byte{}, k...), append([]byte{}, v...)
		return errStop
	})
	switch {
	case errors.Is(err, errStop):
		return key, value, nil
	case err != nil:
		return nil, nil, err
	}
	return nil, nil, fmt.Errorf("read last %s: %w", k, ErrNotFound)
}

func (s *Store) scan(k Kind, prefix []byte, reverse bool, f func(key, value []byte) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("read store: %w", err)
	}
	defer s.leave()
	if err := s.flushKind(k); err != nil {
		return fmt.Errorf("read store: %w", err)
	}
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	return scan(txn, fullKey(k, prefix), reverse, func(full, value []byte) error { return f(full[1:], value) })
}

// get returns a copy of the payload under full.
func get(txn *badger.Txn, full []byte) ([]byte, error) {
	item, err := txn.Get(full)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	b, err := item.ValueCopy(nil)
	if err != nil {
		return nil, &CorruptError{Kind: Kind(full[0]), Key: append([]byte{}, full[1:]...), Detail: err.Error()}
	}
	return unseal(full, b)
}

// scan walks all records whose full key begins with prefix.
func scan(txn *badger.Txn, prefix []byte, reverse bool, f func(full, value []byte) error) error {
	return walk(txn, prefix, reverse, func(full []byte, value []byte, err error) error {
		if err != nil {
			return fmt.Errorf("read store: %w", err)
		}
		return f(full, value)
	})
}

// walk is scan for those who go on after a damaged record: f gets its error, a [*CorruptError], instead of a value.
func walk(txn *badger.Txn, prefix []byte, reverse bool, f func(full, value []byte, err error) error) error {
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false // values lie beside their keys
	o.Reverse = reverse
	o.Prefix = prefix
	it := txn.NewIterator(o)
	defer it.Close()
	start := prefix
	if reverse {
		start = append(append(make([]byte, 0, len(prefix)+MaxKey+2), prefix...), 0xff)
		for len(start) < MaxKey+2 {
			start = append(start, 0xff)
		}
	}
	for it.Seek(start); it.Valid(); it.Next() {
		item := it.Item()
		full := item.Key()
		err := item.Value(func(b []byte) error {
			payload, err := unseal(full, b)
			return f(full, payload, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
