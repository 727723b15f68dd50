package store

import (
	"encoding/binary"
	"fmt"
)

// MaxName is the longest id of a job and name of a price class, in bytes.
const MaxName = 80

// SaveJob stores what the caller knows of the job, in the caller's encoding, over what was there.
func (s *Store) SaveJob(id string, value []byte) error {
	return s.Put(Record{Kind: KindJob, Key: []byte(id), Value: value})
}

// Job returns what SaveJob stored, or an error that wraps [ErrNotFound].
func (s *Store) Job(id string) ([]byte, error) { return s.Get(KindJob, []byte(id)) }

// Jobs calls f for each job in the order of ids, as [Store.Scan] does. f may not keep value.
func (s *Store) Jobs(f func(id string, value []byte) error) error {
	return s.Scan(KindJob, nil, func(key, value []byte) error { return f(string(key), value) })
}

// SaveAuction stores the n-th auction for the job, over what was there.
func (s *Store) SaveAuction(job string, n uint64, value []byte) error {
	prefix, err := namePrefix(KindAuction, job)
	if err != nil {
		return err
	}
	return s.Put(Record{Kind: KindAuction, Key: binary.BigEndian.AppendUint64(prefix, n), Value: value})
}

// Auctions calls f for each auction for the job by number, as [Store.Scan] does. f may not keep value.
func (s *Store) Auctions(job string, f func(n uint64, value []byte) error) error {
	prefix, err := namePrefix(KindAuction, job)
	if err != nil {
		return err
	}
	return s.Scan(KindAuction, prefix, func(key, value []byte) error {
		if len(key) != len(prefix)+8 {
			return badKey(KindAuction, key)
		}
		return f(binary.BigEndian.Uint64(key[len(prefix):]), value)
	})
}

// namePrefix begins a key with a name of any length, so that no name is the beginning of another.
func namePrefix(k Kind, name string) ([]byte, error) {
	if name == "" || len(name) > MaxName {
		return nil, fmt.Errorf("%s: %w: a name of %d bytes, want 1 to %d", k, ErrTooBig, len(name), MaxName)
	}
	return append([]byte{byte(len(name))}, name...), nil
}

// SaveMeta stores a single value by its name, over what was there.
func (s *Store) SaveMeta(name string, v []byte) error {
	return s.Put(Record{Kind: KindMeta, Key: []byte(name), Value: v})
}

// Meta returns what SaveMeta stored, or an error that wraps [ErrNotFound].
func (s *Store) Meta(name string) ([]byte, error) { return s.Get(KindMeta, []byte(name)) }
