package p2p

import (
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// maxBuckets bounds the memory of a [Limiter], about 100 bytes a peer.
const maxBuckets = 4096

// Limiter is a token bucket per peer.
type Limiter struct {
	perMinute int
	burst     int
	mu        sync.Mutex
	buckets   map[attest.Key]bucket
	swept     time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
}

// NewLimiter returns a limiter that lets each peer act perMinute times a minute, and burst times at once.
func NewLimiter(perMinute, burst int) *Limiter {
	return &Limiter{perMinute: perMinute, burst: burst, buckets: make(map[attest.Key]bucket)}
}

// Allow takes a token of that peer and reports whether there was one. When thousands of keys act at once and none of
// their buckets is full again, unknown ones are refused: a flood of fresh keys must not push out the known ones.
func (l *Limiter) Allow(key attest.Key, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[key]
	if !known {
		if len(l.buckets) >= maxBuckets && !l.sweep(now) {
			return false
		}
		b = bucket{tokens: float64(l.burst), at: now}
	}
	b = l.refill(b, now)
	ok := b.tokens >= 1
	if ok {
		b.tokens--
	}
	l.buckets[key] = b
	return ok
}

func (l *Limiter) refill(b bucket, now time.Time) bucket {
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(float64(l.burst), b.tokens+d.Minutes()*float64(l.perMinute))
		b.at = now
	}
	return b
}

// sweep forgets peers whose buckets are full, which is what an unknown peer has, and reports whether there is room. It
// looks at most once a second: a flood must not buy a walk through all buckets with each attempt.
func (l *Limiter) sweep(now time.Time) bool {
	if d := now.Sub(l.swept); d >= 0 && d < time.Second {
		return false
	}
	l.swept = now
	for key, b := range l.buckets {
		if l.refill(b, now).tokens >= float64(l.burst) {
			delete(l.buckets, key)
		}
	}
	return len(l.buckets) < maxBuckets
}
