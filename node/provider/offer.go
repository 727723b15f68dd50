package provider

import (
	"context"
	"crypto/rand"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// standing is an offer that binds until its firm time.
type standing struct {
	offer   market.Offer
	env     attest.Envelope
	devices []gpu.Device
	replyTo []string // the renter's addresses
	used    bool     // an award took it
}

// answered remembers what was said to a bid, so that one bid that comes two ways has one answer.
type answered struct {
	env   attest.Envelope
	ok    bool // there is an answer
	until time.Time
}

// maxAnswers bounds the bids whose answers are remembered. Beyond it nothing is answered, until some are forgotten: a
// flood of bids costs this provider auctions, never its memory.
const maxAnswers = 10_000

// The answers that are under way at once. Those to renters that must be dialled first have a number of their own, so
// that bids with addresses where nobody listens do not keep answers from renters that are connected.
const (
	answersNear = 64
	answersFar  = 256
)

// Hear answers the bids that come over gossip, each straight to its renter, until heard is closed. It decides on one
// after the other, and never waits for an answer to be sent: one for which there is no room is dropped. It calls count for
// each bid.
func (p *Provider) Hear(ctx context.Context, heard <-chan bids.Heard, count func()) {
	var near, far errgroup.Group
	near.SetLimit(answersNear)
	far.SetLimit(answersFar)
	for h := range heard {
		count()
		answer, ok := p.hearBid(ctx, h)
		if !ok {
			continue
		}
		pool := &far
		if p.o.Host.Connected(h.Bid.Renter) {
			pool = &near
		}
		room := pool.TryGo(func() error {
			if _, err := p.o.Deal.SendAnswer(ctx, h.Bid.Renter, h.Bid.ReplyTo, answer); err != nil {
				p.log.Debug("answer did not reach the renter", "peer", h.Bid.Renter, "err", err)
			}
			return nil
		})
		if !room {
			p.metrics.dropped.WithLabelValues("busy").Inc()
		}
	}
	_, _ = near.Wait(), far.Wait() // they return no error
}

// hearBid returns the answer to a bid that was not answered yet.
func (p *Provider) hearBid(ctx context.Context, h bids.Heard) (attest.Envelope, bool) {
	if !p.started(ctx) {
		return attest.Envelope{}, false
	}
	p.mu.Lock()
	_, known := p.answers[h.Envelope.ID()]
	p.mu.Unlock()
	if known {
		return attest.Envelope{}, false
	}
	return p.answerBid(h.Envelope, h.Bid)
}

// DirectBid answers a bid that the renter sent itself.
func (p *Provider) DirectBid(ctx context.Context, from attest.Key, e attest.Envelope) (attest.Envelope, bool) {
	if !p.started(ctx) {
		return attest.Envelope{}, false
	}
	b, err := market.OpenBid(e, p.network, time.Now())
	if err != nil || b.Renter != from {
		p.metrics.dropped.WithLabelValues("bid").Inc()
		return attest.Envelope{}, false
	}
	return p.answerBid(e, b)
}

// answerBid makes an offer or a decline, or repeats the one it made.
func (p *Provider) answerBid(e attest.Envelope, b market.Bid) (attest.Envelope, bool) {
	now := time.Now()
	if b.Renter == p.o.Signer.Key() || now.UnixMilli() > b.ValidUntil+market.ClockTolerance.Milliseconds() {
		return attest.Envelope{}, false
	}
	id := e.ID()
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.answers[id]; a != nil {
		return a.env, a.ok
	}
	if len(p.answers) >= maxAnswers {
		p.metrics.dropped.WithLabelValues("flood").Inc()
		return attest.Envelope{}, false
	}
	env, ok := p.decide(id, b, now)
	p.answers[id] = &answered{env, ok, answerUntil(b)}
	return env, ok
}

// answerUntil is when nobody passes on the bid any more, so that it cannot come again.
func answerUntil(b market.Bid) time.Time {
	return time.UnixMilli(b.AnnounceUntil).Add(market.ClockTolerance)
}

// decide is the way from a bid to an answer: match → plan → price. The caller holds p.mu.
func (p *Provider) decide(id attest.Digest, b market.Bid, now time.Time) (attest.Envelope, bool) {
	devices, free, err := p.sellable(now)
	if err != nil {
		return p.declineBid(id, []market.Failure{{Reason: market.Unreadable, Wanted: "devices", Available: "cannot be read"}}, now)
	}
	chosen, fails := p.fit(id, b, devices, free, now)
	p.await(id, b, fails, now)
	if len(fails) > 0 {
		if !auction.Sampled(id, p.o.Signer.Key(), b.DeclineBP) {
			return attest.Envelope{}, false
		}
		return p.declineBid(id, fails, now)
	}
	return p.offer(id, b, chosen, now)
}

func (p *Provider) declineBid(bid attest.Digest, fails []market.Failure, now time.Time) (attest.Envelope, bool) {
	p.metrics.declines.Inc()
	return p.decline(bid, fails, now)
}

// decline signs why a bid is not served or an award not accepted.
func (p *Provider) decline(about attest.Digest, fails []market.Failure, now time.Time) (attest.Envelope, bool) {
	env, err := p.o.Signer.Sign(market.DeclineDomain, market.Decline{Version: 1, About: about, Provider: p.o.Signer.Key(),
		Failures: fails[:min(len(fails), 16)], At: now.UnixMilli()})
	if err != nil {
		p.log.Error("decline cannot be signed", "err", err)
		return attest.Envelope{}, false
	}
	return env, true
}

// priceOf returns the price per device and hour for these devices: the dearest one's.
func (p *Provider) priceOf(devices []gpu.Device) market.MicroUSD {
	var price market.MicroUSD
	for _, d := range devices {
		price = max(price, p.o.Policy.Price(d))
	}
	return price
}

func (p *Provider) offer(bid attest.Digest, b market.Bid, devices []gpu.Device, now time.Time) (attest.Envelope, bool) {
	o := market.Offer{Version: 1, Bid: bid, Provider: p.o.Signer.Key(), Price: p.priceOf(devices), IntervalMS: b.IntervalMS,
		FirmUntil: now.Add(p.o.Policy.Firm).UnixMilli(), Nonce: newNonce(), Place: p.o.Policy.Place, Tier: b.Tier,
		Reach: p.o.Host.Reach().Verdict}
	for _, d := range devices {
		o.Devices = append(o.Devices, market.OfferedDevice{ID: market.NewDeviceID(o.Provider, d.ID), Name: d.Name, Model: d.Model, MemBytes: d.MemBytes})
		o.Simulated = o.Simulated || d.Simulated
	}
	env, err := p.o.Signer.Sign(market.OfferDomain, o)
	if err != nil {
		p.log.Error("offer cannot be signed", "bid", bid, "err", err)
		return attest.Envelope{}, false
	}
	offer := env.ID()
	p.offers[offer] = &standing{offer: o, env: env, devices: devices, replyTo: b.ReplyTo}
	p.metrics.offers.Inc()
	return env, true
}

func newNonce() (n market.Nonce) {
	_, _ = rand.Read(n[:]) // never fails, see crypto/rand
	return n
}

// forget drops offers and answers whose time is over.
func (p *Provider) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.offers {
		if now.UnixMilli() > s.offer.FirmUntil+market.ClockTolerance.Milliseconds() {
			delete(p.offers, id)
		}
	}
	for id, a := range p.answers {
		if now.After(a.until) {
			delete(p.answers, id)
		}
	}
}

// creditFails returns why a renter may not have that many more devices, nil if it may. The caller holds p.mu.
func (p *Provider) creditFails(renter attest.Key, devices int, price market.MicroUSD, b market.Bid, now time.Time) []market.Failure {
	next := market.DueFor(price, devices, time.Duration(b.IntervalMS)*time.Millisecond)
	l := market.Lease{Price: price, Devices: make([]market.DeviceID, devices), IntervalMS: b.IntervalMS, SurviveMS: b.IntervalMS}
	pos := p.credit.position(renter, attest.Digest{}, now)
	pos.Lease, pos.Next, pos.TrialDevices = l, next, pos.TrialDevices+devices
	if r := p.o.Policy.Limits.Admit(pos); r != nil && r.Gate == ledger.MoneyGate {
		return []market.Failure{{Reason: market.CreditExceeded, Wanted: next.String() + " of credit", Available: market.ClipReason(r.Reason)}}
	}
	return nil
}
