package bids

import (
	"errors"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// reason says why a bid was dropped.
type reason string

// The reasons. The first three can only be the fault of the peer that passed the message on, which should have checked;
// it is scored down. Of the others an honest peer may have known less, or have another clock.
const (
	reasonSize      reason = "size"
	reasonMalformed reason = "malformed"
	reasonSignature reason = "signature"
	reasonExpired   reason = "expired"
	reasonFuture    reason = "future"
	reasonReplayed  reason = "replayed"
	reasonRate      reason = "rate"
	reasonFull      reason = "full"  // more announcements than memory for them
	reasonQueue     reason = "queue" // the reader lags behind
)

// provable reports whether the forwarder must have seen the fault.
func (r reason) provable() bool {
	return r == reasonSize || r == reasonMalformed || r == reasonSignature
}

// checked is what the validator hands to the subscription.
type checked struct {
	envelope attest.Envelope
	bid      market.Bid
}

// validate is called by the library for each message of a topic that it has not seen.
func (g *Gossip) validate(t Topic, from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	own := from == g.host.Libp2p().ID()
	c, why := g.guard.check(t, m.GetData(), own, time.Now())
	if why != "" {
		key, err := p2p.KeyOf(from)
		if err != nil {
			key = attest.Key{} // only for the log
		}
		g.drop(why, key)
		if why.provable() {
			return pubsub.ValidationReject
		}
		return pubsub.ValidationIgnore
	}
	m.ValidatorData = c
	return pubsub.ValidationAccept
}

func (g *Gossip) drop(why reason, from attest.Key) {
	g.metrics.drop(why)
	g.log.Debug("bid dropped", "reason", string(why), "peer", from)
}

// guard holds what a check needs to remember.
type guard struct {
	network attest.Digest
	rate    *p2p.Limiter
	byTopic *seen // announcements by topic: the same one may come once on each of several topics
	counted *seen // announcements that were counted against their renter's rate
}

func newGuard(network attest.Digest, perMinute int) *guard {
	return &guard{network: network, rate: p2p.NewLimiter(perMinute, perMinute), byTopic: newSeen(), counted: newSeen()}
}

// check returns the bid in a message, or why it is dropped. Cheap checks come first; a renter's rate comes after the
// signature, or strangers could use it up.
func (g *guard) check(t Topic, data []byte, own bool, now time.Time) (checked, reason) {
	if len(data) > market.MaxBidBytes {
		return checked{}, reasonSize
	}
	e, err := attest.ParseEnvelope(data, market.MaxBidBytes)
	if err != nil {
		return checked{}, reasonMalformed
	}
	bid, err := market.OpenBid(e, g.network, now)
	if err != nil {
		return checked{}, fault(e, err)
	}
	c := checked{envelope: e, bid: bid}
	if own {
		return c, "" // what a peer says itself, it may say
	}
	a := announcement{renter: bid.Renter, request: bid.Request, seq: bid.Seq}
	if first, room := g.counted.note(a, until(bid), now); !room {
		return checked{}, reasonFull
	} else if first && !g.rate.Allow(bid.Renter, now) {
		g.counted.forget(a)
		return checked{}, reasonRate
	}
	a.topic = t
	if !g.byTopic.add(a, until(bid), now) {
		return checked{}, reasonReplayed
	}
	return c, ""
}

// fault sorts an error of [market.OpenBid].
func fault(e attest.Envelope, err error) reason {
	switch {
	case errors.Is(err, market.ErrExpired):
		return reasonExpired
	case errors.Is(err, attest.ErrSignature), errors.Is(err, attest.ErrDomain):
		return reasonSignature
	}
	if _, err := attest.Decode[market.Bid](e); err != nil {
		return reasonMalformed
	}
	return reasonFuture
}

// until is when a bid counts as expired with everyone, and needs no memory any more.
func until(b market.Bid) time.Time {
	return time.UnixMilli(b.AnnounceUntil).Add(2 * market.ClockTolerance)
}

// announcement names one announcement of a bid.
type announcement struct {
	renter  attest.Key
	request market.Nonce
	seq     uint64
	topic   Topic // zero where all topics count as one
}

// maxSeen bounds the memory of a [seen], about 200 bytes each.
const maxSeen = 1 << 15

// seen remembers announcements until they expire.
type seen struct {
	mu    sync.Mutex
	until map[announcement]time.Time
	swept time.Time
}

func newSeen() *seen { return &seen{until: make(map[announcement]time.Time)} }

// note remembers a and reports whether it is the first time, and whether there was room. A known one always has room.
func (s *seen) note(a announcement, until, now time.Time) (first, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.until[a]; ok {
		return false, true
	}
	if len(s.until) >= maxSeen && !s.sweep(now) {
		return false, false
	}
	s.until[a] = until
	return true, true
}

// sweep forgets what has expired and reports whether there is room. It looks at most once a second: a flood must not buy
// a walk through the whole memory with each message.
func (s *seen) sweep(now time.Time) bool {
	if d := now.Sub(s.swept); d >= 0 && d < time.Second {
		return false
	}
	s.swept = now
	for old, t := range s.until {
		if now.After(t) {
			delete(s.until, old)
		}
	}
	return len(s.until) < maxSeen
}

// add is note for those to whom known and no room are the same.
func (s *seen) add(a announcement, until, now time.Time) bool {
	first, _ := s.note(a, until, now)
	return first
}

func (s *seen) forget(a announcement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, a)
}
