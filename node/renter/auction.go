package renter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/deal"
)

// openAuction is one announcement of a job's demand: an auction while its window is open, and a bid that may still be
// offered to afterwards, see [vigil].
type openAuction struct {
	record  auction.Record
	number  int // under which the record is kept
	id      attest.Digest
	bid     market.Bid
	book    *auction.Book
	opened  time.Time
	answers chan answer // the vigil's
	class   string

	mu     sync.Mutex
	chosen map[attest.Key]bool // peers that get a direct copy

	// What follows belongs to the job's own goroutine.
	told    bool                // the event about the bid is out
	held    []Event             // answers that came before
	early   bool                // an offer ends the window
	fresh   bool                // an offer that can win came since the last award was tried
	passed  map[attest.Key]bool // peers that were asked first, and refused or could not be asked
	outrun  int                 // awards refused because another one came first
	busy    int                 // declines of those who may win, whose only reason is that all devices are taken
	unheard map[attest.Key]bool // providers that the spec names and that have not answered

	hopeless bool // all providers that the spec names are excluded
}

// eligible reports whether the job may go to that provider at all.
func (a *openAuction) eligible(k attest.Key) bool {
	named := a.record.Providers
	return !slices.Contains(a.record.Exclude, k) && (len(named) == 0 || slices.Contains(named, k))
}

// choose notes that the peer gets a direct copy.
func (a *openAuction) choose(k attest.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chosen[k] = true
}

func (a *openAuction) isChosen(k attest.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.chosen[k]
}

type answer struct {
	to   *openAuction
	from attest.Key
	env  attest.Envelope
}

// answerQueue bounds the answers that wait to be judged; of a flood, the rest is told to be too late.
const answerQueue = 1024

// recentPrices is how many clearing prices make the reference price.
const recentPrices = 15

// holdAuction announces the job's demand and collects the answers until the window closes.
func (r *Renter) holdAuction(ctx context.Context, v *vigil) (*openAuction, error) {
	a, env, err := r.openAuction(v)
	if err != nil {
		return nil, err
	}
	r.metrics.auctions.Inc()
	v.open(a)
	window, cancel := context.WithTimeout(ctx, time.Duration(a.record.WindowMS)*time.Millisecond)
	defer cancel()
	direct := r.sendDirect(window, a, env, v.t.snapshot())
	announced, heard := r.announce(window, a, env), announcement{}
	a.record.ClosedBy = auction.ByWindow
	for open := true; open; {
		select {
		case <-window.Done():
			open = false
		case ans := <-v.answers:
			v.judge(window, ans)
		case m := <-v.measured:
			v.asked--
			v.enter(m)
		case heard = <-announced:
			announced = nil
			v.tellBid(a, heard)
		}
		if a.early {
			a.record.ClosedBy, open = auction.ByEarly, false
		}
	}
	cancel()
	v.settle(window)
	if announced != nil {
		heard = <-announced
		v.tellBid(a, heard)
	}
	if heard.err != nil {
		return nil, fmt.Errorf("announce bid: %w", heard.err)
	}
	a.record.Heard = uint64(max(heard.peers, <-direct)) // mostly the same peers
	a.record.TookMS = uint64(time.Since(a.opened).Milliseconds())
	a.book.Revise(func(e *auction.Entry) { e.Path = r.pathTo(e.Offer.Provider) }) // a hole may have been punched meanwhile
	a.record.Take(a.book)
	r.noteCrowd(a)
	return a, r.ctx.Err() // not the window's own end
}

// announcement is what came of announcing a bid.
type announcement struct {
	peers int // that heard it, as far as is known
	err   error
}

// announce spreads the bid. It may take the whole window, while answers to direct copies come in already. The channel tells
// how many hear it; that nobody does, or that the window was over, is no error.
func (r *Renter) announce(window context.Context, a *openAuction, env attest.Envelope) <-chan announcement {
	done := make(chan announcement, 1)
	r.group.Go(func() error {
		heard, err := r.o.Bids.Publish(window, env, a.classes(), a.places())
		if errors.Is(err, bids.ErrNobody) || window.Err() != nil {
			err = nil
		}
		done <- announcement{heard, err}
		return nil
	})
	return done
}

