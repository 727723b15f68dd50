package store_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/store"
)

// A receipt in its envelope has about 470 bytes. benchWriters is how many leases are billed at once; each writes a
// receipt when the one before is durable.
const (
	benchValue   = 470
	benchWriters = 64
)

// BenchmarkDurable measures the store: receipts of 64 leases at once.
func BenchmarkDurable(b *testing.B) { report(b, durable(b)) }

// BenchmarkRawBadger is the bound: the same writers hand their records to one goroutine, which commits what is there
// as one synced transaction and does nothing else: no checksum, no condition, no notes.
func BenchmarkRawBadger(b *testing.B) { report(b, rawBatches(b)) }

// BenchmarkRawBadgerSingle is Badger as it comes: each writer commits its own synced transaction.
func BenchmarkRawBadgerSingle(b *testing.B) { report(b, rawSingle(b)) }

// BenchmarkRatio prints what share of the bound the store reaches, both measured in turns on the same disk, and who
// begins changes from turn to turn. It is the median of the turns, since a disk that others use too has bad moments.
func BenchmarkRatio(b *testing.B) {
	const n = 64 * 200
	ours, bound := durable(b), rawBatches(b)
	var ratios, rates []float64
	for b.Loop() {
		var a, c time.Duration
		if len(ratios)%2 == 0 {
			a, c = timed(n, ours), timed(n, bound)
		} else {
			c, a = timed(n, bound), timed(n, ours)
		}
		ratios, rates = append(ratios, float64(c)/float64(a)), append(rates, n/a.Seconds())
	}
	slices.Sort(ratios)
	slices.Sort(rates)
	b.ReportMetric(ratios[len(ratios)/2], "durable/raw")
	b.ReportMetric(rates[len(rates)/2], "receipts/s")
}

type writeFunc func(writer int, seq uint64) error

func report(b *testing.B, write writeFunc) {
	b.SetBytes(benchValue)
	b.ResetTimer()
	took := timed(b.N, write)
	b.ReportMetric(float64(b.N)/took.Seconds(), "receipts/s")
}

// timed writes n records, shared among the writers, and returns how long it took. It panics on an error, as a figure
// without the writes behind it would be wrong.
func timed(n int, write writeFunc) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for w := range benchWriters {
		wg.Go(func() {
			for i := w; i < n; i += benchWriters {
				if err := write(w, uint64(start.UnixNano())+uint64(i)); err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func durable(b *testing.B) writeFunc {
	s := openDir(b, b.TempDir())
	e := envelope("", 1)
	e.Payload = bytes.Repeat([]byte{7}, benchValue-len(e.Sig)-len(e.Signer)-len(e.Domain)-16)
	return func(w int, seq uint64) error {
		return s.AppendReceipt(attest.Digest{byte(w + 1)}, seq, e)
	}
}

func rawSingle(b *testing.B) writeFunc {
	db, value := raw(b), bytes.Repeat([]byte{7}, benchValue)
	return func(w int, seq uint64) error {
		return db.Update(func(txn *badger.Txn) error { return txn.Set(rawKey(w, seq), value) })
	}
}

func rawBatches(b *testing.B) writeFunc {
	type entry struct {
		key  []byte
		done chan error
	}
	db, value := raw(b), bytes.Repeat([]byte{7}, benchValue)
	queue := make(chan entry, benchWriters)
	var committer sync.WaitGroup
	committer.Go(func() {
		for first := range queue {
			group := []entry{first}
			for len(queue) > 0 && len(group) < benchWriters {
				group = append(group, <-queue)
			}
			err := db.Update(func(txn *badger.Txn) error {
				for _, w := range group {
					if err := txn.Set(w.key, value); err != nil {
						return err
					}
				}
				return nil
			})
			for _, w := range group {
				w.done <- err
			}
		}
	})
	b.Cleanup(func() { close(queue); committer.Wait() })
	return func(w int, seq uint64) error {
		done := make(chan error, 1)
		queue <- entry{rawKey(w, seq), done}
		return <-done
	}
}

func raw(b *testing.B) *badger.DB {
	db, err := badger.Open(store.RawOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

func rawKey(w int, seq uint64) []byte {
	key := make([]byte, 41)
	key[1] = byte(w)
	binary.BigEndian.PutUint64(key[33:], seq)
	return key
}
