package bids

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// announcement names one announcement of a bid.
type announcement struct {
	renter  attest.Key
	request market.Nonce
	seq     uint64
}

func announcementOf(b market.Bid) announcement {
	return announcement{renter: b.Renter, request: b.Request, seq: b.Seq}
}

// seen remembers announcements until they expire, and which text each had first. It takes about 200 bytes each.
type seen struct {
	mu    sync.Mutex
	most  int
	known map[announcement]text
	swept time.Time
}

// text is what an announcement said.
type text struct {
	digest attest.Digest
	until  int64 // Unix ms
}

func newSeen(most int) *seen { return &seen{most: most, known: make(map[announcement]text)} }

// note remembers a. It reports whether it is new, if not whether its text is the same as then, and whether there was
// room. A known one always has room.
func (s *seen) note(a announcement, digest attest.Digest, until, now time.Time) (first, same, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.known[a]; ok {
		return false, t.digest == digest, true
	}
	if len(s.known) >= s.most && !s.sweep(now) {
		return false, false, false
	}
	s.known[a] = text{digest: digest, until: until.UnixMilli()}
	return true, true, true
}

// sweep forgets what has expired and reports whether there is room. It looks at most once a second: a flood must not buy
// a walk through the whole memory with each message.
func (s *seen) sweep(now time.Time) bool {
	if d := now.Sub(s.swept); d >= 0 && d < time.Second {
		return false
	}
	s.swept = now
	for old, t := range s.known {
		if now.UnixMilli() > t.until {
			delete(s.known, old)
		}
	}
	return len(s.known) < s.most
}

func (s *seen) forget(a announcement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, a)
}

// recent is how many verified bids are kept, about 1.5 KB each. The copies of one bid come within seconds.
const recent = 1024

// verified keeps the last bids whose signatures held.
type verified struct {
	mu   sync.Mutex
	bids map[attest.Digest]checked
	ring [recent]attest.Digest
	next int
}

func newVerified() *verified { return &verified{bids: make(map[attest.Digest]checked)} }

func (v *verified) get(d attest.Digest) (checked, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, ok := v.bids[d]
	return c, ok
}

// put keeps c in place of the oldest.
func (v *verified) put(d attest.Digest, c checked) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.bids[d]; ok {
		return
	}
	delete(v.bids, v.ring[v.next])
	v.ring[v.next], v.bids[d] = d, c
	v.next = (v.next + 1) % recent
}

// maxBudgets bounds the memory of [budgets].
const maxBudgets = 4096

// budgets are token buckets per peer that run dry by what a peer does and can be asked about without paying.
type budgets struct {
	perSecond, burst float64

	mu    sync.Mutex
	left  map[peer.ID]balance
	swept time.Time
}

type balance struct {
	tokens float64
	at     time.Time
}

func newBudgets(perSecond, burst float64) *budgets {
	return &budgets{perSecond: perSecond, burst: burst, left: make(map[peer.ID]balance)}
}

func (b *budgets) balance(id peer.ID, now time.Time) balance {
	v, ok := b.left[id]
	if !ok {
		return balance{tokens: b.burst, at: now}
	}
	if d := now.Sub(v.at); d > 0 {
		v = balance{tokens: min(b.burst, v.tokens+d.Seconds()*b.perSecond), at: now}
	}
	return v
}

// spend takes a token, if there is one.
func (b *budgets) spend(id peer.ID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.balance(id, now)
	v.tokens = max(0, v.tokens-1)
	if _, ok := b.left[id]; !ok && len(b.left) >= maxBudgets {
		b.sweep(now)
	}
	b.left[id] = v
}

// sweep forgets peers whose buckets are full, and if there is none, any one.
func (b *budgets) sweep(now time.Time) {
	if now.Sub(b.swept) >= time.Second {
		b.swept = now
		for id := range b.left {
			if b.balance(id, now).tokens >= b.burst {
				delete(b.left, id)
			}
		}
	}
	for id := range b.left {
		if len(b.left) < maxBudgets {
			return
		}
		delete(b.left, id)
	}
}

// broke reports whether less than one token is left.
func (b *budgets) broke(id peer.ID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.balance(id, now).tokens < 1
}
