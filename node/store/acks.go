package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// A log that lost its end looks like one that was never longer. So the names of the last durable writes are kept in a
// second file, as a ring: after each sync, without a sync of its own. After a kill the system still writes it; after
// a power cut some of it may be missing, but then it names less than the database holds, never more.
//
// A slot of 128 bytes: CRC-32C of the rest (4), running number (8), version of the transaction (8), CRC-32C of the
// payload (4), 1 if the record may be gone (1), length of the key (1), kind and key (up to 101). All big endian.

const (
	ackFile  = "acknowledged"
	ackSlots = 256
	ackSize  = 128
	ackHead  = 26
)

// ack notes one write.
type ack struct {
	full    []byte // kind and key
	sum     uint32 // of the payload
	gone    bool   // removed, or due to vanish: do not expect it
	number  uint64
	version uint64 // Badger's version of the transaction
}

// ackRing is the open file. The leader appends; close may come at any time after.
type ackRing struct {
	mu   sync.Mutex
	f    *os.File
	next uint64 // number of the next slot, from 1
}

// openAcks opens the file or makes it. It returns the last note of each key, oldest first.
func openAcks(dir string) (*ackRing, []ack, error) {
	f, err := os.OpenFile(filepath.Join(dir, ackFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	b := make([]byte, ackSlots*ackSize)
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, nil, errors.Join(err, f.Close())
	}
	acks := decodeAcks(b[:n])
	r := &ackRing{f: f, next: 1}
	if len(acks) > 0 {
		r.next = acks[len(acks)-1].number + 1
	}
	latest := make(map[string]uint64)
	for _, a := range acks {
		latest[string(a.full)] = a.number
	}
	acks = slices.DeleteFunc(acks, func(a ack) bool { return latest[string(a.full)] != a.number })
	return r, acks, nil
}

// decodeAcks returns the slots of b that hold, by number. Torn and empty ones are left out.
func decodeAcks(b []byte) []ack {
	var acks []ack
	for ; len(b) >= ackSize; b = b[ackSize:] {
		s := b[:ackSize]
		klen := int(s[25])
		if crc32.Checksum(s[4:], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(s) ||
			klen < 2 || ackHead+klen > ackSize {
			continue
		}
		acks = append(acks, ack{number: binary.BigEndian.Uint64(s[4:]), version: binary.BigEndian.Uint64(s[12:]),
			sum: binary.BigEndian.Uint32(s[20:]), gone: s[24] == 1, full: slices.Clone(s[ackHead : ackHead+klen])})
	}
	slices.SortFunc(acks, func(a, b ack) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return acks
}

func encodeAck(s []byte, a ack) {
	clear(s)
	binary.BigEndian.PutUint64(s[4:], a.number)
	binary.BigEndian.PutUint64(s[12:], a.version)
	binary.BigEndian.PutUint32(s[20:], a.sum)
	if a.gone {
		s[24] = 1
	}
	s[25] = byte(len(a.full))
	copy(s[ackHead:], a.full)
	binary.BigEndian.PutUint32(s, crc32.Checksum(s[4:], crc32.MakeTable(crc32.Castagnoli)))
}

// append writes the notes, all with that version. Of more than the ring holds the last ones stay.
func (r *ackRing) append(acks []ack, version uint64) error {
	if len(acks) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if skip := len(acks) - ackSlots; skip > 0 {
		acks, r.next = acks[skip:], r.next+uint64(skip)
	}
	for len(acks) > 0 {
		at := int(r.next % ackSlots)
		n := min(len(acks), ackSlots-at)
		b := make([]byte, n*ackSize)
		for i, a := range acks[:n] {
			a.number, a.version = r.next+uint64(i), version
			encodeAck(b[i*ackSize:(i+1)*ackSize], a)
		}
		if _, err := r.f.WriteAt(b, int64(at)*ackSize); err != nil {
			return fmt.Errorf("note acknowledged writes: %w", err)
		}
		acks, r.next = acks[n:], r.next+uint64(n)
	}
	return nil
}

// forget overwrites the slots of these notes, which were dealt with.
func (r *ackRing) forget(acks []ack) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range acks {
		if _, err := r.f.WriteAt(make([]byte, ackSize), int64(a.number%ackSlots)*ackSize); err != nil {
			return err
		}
	}
	return nil
}

func (r *ackRing) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.f.Close()
}
