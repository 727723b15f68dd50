package store

import (
	"errors"
	"log/slog"

	"github.com/dgraph-io/badger/v4"
)

const (
	AckSize  = ackSize
	AckSlots = ackSlots
	AckFile  = ackFile
)

// FlipByte changes one byte of the stored frame behind the store's back.
func (s *Store) FlipByte(k Kind, key []byte, at int) error {
	full := fullKey(k, key)
	return s.db.Update(func(txn *badger.Txn) error {
		item, err := txn.Get(full)
		if err != nil {
			return err
		}
		b, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		b[at] ^= 1
		return txn.Set(full, b)
	})
}

// Remove deletes a record behind the store's back, as a damaged log does.
func (s *Store) Remove(k Kind, key []byte) error {
	return s.db.Update(func(txn *badger.Txn) error { return txn.Delete(fullKey(k, key)) })
}

// Migrate runs migrate with the given steps.
func (s *Store) Migrate(want uint64, steps ...func() error) error {
	var m []migration
	for _, step := range steps {
		m = append(m, func(*badger.DB) error { return step() })
	}
	return s.migrate(want, m)
}

// BreakAcks closes the file of notes, so that the next write fails in a way nobody foresaw.
func (s *Store) BreakAcks() error { return s.acks.close() }

// DecodeFrame is unseal for a fuzz test.
func DecodeFrame(full, b []byte) (payload []byte, corrupt bool) {
	p, err := unseal(full, b)
	var c *CorruptError
	return p, errors.As(err, &c)
}

// Seal is the inverse of DecodeFrame.
func Seal(full, payload []byte) []byte { return seal(full, payload) }

// ReencodeAcks decodes a file of notes and encodes each slot again.
func ReencodeAcks(b []byte) (slots [][]byte) {
	for _, a := range decodeAcks(b) {
		s := make([]byte, ackSize)
		encodeAck(s, a)
		slots = append(slots, s)
	}
	return slots
}

// RawOptions are the options a raw handle needs to be comparable.
func RawOptions(dir string) badger.Options { return badgerOptions(dir, slog.New(slog.DiscardHandler)) }
