package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// Report is what [Store.Check] found.
type Report struct {
	Records int             // read and sound
	Damaged []*CorruptError // in the order of keys; damage to a whole table comes first, without a kind
	Lost    []Ref           // see [Store.Lost]
}

// Err returns nil if nothing is damaged or lost, else an error that names the first of each.
func (r Report) Err() error {
	var errs []error
	if n := len(r.Damaged); n > 0 {
		errs = append(errs, fmt.Errorf("%d damaged, first: %w", n, r.Damaged[0]))
	}
	if n := len(r.Lost); n > 0 {
		errs = append(errs, fmt.Errorf("%d acknowledged and lost, first: %s", n, r.Lost[0]))
	}
	return errors.Join(errs...)
}

// Check reads every table and every record and holds them against their checksums. It goes on after damage. The error
// says why it could not finish: ctx ended, or the store is closed.
func (s *Store) Check(ctx context.Context) (Report, error) {
	var r Report
	if err := s.enter(); err != nil {
		return r, fmt.Errorf("check store: %w", err)
	}
	defer s.leave()
	if err := s.flush(); err != nil {
		return r, fmt.Errorf("check store: %w", err)
	}
	err := s.walkAll(ctx, &r)
	if err != nil {
		return r, fmt.Errorf("check store: %w", err)
	}
	r.Lost = s.Lost()
	return r, nil
}

// walkAll adds to r what it finds. A panic of Badger over a damaged table is damage too.
func (s *Store) walkAll(ctx context.Context, r *Report) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Damaged = append(r.Damaged, &CorruptError{Detail: fmt.Sprint("a table file: ", p)})
		}
	}()
	if err := s.db.VerifyChecksum(); err != nil {
		r.Damaged = append(r.Damaged, &CorruptError{Detail: "a table file: " + err.Error()})
	}
	return s.db.View(func(txn *badger.Txn) error {
		return walk(txn, nil, false, func(full, _ []byte, err error) error {
			var damage *CorruptError
			switch {
			case errors.As(err, &damage):
				r.Damaged = append(r.Damaged, damage)
			case err != nil:
				return err
			default:
				r.Records++
			}
			return ctx.Err()
		})
	})
}

// findDamage is the quick check at start: Badger's checksums over whole tables, and only if one of these fails, every
// record. Damage that hits no record that can be named makes the store unusable: what is missing is not known.
func (s *Store) findDamage() error {
	if err := s.db.VerifyChecksum(); err == nil {
		return nil
	}
	var r Report
	if err := s.walkAll(context.Background(), &r); err != nil {
		return err
	}
	for _, d := range r.Damaged {
		s.log.Error("stored record damaged", "record", Ref{d.Kind, d.Key}.String(), "err", d)
		if d.Kind != 0 {
			s.damaged = append(s.damaged, d)
		}
	}
	if len(s.damaged) == 0 {
		return r.Damaged[0]
	}
	return nil
}

// Damaged returns the damaged records that Open found in tables, in the order of keys. As damage may hit a key too,
// what is named may be misnamed; with any damage to receipts or vouchers the caller abandons its open leases.
func (s *Store) Damaged() []*CorruptError { return slices.Clone(s.damaged) }
