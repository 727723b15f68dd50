package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// The limits of what can be stored, in bytes. Values stay in the tree of tables: Badger's value log does not shrink
// under overwrites, and a value over 512 KiB would go there.
const (
	MaxKey   = 100
	MaxValue = 256 << 10
	MaxBatch = 512 << 10 // keys and values of one call together
	// maxRecords of one transaction; Badger's own limit with these tables is above 10,000.
	maxRecords = 4096
)

const (
	frameVersion = 1
	frameLen     = 9
)

// Record is one value under a kind and a key.
type Record struct {
	Kind  Kind
	Key   []byte        // 1 to [MaxKey] bytes
	Value []byte        // at most [MaxValue] bytes, may be empty
	TTL   time.Duration // after which the record vanishes, in whole seconds; 0 keeps it
}

func (r Record) validate() error {
	switch {
	case !r.Kind.valid():
		return fmt.Errorf("%s is not for callers", r.Kind)
	case len(r.Key) == 0:
		return fmt.Errorf("%s without a key", r.Kind)
	case len(r.Key) > MaxKey || len(r.Value) > MaxValue:
		return fmt.Errorf("%w: %s with a key of %d and a value of %d bytes", ErrTooBig, r.Kind, len(r.Key), len(r.Value))
	case r.TTL < 0:
		return fmt.Errorf("%s lives %v", r.Kind, r.TTL)
	}
	return nil
}

// CorruptError names a record whose bytes are not those that were written.
type CorruptError struct {
	Kind   Kind   // 0 if the damage hides what the record was
	Key    []byte // nil with Kind 0
	Detail string // what does not fit
}

// Error returns the record's name and what does not fit.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("damaged: %s: %s", Ref{e.Kind, e.Key}, e.Detail)
}

// fullKey returns the key in the database.
func fullKey(k Kind, key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), byte(k)), key...)
}

// seal returns the payload in its frame. full is the key in the database.
func seal(full, payload []byte) []byte {
	b := make([]byte, frameLen, frameLen+len(payload))
	b[0] = frameVersion
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[5:], frameSum(full, b[:5], payload))
	return append(b, payload...)
}

// unseal checks the frame of b and returns its payload, which is a part of b. Errors are [*CorruptError].
func unseal(full, b []byte) ([]byte, error) {
	detail := ""
	switch {
	case len(b) < frameLen:
		detail = fmt.Sprintf("%d bytes are no frame", len(b))
	case binary.BigEndian.Uint32(b[5:]) != frameSum(full, b[:5], b[frameLen:]):
		detail = "checksum does not hold"
	case b[0] != frameVersion:
		detail = fmt.Sprintf("unknown frame version %d", b[0])
	case int(binary.BigEndian.Uint32(b[1:])) != len(b)-frameLen:
		detail = "length does not fit"
	}
	if detail == "" {
		return b[frameLen:], nil
	}
	e := &CorruptError{Detail: detail}
	if len(full) > 0 {
		e.Kind, e.Key = Kind(full[0]), append([]byte{}, full[1:]...)
	}
	return nil, e
}

func frameSum(full, head, payload []byte) uint32 {
	t := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Update(crc32.Update(0, t, full), t, head), t, payload)
}

// payloadSum is what is remembered of a value to know it again.
func payloadSum(payload []byte) uint32 {
	return crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
}
