package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// One goroutine at a time commits: it holds the token in Store.lead, takes what is in the queue and writes it as one
// transaction with one sync. Those that come meanwhile queue up, and one of them leads the next group. So the number
// of syncs falls as the load rises, nobody waits for a timer, and a single writer can check before it writes.

// op is one change within a request.
type op struct {
	rec  Record
	full []byte // kind and key; set by submit
	raw  []byte // rec.Value in its frame; set by submit, and rec.Value is then a part of it
	del  bool
	once bool // the key may be written once; the same value again is no error
	lazy bool // nobody was told that it is durable
}

// request is what one call wants written: all of it or nothing.
type request struct {
	ops  []op
	size int
	wait bool          // someone waits for done
	done chan struct{} // closed when err is final
	err  error
}

// lazyLimit is how many bytes of lazy records may wait before the caller that adds to them commits.
const lazyLimit = 64 << 10

// Put writes the records in one transaction and syncs. When it returns nil they are durable. Errors wrap
// [ErrNoSpace], [ErrTooBig], [ErrClosed] or [ErrBroken].
func (s *Store) Put(recs ...Record) error { return s.put(true, recs) }

// PutLazy is for what may be lost: the records are written in one transaction with the next durable ones, or within
// about a second while [Store.Run] runs, or at Close. Reads of these kinds see them at once. A kill or power cut
// before that loses them.
func (s *Store) PutLazy(recs ...Record) error { return s.put(false, recs) }

func (s *Store) put(wait bool, recs []Record) error {
	r := &request{wait: wait, ops: make([]op, 0, len(recs))}
	for _, rec := range recs {
		r.ops = append(r.ops, op{rec: rec})
	}
	return s.submit(r)
}

// Delete removes the records; those that do not exist are no error. It is durable like [Store.Put].
func (s *Store) Delete(k Kind, keys ...[]byte) error {
	r := &request{wait: true}
	for _, key := range keys {
		r.ops = append(r.ops, op{rec: Record{Kind: k, Key: key}, del: true})
	}
	return s.submit(r)
}

// submit queues r and, if r waits, returns when it is durable or refused.
func (s *Store) submit(r *request) error {
	for i, o := range r.ops {
		if err := o.rec.validate(); err != nil {
			return fmt.Errorf("write store: %w", err)
		}
		// The caller may use its slices again while the request waits.
		full := fullKey(o.rec.Kind, o.rec.Key)
		r.ops[i].full, r.ops[i].raw = full, seal(full, o.rec.Value)
		r.ops[i].rec.Key, r.ops[i].rec.Value = full[1:], r.ops[i].raw[frameLen:]
		r.size += len(o.rec.Key) + len(o.rec.Value) + 64
	}
	if r.size > MaxBatch+64*len(r.ops) || len(r.ops) > maxRecords {
		return fmt.Errorf("write store: %w: %d records of %d bytes in all", ErrTooBig, len(r.ops), r.size)
	}
	if len(r.ops) == 0 {
		return nil
	}
	if err := s.enter(); err != nil {
		return fmt.Errorf("write store: %w", err)
	}
	defer s.leave()
	r.done = make(chan struct{})
	s.mu.Lock()
	s.queue = append(s.queue, r)
	full := false
	if !r.wait {
		for _, o := range r.ops {
			s.lazy[o.rec.Kind]++
		}
		s.lazyLen += r.size
		full = s.lazyLen > lazyLimit
	}
	s.mu.Unlock()
	if !r.wait && !full {
		return nil
	}
	s.await(r)
	if r.err != nil {
		return fmt.Errorf("write store: %w", r.err)
	}
	return nil
}

// await returns when r is done, leading groups until then if nobody else does.
func (s *Store) await(r *request) {
	select {
	case <-r.done:
	case s.lead <- struct{}{}:
		for !isDone(r) {
			s.commitGroup()
		}
		<-s.lead
	}
}

func isDone(r *request) bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// flush makes everything durable that was queued when it was called. How lazy records fared is logged.
func (s *Store) flush() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.lead <- struct{}{} // also waits for a group that is being written
	defer func() { <-s.lead }()
	s.mu.Lock()
	var last *request
	if n := len(s.queue); n > 0 {
		last = s.queue[n-1]
	}
	s.mu.Unlock()
	for last != nil && !isDone(last) {
		s.commitGroup()
	}
	return nil
}

// flushKind makes lazy records of that kind visible to a read.
func (s *Store) flushKind(k Kind) error {
	s.mu.Lock()
	n := s.lazy[k]
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	return s.flush()
}

// take removes from the queue what fits into one transaction.
func (s *Store) take() (group []*request, broken error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, records := 0, 0
	for len(s.queue) > 0 {
		r := s.queue[0]
		if len(group) > 0 && (size+r.size > MaxBatch || records+len(r.ops) > maxRecords) {
			break
		}
		size, records = size+r.size, records+len(r.ops)
		group, s.queue[0], s.queue = append(group, r), nil, s.queue[1:]
	}
	return group, s.broken
}

