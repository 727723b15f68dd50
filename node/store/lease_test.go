package store_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/store"
)

func envelope(payload string, signer byte) attest.Envelope {
	return attest.Envelope{Domain: "test/1", Payload: []byte(payload), Signer: attest.Key{signer}, Sig: [64]byte{signer}}
}

func TestLeases(t *testing.T) {
	s := openDir(t, t.TempDir())
	a, b := attest.Digest{1}, attest.Digest{2}
	for _, v := range []string{"old", "new"} {
		if err := s.SaveLease(b, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveLease(a, []byte("a")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Lease(b); string(got) != "new" || err != nil {
		t.Errorf("Lease = %q, %v", got, err)
	}
	if _, err := s.Lease(attest.Digest{3}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Lease = %v, want ErrNotFound", err)
	}
	var got []string
	err := s.Leases(func(id attest.Digest, v []byte, _ error) error {
		got = append(got, fmt.Sprint(id[0], string(v)))
		return nil
	})
	if d := cmp.Diff([]string{"1a", "2new"}, got); d != "" || err != nil {
		t.Errorf("Leases: %v %s", err, d)
	}
}

// chains are the two kinds of numbered records, with the same rule.
func chains(s *store.Store) map[string]chain {
	return map[string]chain{
		"receipts": {s.AppendReceipt, s.Receipts, s.LastReceipt},
		"vouchers": {s.AppendVoucher, s.Vouchers, s.LastVoucher},
	}
}

type chain struct {
	add  func(attest.Digest, uint64, attest.Envelope) error
	all  func(attest.Digest) ([]attest.Envelope, error)
	last func(attest.Digest) (uint64, attest.Envelope, error)
}

func TestChains(t *testing.T) {
	s := openDir(t, t.TempDir())
	lease, other := attest.Digest{1}, attest.Digest{2}
	for name, c := range chains(s) {
		t.Run(name, func(t *testing.T) {
			if _, _, err := c.last(lease); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("last of none = %v, want ErrNotFound", err)
			}
			var want []attest.Envelope
			for seq := uint64(1); seq <= 300; seq++ { // past one byte
				e := envelope(fmt.Sprint(name, seq), 1)
				want = append(want, e)
				if err := c.add(lease, seq, e); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.add(other, 1, envelope("other", 2)); err != nil {
				t.Fatal(err)
			}
			if err := c.add(lease, 7, want[6]); err != nil {
				t.Errorf("the same again = %v, want nil", err)
			}
			if err := c.add(lease, 7, envelope("different", 1)); !errors.Is(err, store.ErrConflict) {
				t.Errorf("a different 7 = %v, want ErrConflict", err)
			}
			if err := c.add(lease, 0, envelope("zero", 1)); err == nil {
				t.Error("number 0 = nil, want an error")
			}
			if err := c.add(lease, 301, attest.Envelope{}); err == nil {
				t.Error("empty envelope = nil, want an error")
			}
			got, err := c.all(lease)
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("all: %v %s", err, d)
			}
			if seq, e, err := c.last(lease); seq != 300 || !cmp.Equal(e, want[299]) || err != nil {
				t.Errorf("last = %d, %v", seq, err)
			}
		})
	}
}

func TestMissingReceiptIsNamed(t *testing.T) {
	s := openDir(t, t.TempDir())
	lease := attest.Digest{1}
	for _, seq := range []uint64{2, 3, 6} {
		if err := s.AppendReceipt(lease, seq, envelope("r", 1)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Receipts(lease)
	var missing *store.MissingError
	if !errors.As(err, &missing) || !cmp.Equal(missing.Seqs, []uint64{1, 4, 5}) || len(got) != 3 {
		t.Errorf("Receipts = %d, %v", len(got), err)
	}
}

func TestOneNumberOneReceiptUnderConcurrency(t *testing.T) {
	s := openDir(t, t.TempDir())
	lease := attest.Digest{1}
	const seqs, rivals = 20, 8
	var won [seqs + 1]atomic.Int32
	var wg sync.WaitGroup
	for g := range rivals {
		wg.Go(func() {
			for seq := uint64(1); seq <= seqs; seq++ {
				err := s.AppendReceipt(lease, seq, envelope(fmt.Sprint(seq), byte(g+1)))
				switch {
				case err == nil:
					won[seq].Add(1)
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("AppendReceipt = %v", err)
				}
			}
		})
	}
	wg.Wait()
	for seq := 1; seq <= seqs; seq++ {
		if n := won[seq].Load(); n != 1 {
			t.Errorf("receipt %d was accepted %d times, want once", seq, n)
		}
	}
}

func TestBatchIsAllOrNothing(t *testing.T) {
	s := openDir(t, t.TempDir())
	lease := attest.Digest{1}
	var b store.Batch
	b.SaveLease(lease, []byte("one"))
	b.AppendReceipt(lease, 1, envelope("r1", 1))
	b.AppendVoucher(lease, 1, envelope("v1", 2))
	b.PutOutcome(lease, envelope("o", 2))
	b.SaveJob("job", []byte("j"))
	b.SaveMeta("m", []byte("m"))
	for range 2 {
		if err := s.Commit(&b); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		fill func(b *store.Batch)
	}{
		{"number is taken", func(b *store.Batch) { b.AppendReceipt(lease, 1, envelope("other", 1)) }},
		{"one number twice", func(b *store.Batch) {
			b.AppendReceipt(lease, 2, envelope("x", 1))
			b.AppendReceipt(lease, 2, envelope("y", 1))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var bad store.Batch
			bad.SaveLease(lease, []byte("two"))
			bad.Delete(store.KindJob, []byte("job"))
			tt.fill(&bad)
			if err := s.Commit(&bad); !errors.Is(err, store.ErrConflict) {
				t.Errorf("Commit = %v, want ErrConflict", err)
			}
			if v, err := s.Lease(lease); string(v) != "one" || err != nil {
				t.Errorf("Lease = %q, %v: half a batch", v, err)
			}
			if _, err := s.Job("job"); err != nil {
				t.Errorf("Job = %v: half a batch", err)
			}
			if seq, _, err := s.LastReceipt(lease); seq != 1 || err != nil {
				t.Errorf("LastReceipt = %d, %v: half a batch", seq, err)
			}
		})
	}
	if err := s.Commit(&store.Batch{}); err != nil {
		t.Errorf("empty batch = %v", err)
	}
}

func TestOutcomes(t *testing.T) {
	s := openDir(t, t.TempDir())
	lease := attest.Digest{1}
	for _, e := range []attest.Envelope{envelope("old", 1), envelope("theirs", 2), envelope("new", 1)} {
		if err := s.PutOutcome(lease, e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Outcomes(lease)
	if d := cmp.Diff([]attest.Envelope{envelope("new", 1), envelope("theirs", 2)}, got); d != "" || err != nil {
		t.Errorf("Outcomes: %v %s", err, d)
	}
}

func TestReceipt(t *testing.T) {
	s := openDir(t, t.TempDir())
	lease := attest.Digest{1}
	if err := s.AppendReceipt(lease, 1, envelope("r", 1)); err != nil {
		t.Fatal(err)
	}
	got, err := s.Receipt(lease, 1)
	if d := cmp.Diff(envelope("r", 1), got); d != "" || err != nil {
		t.Errorf("Receipt: %v %s", err, d)
	}
	if _, err := s.Receipt(lease, 2); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Receipt = %v, want ErrNotFound", err)
	}
}

// Numbers need not come in order, and what a lease has taken is known again after a restart and when more leases than
// are remembered came in between.
func TestTakenNumbers(t *testing.T) {
	dir := t.TempDir()
	lease := attest.Digest{1}
	numbers := []uint64{5, 3, math.MaxUint64, 7, 1}
	hold := func(s *store.Store, when string) {
		t.Helper()
		for _, n := range numbers {
			if err := s.AppendReceipt(lease, n, envelope("other", 1)); !errors.Is(err, store.ErrConflict) {
				t.Errorf("%s: a different %d = %v, want ErrConflict", when, n, err)
			}
			if err := s.AppendReceipt(lease, n, envelope(fmt.Sprint(n), 1)); err != nil {
				t.Errorf("%s: the same %d = %v, want nil", when, n, err)
			}
		}
	}
	s, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		if err := s.AppendReceipt(lease, n, envelope(fmt.Sprint(n), 1)); err != nil {
			t.Fatal(err)
		}
	}
	hold(s, "at once")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir)
	hold(s, "after a restart")
	var crowd store.Batch
	for i := range 1100 {
		crowd.AppendVoucher(attest.Digest{2, byte(i), byte(i >> 8)}, 1, envelope("v", 1))
	}
	if err := s.Commit(&crowd); err != nil {
		t.Fatal(err)
	}
	hold(s, "after a crowd")
	if err := s.AppendReceipt(lease, 4, envelope("4", 1)); err != nil {
		t.Errorf("a free number between = %v, want nil", err)
	}
}
