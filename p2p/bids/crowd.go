package bids

import (
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// crowdBurst is how many seconds of its rate a crowd may use at once.
const crowdBurst = 10

// calmPerMinute is how many bids a minute a renter without evidence has for certain while a crowd presses.
const calmPerMinute = 2

// crowd bounds the bids of all renters without evidence together, since keys cost nothing. While the bucket is less than
// half full, a key gets calmPerMinute only: those who announce little are served before those who announce much, and, as
// all peers decide alike, a bid that one peer lets pass is seldom stopped by the next.
type crowd struct {
	perSecond, burst float64
	calm             *p2p.Limiter

	mu     sync.Mutex
	tokens float64
	at     time.Time
}

func newCrowd(perSecond float64) *crowd {
	return &crowd{perSecond: perSecond, burst: crowdBurst * perSecond, tokens: crowdBurst * perSecond, calm: p2p.NewLimiter(calmPerMinute, calmPerMinute)}
}

// admit reports whether a bid of that renter may pass.
func (c *crowd) admit(renter attest.Key, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := now.Sub(c.at); d > 0 {
		c.tokens = min(c.burst, c.tokens+d.Seconds()*c.perSecond)
		c.at = now
	}
	if c.tokens < 1 {
		return false
	}
	if calm := c.calm.Allow(renter, now); !calm && c.tokens < c.burst/2 {
		return false
	}
	c.tokens--
	return true
}
