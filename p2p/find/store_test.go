package find_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// fake returns an ask of a made-up provider; a store believes its callers.
func fake(i int, seq uint64, now time.Time, life time.Duration) market.Ask {
	var key attest.Key
	copy(key[:], fmt.Sprintf("%d", i))
	return market.Ask{
		Provider: key, Seq: seq, IssuedAt: now.UnixMilli(), ExpiresAt: now.Add(life).UnixMilli(),
		Lots: []market.Lot{{Class: "nv-24g"}}, Place: market.Place{Continent: "eu"},
	}
}

func TestStoreBounds(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const limit, honest, flood = 1000, 400, 50_000
	s := find.NewStore(limit)
	if err := s.Add(fake(-1, 1, now, time.Hour), attest.Envelope{}, "", now); err != nil {
		t.Fatal(err)
	}
	for i := range honest { // each from a network of its own
		if err := s.Add(fake(i, 1, now, time.Hour), attest.Envelope{}, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), now); err != nil {
			t.Fatal(err)
		}
	}
	full := 0
	for i := range flood { // from three networks
		err := s.Add(fake(1000+i, 1, now, time.Hour), attest.Envelope{}, fmt.Sprintf("203.0.%d.0/24", i%3), now)
		if err != nil && !errors.Is(err, find.ErrFull) {
			t.Fatal(err)
		}
		if err != nil {
			full++
		}
	}
	found := make(map[attest.Key]bool)
	for _, k := range s.Find(limit, find.Query{}, now) {
		found[k] = true
	}
	left := 0
	for i := range honest {
		if found[fake(i, 1, now, 0).Provider] {
			left++
		}
	}
	if s.Size() != limit || left != honest || !found[fake(-1, 1, now, 0).Provider] {
		t.Errorf("after %d asks from three networks the store holds %d, of them %d of %d others, want %d and all; refused %d", flood, s.Size(), left, honest, limit, full)
	}
	if err := s.Add(fake(3, 0, now, time.Hour), attest.Envelope{}, "x", now); !errors.Is(err, find.ErrOlder) {
		t.Errorf("an older ask: %v, want %v", err, find.ErrOlder)
	}
	later := now.Add(2 * time.Hour)
	if n := len(s.Find(limit, find.Query{}, later)); n != 0 {
		t.Errorf("%d asks found after they expired", n)
	}
	if err := s.Add(fake(9999, 1, later, time.Hour), attest.Envelope{}, "203.0.0.0/24", later); err != nil || s.Size() != 1 {
		t.Errorf("after all expired: %v, and %d are held, want 1", err, s.Size())
	}
}

// TestHotBucket holds that what a look-up gets from a bucket of 5,000 depends on what it wants alone, and differs.
func TestHotBucket(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := find.NewStore(8192)
	for i := range 5000 {
		if err := s.Add(fake(i, 1, now, time.Hour), attest.Envelope{}, "x", now); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[attest.Key]bool)
	for range 100 {
		keys := s.Find(8, find.Query{Classes: []string{"nv-24g"}, Places: []string{"eu"}}, now)
		if len(keys) != 8 {
			t.Fatalf("found %d", len(keys))
		}
		for _, k := range keys {
			seen[k] = true
		}
	}
	if len(seen) < 400 {
		t.Errorf("a hundred look-ups for 8 of 5,000 found %d different ones, want most of 800", len(seen))
	}
	if n := len(s.Find(8, find.Query{Classes: []string{"nv-80g"}}, now)); n != 0 {
		t.Errorf("found %d of another class", n)
	}
}

func BenchmarkHotBucket(b *testing.B) {
	now := time.Unix(1_800_000_000, 0)
	s := find.NewStore(8192)
	for i := range 8192 {
		_ = s.Add(fake(i, 1, now, time.Hour), attest.Envelope{}, "x", now)
	}
	for _, tt := range []struct {
		name string
		q    find.Query
	}{{"found", find.Query{Classes: []string{"nv-24g"}}}, {"none", find.Query{Classes: []string{"nv-80g"}}}} {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				s.Find(8, tt.q, now)
			}
		})
	}
}