// settle tells those who wait how it ended.
func (s *Store) settle(group []*request) {
	s.mu.Lock()
	for _, r := range group {
		if r.wait {
			continue
		}
		for _, o := range r.ops {
			if s.lazy[o.rec.Kind]--; s.lazy[o.rec.Kind] == 0 {
				delete(s.lazy, o.rec.Kind)
			}
		}
		s.lazyLen -= r.size
		if r.err != nil {
			s.log.Warn("lazy records lost", "records", len(r.ops), "err", r.err)
		}
	}
	s.mu.Unlock()
	for _, r := range group {
		close(r.done)
	}
}

// commitGroup writes one group. Only the leader calls it.
func (s *Store) commitGroup() {
	group, broken := s.take()
	if len(group) == 0 {
		return
	}
	defer s.settle(group)
	refuse := func(err error) {
		for _, r := range group {
			r.err = err
		}
	}
	if broken != nil {
		refuse(fmt.Errorf("%w: %w", ErrBroken, broken))
		return
	}
	// Before Badger maps anything: writing to a mapped page that the disk has no room for kills the process.
	low, none := s.spaceFor()
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	var accepted []*request
	for _, r := range group {
		switch {
		case none != nil:
			r.err = none
		case low != nil && !deletesOnly(r):
			r.err = low
		default:
			r.err = s.check(txn, r)
		}
		if r.err != nil {
			continue
		}
		if err := s.apply(txn, r); err != nil {
			refuse(err)
			return
		}
		accepted = append(accepted, r)
	}
	if len(accepted) == 0 {
		return
	}
	if err := s.finish(txn, accepted); err != nil {
		s.mu.Lock()
		s.broken = err
		s.mu.Unlock()
		s.log.Error("store write failed", "err", err)
		refuse(fmt.Errorf("%w: %w", ErrBroken, err))
	}
}

func deletesOnly(r *request) bool {
	for _, o := range r.ops {
		if !o.del {
			return false
		}
	}
	return true
}

// check holds the conditions of r against the database and the requests of the group before it.
func (s *Store) check(txn *badger.Txn, r *request) error {
	for i, o := range r.ops {
		if !o.once {
			continue
		}
		for _, before := range r.ops[:i] { // requests with conditions are short
			if before.once && bytes.Equal(before.full, o.full) && !bytes.Equal(before.rec.Value, o.rec.Value) {
				return conflict(o.full)
			}
		}
		if err := s.checkOnce(txn, o.full, o.rec.Value); err != nil {
			return err
		}
	}
	return nil
}

func conflict(full []byte) error {
	return fmt.Errorf("%w: %s", ErrConflict, Ref{Kind(full[0]), full[1:]})
}

// apply adds the changes of r to txn.
func (s *Store) apply(txn *badger.Txn, r *request) error {
	for _, o := range r.ops {
		full := o.full
		if s.isLost(full) {
			if err := txn.Delete(fullKey(kindLost, full)); err != nil {
				return err
			}
		}
		if o.del {
			if err := txn.Delete(full); err != nil {
				return err
			}
			continue
		}
		s.note(full)
		e := badger.NewEntry(full, o.raw)
		if o.rec.TTL > 0 {
			e = e.WithTTL(o.rec.TTL)
		}
		if err := txn.SetEntry(e); err != nil {
			return err
		}
	}
	return nil
}

// checkOnce refuses a value whose key has, or had before it was lost, another one.
func (s *Store) checkOnce(txn *badger.Txn, full, value []byte) error {
	var old []byte
	err := ErrNotFound
	if !s.isFree(txn, full) {
		old, err = get(txn, full)
	}
	switch {
	case err == nil && !bytes.Equal(old, value):
		return conflict(full)
	case err == nil:
		return nil
	case !errors.Is(err, ErrNotFound):
		return err
	}
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	if sum, ok := s.lost[string(full)]; ok && sum != payloadSum(value) {
		return conflict(full)
	}
	return nil
}

// finish commits and notes what was acknowledged. What may be gone is noted before, so that a kill in between never
// makes a removal look like a loss.
func (s *Store) finish(txn *badger.Txn, accepted []*request) error {
	gone, kept := notes(accepted)
	if err := s.acks.append(gone, 0); err != nil {
		return err
	}
	if err := txn.Commit(); err != nil {
		return err
	}
	s.forgetLost(accepted)
	if len(kept) == 0 {
		return nil
	}
	version, err := s.version(kept[0].full) // one transaction, one version
	if err != nil {
		return err
	}
	return s.acks.append(kept, version)
}

// notes returns what the group leaves of each key: keys that are or will be gone, and keys that must be found again.
// Of several changes to one key the last one counts.
func notes(accepted []*request) (gone, kept []ack) {
	last := make(map[string]op, len(accepted))
	order := make([][]byte, 0, len(accepted))
	for _, r := range accepted {
		for _, o := range r.ops {
			if _, ok := last[string(o.full)]; !ok {
				order = append(order, o.full)
			}
			o.lazy = !r.wait
			last[string(o.full)] = o
		}
	}
	for _, full := range order {
		o := last[string(full)]
		switch {
		case o.del || o.rec.TTL > 0:
			gone = append(gone, ack{full: full, gone: true})
		case !o.lazy:
			kept = append(kept, ack{full: full, sum: payloadSum(o.rec.Value)})
		}
	}
	return gone, kept
}