// openAuction makes and signs the bid.
func (r *Renter) openAuction(v *vigil) (*openAuction, attest.Envelope, error) {
	now, t := time.Now(), v.t
	j := t.snapshot()
	s := j.Spec
	rtt, _ := r.o.Host.MedianRTT() // 0 while unknown
	window := auction.Window(rtt)
	left := s.Duration - ranTime(j)
	class := bidClass(s)
	announce := now.Add(max(10*time.Second, window)).UnixMilli()
	b := market.Bid{Version: 1, Renter: r.o.Signer.Key(), Request: requestID(j), Seq: uint64(j.Attempts) + 1, IssuedAt: now.UnixMilli(),
		AnnounceUntil: announce, ValidUntil: max(announce, v.deadline.UnixMilli()),
		Workload: market.WASM, Count: uint64(s.Count()), Class: vendorOf(s), Models: s.Models, MemBytes: s.VRAMBytes, HostMemBytes: s.MemBytes,
		DurationMS: uint64(max(left, time.Second).Milliseconds()), StartWithinMS: uint64(s.StartWithin.Milliseconds()), Tier: s.Tier,
		Require: s.Require, GraceMS: uint64(s.Grace.Milliseconds()), ReplyTo: market.PickAddrs(r.o.Host.Addrs(), replyAddrs),
		DeclineBP: auction.DeclineBP(r.crowdOf(class)), IntervalMS: uint64(s.Interval.Milliseconds()), Simulated: market.IsTestNetwork(r.o.Network)}
	env, err := r.signBid(&b)
	if err != nil {
		return nil, env, fmt.Errorf("make bid: %w", err)
	}
	rec := auction.Record{Bid: env, OpenedAt: now.UnixMilli(), WindowMS: uint64(window.Milliseconds()), Reference: r.reference(class),
		Theta: auction.Theta(s), MaxPrice: s.MaxPrice, StartWithin: uint64(s.StartWithin.Milliseconds()), Latency: uint64(s.Latency.Milliseconds()),
		Providers: s.Providers, Exclude: append(s.Exclude[:len(s.Exclude):len(s.Exclude)], t.failedProviders()...)}
	a := &openAuction{record: rec, number: j.Attempts + 1, id: env.ID(), bid: b, book: auction.NewBook(rec.Rules()), opened: now,
		answers: v.answers, class: class, chosen: map[attest.Key]bool{}, passed: map[attest.Key]bool{}, unheard: map[attest.Key]bool{}}
	for _, k := range s.Providers {
		if a.eligible(k) {
			a.unheard[k] = true
		}
	}
	a.hopeless = len(s.Providers) > 0 && len(a.unheard) == 0
	return a, env, t.update(func(j *Job) { j.State, j.Attempts = JobBidding, j.Attempts+1 })
}

// replyAddrs is how many addresses a bid names at most. An address that leads through a relay takes about 110 bytes.
const replyAddrs = 4

// signBid signs the bid, with as many addresses as it has room for.
func (r *Renter) signBid(b *market.Bid) (attest.Envelope, error) {
	for {
		env, err := r.o.Signer.Sign(market.BidDomain, *b)
		if err != nil {
			return env, err
		}
		raw, err := attest.MarshalEnvelope(env)
		if err != nil || len(raw) <= market.MaxBidBytes || len(b.ReplyTo) == 0 {
			return env, err
		}
		b.ReplyTo = b.ReplyTo[:len(b.ReplyTo)-1]
	}
}

// requestID is the same for all auctions of one job.
func requestID(j Job) market.Nonce {
	d := attest.Sum([]byte("request/" + j.ID))
	return market.Nonce(d[:16])
}

// crowdOf returns how many peers are expected to hear a bid of the class, by the auctions before; 0 = nothing is known.
func (r *Renter) crowdOf(class string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crowds[class]
}

// noteCrowd learns from the answers how many peers hear a bid of the class. What a hub reports does not count: by a large
// number it could silence the declines. It forgets slowly, so that one auction that nobody answered does not bring the
// declines of all.
func (r *Renter) noteCrowd(a *openAuction) {
	n := auction.Crowd(a.book.Tally, a.bid.DeclineBP)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crowds[a.class] = max(n, r.crowds[a.class]/2)
}

// errNotSender is why an answer is dropped before it is looked at.
var errNotSender = errors.New("malformed, or not of the sender")

// Answer takes an offer or a decline that came for one of the open auctions.
func (r *Renter) Answer(ctx context.Context, from attest.Key, e attest.Envelope) deal.Code {
	about, ok := aboutBid(e)
	if !ok || e.Signer != from {
		r.drop("answer", errNotSender)
		return deal.Refused
	}
	r.mu.Lock()
	a := r.auctions[about]
	r.mu.Unlock()
	if a == nil {
		return deal.Closed
	}
	select {
	case a.answers <- answer{a, from, e}:
		return deal.OK
	default:
		return deal.Closed
	}
}

// aboutBid reads which bid an unverified answer is about.
func aboutBid(e attest.Envelope) (attest.Digest, bool) {
	switch e.Domain {
	case market.OfferDomain:
		o, err := attest.Decode[market.Offer](e)
		return o.Bid, err == nil
	case market.DeclineDomain:
		d, err := attest.Decode[market.Decline](e)
		return d.About, err == nil
	}
	return attest.Digest{}, false
}

// reference is the median of recent clearing prices, 0 for none.
func (r *Renter) reference(class string) market.MicroUSD {
	recent, err := r.o.Store.Prices(class, recentPrices)
	if err != nil {
		r.log.Warn("price history cannot be read", "err", err)
		return 0
	}
	prices := make([]market.MicroUSD, len(recent))
	for i, p := range recent {
		prices[i] = market.MicroUSD(p.Micro)
	}
	return auction.Reference(prices)
}
