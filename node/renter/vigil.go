package renter

import (
	"context"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
)

// vigil is a job that looks for a provider: from its first bid until it is hired, or its latest start has passed. Its
// bids stay open all that time. An offer that comes to one of them between two auctions is taken at once; providers whose
// devices were busy make such offers when they get free.
type vigil struct {
	r        *Renter
	t        *task
	deadline time.Time
	answers  chan answer // to all bids
	bids     []*openAuction
	scores   *scores
	measured chan measured // offers whose providers are measured now
	asked    int           // measurements under way
	ways     map[attest.Key]*way
}

// maxOpenBids bounds the bids of one job that may be answered. A provider holds the newest one that it heard.
const maxOpenBids = 8

func (r *Renter) newVigil(t *task) *vigil {
	return &vigil{r: r, t: t, deadline: time.Now().Add(t.snapshot().Spec.StartWithin), answers: make(chan answer, answerQueue),
		measured: make(chan measured, maxMeasured), ways: map[attest.Key]*way{}}
}

// open lets a bid be answered.
func (v *vigil) open(a *openAuction) {
	v.scores = newScores(v.r)
	v.forgetWays()
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	v.bids = append(v.bids, a)
	v.r.auctions[a.id] = a
	if len(v.bids) > maxOpenBids {
		delete(v.r.auctions, v.bids[0].id)
		v.bids = slices.Delete(v.bids, 0, 1)
	}
}

// close ends the answering of all bids.
func (v *vigil) close() {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	for _, a := range v.bids {
		delete(v.r.auctions, a.id)
	}
}

// judge takes one answer into its auction. What does not hold is dropped.
func (v *vigil) judge(ctx context.Context, ans answer) {
	a, k := ans.to, ans.from
	known := v.scores.known[k]
	if ans.env.Signer != k {
		v.r.drop("answer", errNotSender)
		return
	}
	if ans.env.Domain == market.DeclineDomain {
		v.judgeDecline(a, ans, known)
		return
	}
	direct := a.isChosen(k)
	if !a.book.WantsOffer(k, known, direct) {
		return
	}
	o, err := market.OpenOffer(ans.env, v.r.network, a.id, time.Now())
	if err == nil {
		err = o.Answers(a.bid)
	}
	if err != nil {
		v.r.drop("offer", err)
		return
	}
	delete(a.unheard, k)
	e := auction.Entry{Envelope: ans.env, Offer: o, Known: known, Direct: direct, ArrivedMS: uint64(time.Since(a.opened).Milliseconds()), Path: v.r.pathTo(k)}
	e.MeanBP, e.PlaceFault = v.scores.mean(k, o.Place)
	v.measure(ctx, measured{a, e})
}

func (v *vigil) judgeDecline(a *openAuction, ans answer, known bool) {
	if !a.book.WantsDecline(ans.from, known) {
		return
	}
	d, err := market.OpenDecline(ans.env, v.r.network, a.id)
	if err != nil {
		v.r.drop("decline", err)
		return
	}
	delete(a.unheard, d.Provider)
	a.book.Decline(d.Provider, known)
	if len(d.Failures) == 1 && d.Failures[0].Reason == market.Busy && a.eligible(d.Provider) {
		a.busy++
	}
	if len(a.record.Declines) < auction.MaxDeclines {
		a.record.Declines = append(a.record.Declines, ans.env)
		v.tell(a, Event{Kind: EvDecline, Decline: &DeclineEvent{Peer: d.Provider, Failures: d.Failures}})
	}
}

// enter takes an offer into its auction once its provider is measured.
func (v *vigil) enter(m measured) {
	a := m.to
	e := a.book.Add(m.entry)
	o := e.Offer
	v.tell(a, Event{Kind: EvOffer, Offer: &OfferEvent{Peer: o.Provider, Price: o.Price, Model: o.Devices[0].Model, Count: len(o.Devices),
		MemBytes: o.Devices[0].MemBytes, Place: o.Place.String(), MeanBP: e.MeanBP, Known: e.Known, Score: e.Score, Excluded: e.Excluded,
		AfterMS: e.ArrivedMS, RTTMS: e.RTTMS, Simulated: o.Simulated}})
	if e.Excluded != "" {
		return
	}
	a.fresh = true
	a.early = a.early || auction.ClosesEarly(e, a.record.Reference)
	v.widenEarly(o.Provider)
}

// tell emits an event about an answer, after the one about its bid: who follows the job begins a new list with that.
func (v *vigil) tell(a *openAuction, e Event) {
	if a.told {
		v.t.emit(e)
	} else {
		a.held = append(a.held, e)
	}
}

// tellBid emits the event about a bid, and those that waited for it.
func (v *vigil) tellBid(a *openAuction, heard announcement) {
	v.t.emit(Event{Kind: EvBid, Bid: &BidEvent{ID: a.id, Heard: heard.peers, WindowMS: a.record.WindowMS}})
	for _, e := range a.held {
		v.t.emit(e)
	}
	a.told, a.held = true, nil
}

// settle takes in what came before the window closed, at the end of an auction: announcing the bid may take the whole
// window. It waits for measurements that are under way, which end with ctx.
func (v *vigil) settle(ctx context.Context) {
	for waiting := len(v.answers); waiting > 0; waiting-- {
		v.judge(ctx, <-v.answers)
	}
	for v.asked > 0 {
		v.asked--
		v.enter(<-v.measured)
	}
}

// worthWaiting reports whether another announcement, or time, may bring an acceptable offer without the renter changing
// anything: nobody answered the last auction, or somebody's devices are only busy or went to another award meanwhile. Where
// the spec names providers, the offers of others do not count as answers: a named one that is slow to dial back would else
// lose the job to those who cannot win.
func (v *vigil) worthWaiting(last *openAuction) bool {
	if last.hopeless {
		return false
	}
	if len(last.unheard) > 0 || last.record.Received == 0 && last.record.DeclineCount == 0 {
		return true
	}
	return slices.ContainsFunc(v.bids, func(a *openAuction) bool { return a.busy > 0 || a.outrun > 0 })
}

// await takes the first acceptable offer that comes within d to any of the bids. It returns nil without error if none
// does, or the job was stopped.
func (v *vigil) await(ctx context.Context, work prepared, d time.Duration) (*hire, runnersUp, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		if h, rest, err := v.takeLate(ctx, work); h != nil || err != nil {
			return h, rest, err
		}
		v.t.mu.Lock()
		changed, stopped := v.t.changed, v.t.stopped
		v.t.mu.Unlock()
		if stopped {
			return nil, runnersUp{}, nil
		}
		select {
		case <-ctx.Done():
			return nil, runnersUp{}, ctx.Err()
		case <-timer.C:
			return nil, runnersUp{}, nil
		case <-changed:
		case ans := <-v.answers:
			v.judge(ctx, ans)
		case m := <-v.measured:
			v.asked--
			v.enter(m)
		}
	}
}

// takeLate awards one of the offers that came after their auction's window, the newest bid's first. The auction's record is
// written again with them.
func (v *vigil) takeLate(ctx context.Context, work prepared) (*hire, runnersUp, error) {
	for _, a := range slices.Backward(v.bids) {
		if !a.fresh {
			continue
		}
		a.record.Take(a.book)
		if h, rest, err := v.r.award(ctx, v, work, a); h != nil || err != nil {
			return h, rest, err
		}
	}
	return nil, runnersUp{}, nil
}
