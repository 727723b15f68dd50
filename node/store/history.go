package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/lacuna-network/lacuna/attest"
)

// PriceTTL is how long a clearing price is kept.
const PriceTTL = 90 * 24 * time.Hour

// Evidence is one thing seen of a peer.
type Evidence struct {
	At    int64         // Unix ms
	Ref   attest.Digest // what it refers to, for instance a lease
	Value []byte        // in the caller's encoding
}

// AddEvidence stores what was seen of the peer at that time, in Unix ms, from 0. The same peer, time and ref again
// replaces the value, so that repeating a step adds nothing.
func (s *Store) AddEvidence(peer attest.Key, at int64, ref attest.Digest, value []byte) error {
	if at < 0 {
		return fmt.Errorf("add evidence: time %d is before 1970", at)
	}
	key := append(binary.BigEndian.AppendUint64(peer[:len(peer):len(peer)], uint64(at)), ref[:]...)
	return s.Put(Record{Kind: KindEvidence, Key: key, Value: value})
}

const evidenceKey = 32 + 8 + 32

// Evidence returns what was seen of the peer, oldest first.
func (s *Store) Evidence(peer attest.Key) ([]Evidence, error) {
	var out []Evidence
	err := s.Scan(KindEvidence, peer[:], func(key, value []byte) error {
		if len(key) != evidenceKey {
			return badKey(KindEvidence, key)
		}
		out = append(out, Evidence{At: int64(binary.BigEndian.Uint64(key[32:])), Ref: attest.Digest(key[40:]),
			Value: slices.Clone(value)})
		return nil
	})
	return out, err
}

// EvidencePeers returns the peers of which there is evidence, in the order of keys. It reads one record of each.
func (s *Store) EvidencePeers() ([]attest.Key, error) {
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("read store: %w", err)
	}
	defer s.leave()
	if err := s.flushKind(KindEvidence); err != nil {
		return nil, fmt.Errorf("read store: %w", err)
	}
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	o := badger.DefaultIteratorOptions
	o.PrefetchValues, o.Prefix = false, []byte{byte(KindEvidence)}
	it := txn.NewIterator(o)
	defer it.Close()
	var peers []attest.Key
	it.Seek(o.Prefix)
	for it.Valid() {
		full := it.Item().KeyCopy(nil)
		if len(full) != 1+evidenceKey {
			return nil, badKey(KindEvidence, full[1:])
		}
		peers = append(peers, attest.Key(full[1:33]))
		for i := 33; i < len(full); i++ {
			full[i] = 0xff // the last key this peer can have
		}
		it.Seek(append(full, 0))
	}
	return peers, nil
}

// Price is what a class of capacity cleared at.
type Price struct {
	At    int64  `cbor:"1,keyasint"` // Unix ms
	Micro uint64 `cbor:"2,keyasint"` // micro-USD, per what the class says
}

// AddPrice notes what the class cleared at, in micro-USD, at that time, in Unix ms from 0. It is lazy: see
// [Store.PutLazy]. Prices vanish after [PriceTTL].
func (s *Store) AddPrice(class string, at int64, micro uint64) error {
	key, err := namePrefix(KindPrice, class)
	if err != nil {
		return err
	}
	if at < 0 {
		return fmt.Errorf("add price: time %d is before 1970", at)
	}
	key = binary.BigEndian.AppendUint64(key, uint64(at))
	key = binary.BigEndian.AppendUint32(key, s.prices.Add(1))
	value, err := attest.Marshal(Price{At: at, Micro: micro})
	if err != nil {
		return fmt.Errorf("add price: %w", err)
	}
	return s.PutLazy(Record{Kind: KindPrice, Key: key, Value: value, TTL: PriceTTL})
}

// Prices returns the last n prices of the class, newest first; all for n of 0 or less.
func (s *Store) Prices(class string, n int) ([]Price, error) {
	prefix, err := namePrefix(KindPrice, class)
	if err != nil {
		return nil, err
	}
	var out []Price
	err = s.ScanReverse(KindPrice, prefix, func(key, value []byte) error {
		var p Price
		if err := attest.Unmarshal(value, &p); err != nil {
			return fmt.Errorf("read %s: %w", Ref{KindPrice, key}, err)
		}
		if out = append(out, p); len(out) == n {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return out, err
}
