package bids

import (
	"errors"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// guard checks bids, wherever they come from, and holds what a check needs to remember.
type guard struct {
	network   attest.Digest
	known     func(attest.Key) bool // renters with evidence; nil = none
	rate      *p2p.Limiter          // of renters with evidence
	strangers *p2p.Limiter          // of those without, so that a crowd of keys fills no memory that the others need
	crowd     *crowd
	verified  *verified
	counted   *seen // announcements that were counted against their renter's rate
}

func newGuard(network attest.Digest, perMinute int, r role, known func(attest.Key) bool) *guard {
	return &guard{
		network: network, known: known, rate: p2p.NewLimiter(perMinute, perMinute), strangers: p2p.NewLimiter(perMinute, perMinute),
		crowd: newCrowd(r.strangers * float64(perMinute) / ratePerMinute), verified: newVerified(), counted: newSeen(r.memory),
	}
}

// check returns the bid in a message, or why it is dropped. It makes no difference on how many topics and ways a message
// comes: it is verified and counted once. Cheap checks come first; a renter's rate comes after the signature, or strangers
// could use it up.
func (g *guard) check(data []byte, now time.Time) (checked, reason) {
	c, digest, why := g.open(data)
	if why != "" {
		return checked{}, why
	}
	if err := c.bid.Fresh(now); errors.Is(err, market.ErrExpired) {
		return checked{}, reasonExpired
	} else if err != nil {
		return checked{}, reasonFuture
	}
	a := announcementOf(c.bid)
	switch first, same, room := g.counted.note(a, digest, until(c.bid), now); {
	case !room:
		return checked{}, reasonFull
	case first:
		if why := g.admit(c.bid.Renter, now); why != "" {
			g.counted.forget(a)
			return checked{}, why
		}
	case !same:
		return checked{}, reasonReplayed
	}
	return c, ""
}

// admit counts an announcement against the rate of its renter, and against that of all renters without evidence.
func (g *guard) admit(renter attest.Key, now time.Time) reason {
	if g.known != nil && g.known(renter) {
		if !g.rate.Allow(renter, now) {
			return reasonRate
		}
		return ""
	}
	if !g.strangers.Allow(renter, now) {
		return reasonRate
	}
	if !g.crowd.admit(renter, now) {
		return reasonCrowd
	}
	return ""
}

// open verifies and decodes a message, or finds it among those that were verified before.
func (g *guard) open(data []byte) (checked, attest.Digest, reason) {
	if len(data) > market.MaxBidBytes {
		return checked{}, attest.Digest{}, reasonSize
	}
	digest := attest.Sum(data)
	if c, ok := g.verified.get(digest); ok {
		return c, digest, ""
	}
	e, err := attest.ParseEnvelope(data, market.MaxBidBytes)
	if err != nil {
		return checked{}, digest, reasonMalformed
	}
	bid, err := attest.Open[market.Bid](e, g.network, market.BidDomain)
	switch {
	case errors.Is(err, attest.ErrSignature), errors.Is(err, attest.ErrDomain), err == nil && bid.Renter != e.Signer:
		return checked{}, digest, reasonSignature
	case err != nil:
		return checked{}, digest, reasonMalformed
	}
	c := checked{envelope: e, bid: bid}
	g.verified.put(digest, c)
	return c, digest, ""
}

// until is when a bid counts as expired with everyone, and needs no memory any more.
func until(b market.Bid) time.Time {
	return time.UnixMilli(b.AnnounceUntil).Add(2 * market.ClockTolerance)
}
