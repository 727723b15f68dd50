package renter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// openAuction is one auction while its window is open, and its record afterwards.
type openAuction struct {
	record  auction.Record
	bid     market.Bid
	book    *auction.Book
	opened  time.Time
	answers chan answer
	outrun  int                    // awards refused because another one came first
	busy    int                    // declines whose only reason is that all devices are taken
	seen    map[attest.Digest]bool // answers judged; one may come by gossip and again directly
	unheard map[attest.Key]bool    // providers that the spec names and that have not answered
	class   string
}

type answer struct {
	from attest.Key
	env  attest.Envelope
}

// answerQueue bounds the answers that wait to be judged; of a flood, the rest is told to be too late.
const answerQueue = 1024

// maxJudged bounds the answers that one auction looks at.
const maxJudged = 50_000

// recentPrices is how many clearing prices make the reference price.
const recentPrices = 15

// holdAuction announces the job's demand and collects the answers until the window closes.
func (r *Renter) holdAuction(ctx context.Context, t *task) (*openAuction, error) {
	j := t.snapshot()
	a, env, err := r.openAuction(t, j)
	if err != nil {
		return nil, err
	}
	r.metrics.auctions.Inc()
	bid := env.ID()
	r.mu.Lock()
	r.auctions[bid] = a
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.auctions, bid)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.record.WindowMS)*time.Millisecond)
	defer cancel()
	direct := r.sendDirect(ctx, a, env, j)
	heard, err := r.o.Bids.Publish(ctx, env, a.classes(), a.places())
	if err != nil && !errors.Is(err, bids.ErrNobody) && ctx.Err() == nil {
		return nil, fmt.Errorf("announce bid: %w", err)
	}
	t.emit(Event{Kind: EvBid, Bid: &BidEvent{ID: bid, Heard: heard, WindowMS: a.record.WindowMS}})
	evidence := newScores(r)
	a.record.ClosedBy = auction.ByWindow
	for open := true; open; {
		select {
		case <-ctx.Done():
			open = false
		case ans := <-a.answers:
			if r.judge(t, a, ans, evidence) {
				a.record.ClosedBy, open = auction.ByEarly, false
			}
		}
	}
	cancel()
	for waiting := len(a.answers); waiting > 0; waiting-- { // they came in time; announcing the bid may take the whole window
		r.judge(t, a, <-a.answers, evidence)
	}
	a.record.Heard = uint64(max(heard, <-direct)) // mostly the same peers
	a.record.TookMS = uint64(time.Since(a.opened).Milliseconds())
	a.record.Entries, a.record.Received = a.book.Entries(), uint64(a.book.Received)
	return a, r.ctx.Err() // not the window's own end
}

// openAuction makes and signs the bid.
func (r *Renter) openAuction(t *task, j Job) (*openAuction, attest.Envelope, error) {
	now := time.Now()
	s := j.Spec
	rtt, _ := r.o.Host.MedianRTT() // 0 while unknown
	window := auction.Window(rtt)
	left := s.Duration - ranTime(j)
	b := market.Bid{Version: 1, Renter: r.o.Signer.Key(), Request: requestID(j), Seq: uint64(j.Attempts) + 1, IssuedAt: now.UnixMilli(),
		AnnounceUntil: now.Add(max(10*time.Second, window)).UnixMilli(), ValidUntil: now.Add(max(30*time.Second, s.StartWithin)).UnixMilli(),
		Workload: market.WASM, Count: uint64(s.Count()), Class: vendorOf(s), Models: s.Models, MemBytes: s.VRAMBytes, HostMemBytes: s.MemBytes,
		DurationMS: uint64(max(left, time.Second).Milliseconds()), StartWithinMS: uint64(s.StartWithin.Milliseconds()), Tier: s.Tier,
		Require: s.Require, GraceMS: uint64(s.Grace.Milliseconds()), ReplyTo: r.replyTo(), DeclineBP: 10_000,
		IntervalMS: uint64(s.Interval.Milliseconds()), Simulated: market.IsTestNetwork(r.o.Network)}
	env, err := r.o.Signer.Sign(market.BidDomain, b)
	if err != nil {
		return nil, env, fmt.Errorf("make bid: %w", err)
	}
	class := bidClass(s)
	theta := auction.Theta(s)
	rules := auction.Rules{Bid: env.ID(), Demand: b, Theta: theta, MaxPrice: s.MaxPrice, StartWithin: s.StartWithin, Providers: s.Providers,
		Exclude: append(s.Exclude[:len(s.Exclude):len(s.Exclude)], t.failedProviders()...)}
	a := &openAuction{bid: b, book: auction.NewBook(rules), opened: now, answers: make(chan answer, answerQueue), class: class, seen: map[attest.Digest]bool{}, unheard: map[attest.Key]bool{},
		record: auction.Record{Bid: env, OpenedAt: now.UnixMilli(), WindowMS: uint64(window.Milliseconds()), Reference: r.reference(class),
			Theta: theta, MaxPrice: s.MaxPrice, StartWithin: uint64(s.StartWithin.Milliseconds()), Providers: rules.Providers, Exclude: rules.Exclude}}
	for _, k := range s.Providers {
		a.unheard[k] = true
	}
	return a, env, t.update(func(j *Job) { j.State, j.Attempts = JobBidding, j.Attempts+1 })
}

