package p2p_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

func numbered(i int) (k attest.Key) {
	binary.BigEndian.PutUint64(k[:], uint64(i+1))
	return k
}

func TestLimiter(t *testing.T) {
	l := p2p.NewLimiter(6, 2)
	now := time.UnixMilli(1_800_000_000_000)
	for i, tt := range []struct {
		after time.Duration // since the row before
		key   int
		want  bool
	}{
		{0, 1, true}, {0, 1, true}, {0, 1, false},
		{0, 2, true},                // its own bucket
		{9 * time.Second, 1, false}, // a token every 10 s
		{2 * time.Second, 1, true},
		{-time.Hour, 1, false}, // a clock set back gives nothing
		{2 * time.Hour, 1, true}, {0, 1, true}, {0, 1, false},
	} {
		now = now.Add(tt.after)
		if got := l.Allow(numbered(tt.key), now); got != tt.want {
			t.Errorf("row %d: Allow = %v, want %v", i, got, tt.want)
		}
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := p2p.NewLimiter(1, 1)
	now := time.UnixMilli(1_800_000_000_000)
	taken := 0
	for i := range 10_000 {
		if l.Allow(numbered(i), now) {
			taken++
		}
	}
	if taken != 4096 {
		t.Errorf("%d fresh keys got through at once, want 4096", taken)
	}
	if l.Allow(numbered(5), now) {
		t.Error("a known key got a fresh bucket in the flood")
	}
	if !l.Allow(numbered(20_000), now.Add(2*time.Minute)) {
		t.Error("a fresh key is refused after the flood")
	}
}
