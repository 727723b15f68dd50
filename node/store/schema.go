package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// schemaVersion is the layout of keys and values that this package writes. History: 2026-11-30 version 1.
const schemaVersion = 1

// migration brings a store from one version to the next. It must bear being run again after a kill halfway.
type migration func(*badger.DB) error

// migrate brings the store to version want. steps[i] leads from version i+1 to i+2. A new store starts at want.
func (s *Store) migrate(want uint64, steps []migration) error {
	key := fullKey(kindSchema, []byte("version"))
	write := func(v uint64) error {
		return s.db.Update(func(txn *badger.Txn) error {
			return txn.Set(key, seal(key, binary.BigEndian.AppendUint64(nil, v)))
		})
	}
	var b []byte
	err := s.db.View(func(txn *badger.Txn) (err error) {
		b, err = get(txn, key)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return write(want)
	}
	if err != nil {
		return err
	}
	if len(b) != 8 {
		return &CorruptError{Kind: kindSchema, Key: key[1:], Detail: "not a number"}
	}
	have := binary.BigEndian.Uint64(b)
	if have > want {
		return fmt.Errorf("%w: layout %d, this program knows up to %d; use the newer program", ErrNewer, have, want)
	}
	for ; have < want; have++ {
		if have == 0 || have > uint64(len(steps)) {
			return fmt.Errorf("no way from layout %d to %d", have, want)
		}
		if err := steps[have-1](s.db); err != nil {
			return fmt.Errorf("migrate from layout %d: %w", have, err)
		}
		if err := write(have + 1); err != nil {
			return err
		}
		s.log.Info("store migrated", "layout", have+1)
	}
	return nil
}