// requestID is the same for all auctions of one job.
func requestID(j Job) market.Nonce {
	d := attest.Sum([]byte("request/" + j.ID))
	return market.Nonce(d[:16])
}

func (r *Renter) replyTo() []string {
	addrs := r.o.Host.Addrs()
	return addrs[:min(len(addrs), 4)] // a bid stays below 1 KiB
}

// bidClass is the lowest class that serves the spec, the name under which prices are remembered.
func bidClass(s market.Spec) string {
	if s.GPUs == 0 {
		return gpu.ClassCPU
	}
	if len(s.Models) > 0 {
		if c := classOfModel(s.Models[0]); c != "" {
			return c
		}
	}
	return gpu.ClassOf(gpu.NVIDIA, s.VRAMBytes)
}

func classOfModel(name string) string {
	for _, m := range gpu.Lookup(name) {
		return m.Class()
	}
	return ""
}

// classes are the topics' classes that the bid goes to: those of the models wanted, or the class of the memory wanted
// and all above it.
func (a *openAuction) classes() []string {
	if a.bid.Class == gpu.ClassCPU {
		return []string{gpu.ClassCPU}
	}
	seen := map[string]bool{}
	var out []string
	add := func(c string) {
		if c != "" && !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	for _, name := range a.bid.Models {
		for _, m := range gpu.Lookup(name) {
			add(m.Class())
		}
	}
	if len(a.bid.Models) == 0 {
		for _, v := range []gpu.Vendor{gpu.NVIDIA, gpu.AMD, gpu.Intel} {
			if a.bid.Class == "any" || a.bid.Class == string(v) {
				for _, c := range gpu.ClassesFrom(v, a.bid.MemBytes) {
					add(c)
				}
			}
		}
	}
	return out
}

// places are the topics' places: the continents that the bid asks for, or any.
func (a *openAuction) places() []string {
	seen := map[string]bool{}
	var out []string
	for _, p := range a.bid.Require {
		if !seen[p.Continent] {
			seen[p.Continent] = true
			out = append(out, p.Continent)
		}
	}
	if len(out) == 0 {
		out = []string{market.AnyPlace}
	}
	return out
}

// Answer takes an offer or a decline that came for one of the open auctions.
func (r *Renter) Answer(ctx context.Context, from attest.Key, e attest.Envelope) deal.Code {
	about, ok := aboutBid(e)
	if !ok || e.Signer != from {
		r.drop("answer", errors.New("malformed, or not of the sender"))
		return deal.Refused
	}
	r.mu.Lock()
	a := r.auctions[about]
	r.mu.Unlock()
	if a == nil {
		return deal.Closed
	}
	select {
	case a.answers <- answer{from, e}:
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

// judge takes one answer into the auction. It reports whether the auction closes early. What does not hold is dropped.
func (r *Renter) judge(t *task, a *openAuction, ans answer, scores *scores) bool {
	bid, id := a.record.Bid.ID(), ans.env.ID()
	if a.seen[id] || len(a.seen) >= maxJudged {
		return false
	}
	a.seen[id] = true
	if ans.env.Domain == market.DeclineDomain {
		d, err := market.OpenDecline(ans.env, r.network, bid)
		if err != nil {
			r.drop("decline", err)
			return false
		}
		delete(a.unheard, d.Provider)
		a.record.DeclineCount++
		if len(d.Failures) == 1 && d.Failures[0].Reason == market.Busy {
			a.busy++
		}
		if len(a.record.Declines) < auction.MaxDeclines {
			a.record.Declines = append(a.record.Declines, ans.env)
			t.emit(Event{Kind: EvDecline, Decline: &DeclineEvent{Peer: d.Provider, Failures: d.Failures}})
		}
		return false
	}
	o, err := market.OpenOffer(ans.env, r.network, bid, time.Now())
	if err == nil {
		err = o.Answers(a.bid)
	}
	if err != nil {
		r.drop("offer", err)
		return false
	}
	delete(a.unheard, o.Provider)
	mean, known := scores.mean(o.Provider)
	e := a.book.Add(auction.Entry{Envelope: ans.env, Offer: o, MeanBP: mean, Known: known, ArrivedMS: uint64(time.Since(a.opened).Milliseconds())})
	t.emit(Event{Kind: EvOffer, Offer: &OfferEvent{Peer: o.Provider, Price: o.Price, Model: o.Devices[0].Model, Count: len(o.Devices),
		MemBytes: o.Devices[0].MemBytes, Place: o.Place.String(), MeanBP: mean, Known: known, Score: e.Score, Excluded: e.Excluded,
		AfterMS: e.ArrivedMS, Simulated: o.Simulated}})
	return auction.ClosesEarly(e, a.record.Reference)
}

// worthRepeating reports whether another announcement may bring an acceptable offer without the renter changing
// anything: nobody has answered yet, or somebody's devices are only busy or went to another award meanwhile. Where the spec names providers, the offers of
// others do not count as answers: a named one that is slow to dial back would else lose the job to those who cannot win.
func (a *openAuction) worthRepeating() bool {
	return len(a.unheard) > 0 || a.outrun > 0 || a.record.Received == 0 && (a.record.DeclineCount == 0 || a.busy > 0)
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

// sendDirect sends the bid itself to a few peers, so that no hub can choose what the renter sees: own past providers,
// and asks found in two look-ups. The channel tells how many copies went out, once ctx has ended.
func (r *Renter) sendDirect(ctx context.Context, a *openAuction, env attest.Envelope, j Job) <-chan int {
	total := make(chan int, 1)
	targets := make(chan target, auction.DirectCopies)
	go func() {
		defer close(targets)
		r.directTargets(ctx, a, j, targets)
	}()
	go func() {
		sent, done := 0, make(chan struct{}, auction.DirectCopies)
		for t := range targets {
			sent++
			go func() {
				defer func() { done <- struct{}{} }()
				reply, ok, err := r.o.Deal.SendBid(ctx, t.peer, t.addrs, env)
				if err != nil {
					r.log.Debug("bid was not answered directly", "peer", t.peer, "err", err)
				}
				if err != nil || !ok {
					return
				}
				select {
				case a.answers <- answer{t.peer, reply}:
				default:
				}
			}()
		}
		for range sent {
			<-done
		}
		<-ctx.Done()
		total <- sent
	}()
	return total
}

type target struct {
	peer  attest.Key
	addrs []string
}

// directTargets finds whom to send a bid directly: the providers that the spec names, half of the rest from own
// experience, then asks.
func (r *Renter) directTargets(ctx context.Context, a *openAuction, j Job, out chan<- target) {
	seen := map[attest.Key]bool{r.o.Signer.Key(): true}
	for _, k := range j.Spec.Exclude {
		seen[k] = true
	}
	n := 0
	send := func(k attest.Key, addrs []string) bool {
		if seen[k] || n >= auction.DirectCopies {
			return n < auction.DirectCopies
		}
		seen[k] = true
		n++
		select {
		case out <- target{k, addrs}:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for _, k := range j.Spec.Providers {
		if !send(k, nil) {
			return
		}
	}
	past, err := r.o.Store.EvidencePeers()
	if err != nil {
		r.log.Warn("own experience cannot be read", "err", err)
	}
	for i, k := range shuffled(past) {
		if i >= auction.DirectCopies/2 || !send(k, nil) {
			break
		}
	}
	for ask := range r.twoLookups(ctx, a) {
		if !send(ask.Provider, ask.Addrs) {
			return
		}
	}
}

// twoLookups looks among the asks that may serve the bid and, at the same time, among all: who cannot serve it may say
// why.
func (r *Renter) twoLookups(ctx context.Context, a *openAuction) <-chan market.Ask {
	found := make(chan market.Ask)
	var both sync.WaitGroup
	for _, q := range []find.Query{{Classes: a.classes(), Places: a.places(), Limit: auction.DirectCopies}, {Limit: auction.DirectCopies}} {
		both.Go(func() { // ends with ctx
			for x := range r.o.Find.Lookup(ctx, q) {
				select {
				case found <- x.Ask:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		both.Wait()
		close(found)
	}()
	return found
}

// shuffled returns the keys in random order, so that nobody can count on being asked.
func shuffled(keys []attest.Key) []attest.Key {
	out := append([]attest.Key(nil), keys...)
	rand.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}
