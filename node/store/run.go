package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"
)

const (
	flushEvery = time.Second
	spaceEvery = 10 * time.Second
	gcEvery    = time.Hour
	gcShare    = 0.5 // a value log file is rewritten when this much of it is garbage
)

// Run does what falls due until ctx ends, and returns nil then: it writes lazy records, says when free space falls
// below the limit and when it is there again, and lets Badger collect garbage. It returns an error only when the
// store is closed under it. The store works without Run; call it once.
func (s *Store) Run(ctx context.Context) error {
	flush, space, gc := time.NewTicker(flushEvery), time.NewTicker(spaceEvery), time.NewTicker(gcEvery)
	defer flush.Stop()
	defer space.Stop()
	defer gc.Stop()
	low := false
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-flush.C:
			err = s.flush()
		case <-space.C:
			low = s.watchSpace(low)
		case <-gc.C:
			err = s.collect(ctx)
		}
		if err != nil {
			return fmt.Errorf("run store: %w", err)
		}
	}
}

// watchSpace logs a change of state and returns the new one.
func (s *Store) watchSpace(low bool) bool {
	err := s.checkSpace(s.minFree)
	switch {
	case errors.Is(err, ErrNoSpace) && !low:
		s.log.Error("store takes no more writes", "dir", s.dir, "err", err)
		return true
	case err == nil && low:
		s.log.Info("store takes writes again", "dir", s.dir)
		return false
	}
	return low
}

// collect rewrites value log files until none is worth it. Values lie in the tables, so this is for files of
// exceptional size only.
func (s *Store) collect(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	for ctx.Err() == nil {
		err := s.db.RunValueLogGC(gcShare)
		if errors.Is(err, badger.ErrNoRewrite) || errors.Is(err, badger.ErrRejected) {
			return nil
		}
		if err != nil {
			s.log.Warn("garbage collection failed", "err", err)
			return nil
		}
	}
	return nil
}
