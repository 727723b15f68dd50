// Package store keeps what a peer must not forget, in one Badger database per home.
//
// [Store] is the database: a generic core of records ([Record], by [Kind] and key) and, on top, typed methods for
// leases, receipts, vouchers, outcomes, jobs, auctions, evidence, prices and single values. [Batch] collects several
// changes that become true together. The package decodes no payload, checks no signature and holds no rule of the
// market but one: under one number of one lease there is never a second, different receipt or voucher ([ErrConflict]).
//
// When a record is durable: [Store.Put], [Store.Commit] and all typed methods but [Store.AddPrice] have written and
// synced when they return nil. What they wrote is there after a kill, and after a power cut if the disk honours
// flushes. [Store.PutLazy] may lose what was written in the last seconds.
//
// What is damaged is named, never skipped: every value lies under a checksum of its own, and a file beside the
// database holds the names of the last durable writes, so that a log that lost its end is found out at the next
// start (see [Store.Lost]).
//
// A stored value, history: 2026-11-30 version 1:
//
//	byte 0      version of this frame, 1
//	bytes 1–4   length of the payload, big endian
//	bytes 5–8   CRC-32C over kind, key, bytes 0–4 and payload, big endian
//	bytes 9–    payload
//
// stored under the kind's byte followed by the key. One process may hold a store open; the node opens it and hands it
// to those that declare a Store. All methods are safe for concurrent use.
package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// DefaultMinFreeBytes is the free disk space below which nothing is written, when the options say nothing.
const DefaultMinFreeBytes = 256 << 20

var (
	// ErrInUse means that another process, or another Store in this one, has the folder open.
	ErrInUse = errors.New("store is in use")
	// ErrNotFound means that there is no such record.
	ErrNotFound = errors.New("no such record")
	// ErrConflict means that another, different record exists, or existed and was lost, under a number that may be
	// given once.
	ErrConflict = errors.New("number is taken by a different record")
	// ErrNoSpace means that the disk has less free space than the limit; nothing was written.
	ErrNoSpace = errors.New("disk is nearly full")
	// ErrTooBig means that a key, a value or a batch is over the limits of this package.
	ErrTooBig = errors.New("record is too big")
	// ErrNewer means that a later version of the program wrote the store.
	ErrNewer = errors.New("store was written by a newer version")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrBroken means that a write failed in a way that leaves open what is on disk. Nothing more is written until
	// the store is opened again.
	ErrBroken = errors.New("store is broken until it is opened again")
)

// Options say where the store is. Dir is required.
type Options struct {
	Dir          string                           // made with mode 0700 if it does not exist
	Logger       *slog.Logger                     // nil discards
	MinFreeBytes uint64                           // nothing is written below; 0 means [DefaultMinFreeBytes]
	FreeBytes    func(dir string) (uint64, error) // free bytes of the disk dir is on; nil asks the system
}

// Store is an open database. Use [Open].
type Store struct {
	dir     string
	log     *slog.Logger
	minFree uint64
	free    func(string) (uint64, error)
	db      *badger.DB
	acks    *ackRing
	prices  atomic.Uint32   // keeps prices of one millisecond apart
	damaged []*CorruptError // found by Open

	lead  chan struct{}    // held by the one goroutine that commits
	taken map[string]taken // by kind and lease; the leader's

	mu      sync.Mutex
	idle    *sync.Cond // signalled when users falls to zero
	users   int        // calls in progress
	closed  bool
	broken  error // the first failure of a commit
	queue   []*request
	lazy    map[Kind]int // records in queue that nobody waits for
	lazyLen int          // their bytes

	lostMu sync.Mutex
	lost   map[string]uint32 // full key → checksum of the lost payload
}

// Open opens the store in o.Dir and makes it if there is none. What a crash left half written is repaired without
// asking; acknowledged records that are gone are logged by name and listed by [Store.Lost], damaged ones by
// [Store.Damaged]. Errors wrap [ErrInUse], [ErrNoSpace], [ErrNewer] or, if the damage can not be pinned to records, a
// [*CorruptError]. The caller closes the store.
func Open(o Options) (*Store, error) {
	if o.Dir == "" {
		return nil, errors.New("open store: no folder given")
	}
	s := &Store{dir: o.Dir, log: o.Logger, minFree: o.MinFreeBytes, free: o.FreeBytes,
		lead: make(chan struct{}, 1), taken: make(map[string]taken), lazy: make(map[Kind]int), lost: make(map[string]uint32)}
	s.idle = sync.NewCond(&s.mu)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.minFree == 0 {
		s.minFree = DefaultMinFreeBytes
	}
	if s.free == nil {
		s.free = freeBytes
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Dir, err)
	}
	return s, nil
}

func (s *Store) open() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return err
	}
	// Badger maps new log files when it opens. A quarter of the limit is left for it, so that a store which refuses
	// writes can still be read.
	if err := s.checkSpace(s.minFree / 4); err != nil {
		return err
	}
	start := time.Now()
	db, err := openBadger(s.dir, s.log)
	if err != nil {
		return err
	}
	s.db = db
	if err := s.prepare(); err != nil {
		if s.acks != nil {
			err = errors.Join(err, s.acks.close())
		}
		return errors.Join(err, db.Close())
	}
	s.log.Debug("store open", "dir", s.dir, "took", time.Since(start))
	return nil
}

// prepare brings an open database to the state in which the methods may be called.
func (s *Store) prepare() error {
	if err := s.findDamage(); err != nil {
		return err
	}
	acks, last, err := openAcks(s.dir)
	if err != nil {
		return err
	}
	s.acks = acks
	if err := s.migrate(schemaVersion, nil); err != nil {
		return err
	}
	if err := s.loadLost(); err != nil {
		return err
	}
	return s.findLost(last)
}

// Close writes what is still waiting, closes the database and releases the folder. It waits for calls in progress.
// Further calls of Close do nothing.
func (s *Store) Close() error {
	err := s.flush()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for s.users > 0 {
		s.idle.Wait()
	}
	s.mu.Unlock()
	if err := errors.Join(err, s.acks.close(), s.db.Close()); err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// enter begins a call that uses the database; leave ends it.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.users++
	return nil
}

func (s *Store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.idle.Broadcast()
	}
}

// checkSpace returns an error that wraps [ErrNoSpace] if fewer than limit bytes are free.
func (s *Store) checkSpace(limit uint64) error {
	n, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("ask for free space: %w", err)
	}
	return short(n, limit)
}

// Spare returns how many bytes of the disk may be used before it is nearly full, see [ErrNoSpace].
func (s *Store) Spare() (uint64, error) {
	n, err := s.free(s.dir)
	if err != nil {
		return 0, fmt.Errorf("ask for free space: %w", err)
	}
	return n - min(n, s.minFree), nil
}

// FreeBytes returns how many bytes this user may still write on the disk that dir is on.
func FreeBytes(dir string) (uint64, error) { return freeBytes(dir) }

// spaceFor returns why new records cannot be written, and why nothing can, each nil if it can.
func (s *Store) spaceFor() (records, anything error) {
	n, err := s.free(s.dir)
	if err != nil {
		err = fmt.Errorf("ask for free space: %w", err)
		return err, err
	}
	return short(n, s.minFree), short(n, s.minFree/4)
}

func short(free, limit uint64) error {
	if free < limit {
		return fmt.Errorf("%w: %d MiB free, %d MiB needed", ErrNoSpace, free>>20, limit>>20)
	}
	return nil
}
