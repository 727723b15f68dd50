package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/p2p/deal"
)

// nthBid is true for the n-th announcement of a job and what comes after.
func nthBid(n int) func(renter.Event) bool {
	return func(e renter.Event) bool {
		if e.Kind == renter.EvBid {
			n--
		}
		return n <= 0
	}
}

// eventsBy returns a job's events up to the first one that f wants.
func eventsBy(t *testing.T, r *nodetest.Peer, id string, f func(renter.Event) bool) []renter.Event {
	t.Helper()
	var all []renter.Event
	until(t, r, id, func(e renter.Event) bool {
		all = append(all, e)
		return f(e)
	})
	return all
}

// TestWaitingBid lets a job wait for the only device. It gets it when the job before has ended, by the provider's own offer:
// no further announcement is needed.
func TestWaitingBid(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	first, second := nodetest.Start(t, nil), nodetest.Start(t, nil)
	nodetest.Join(t, p, first, second)
	running := submit(t, first, guest(t, "sleeps"))
	until(t, first, running.ID, receiptNo(1))
	s := guest(t, "exit", "0")
	s.Providers = []attest.Key{p.Node.Key()}
	waiting := submit(t, second, s)
	until(t, second, waiting.ID, nthBid(4)) // the next announcement is 8 s away
	eventually(t, func() error {
		views, err := second.Client.Auctions(t.Context(), waiting.ID)
		if err == nil && len(views) < 4 {
			err = fmt.Errorf("%d auctions have closed", len(views))
		}
		return err
	})
	if _, err := first.Client.Stop(t.Context(), running.ID); err != nil {
		t.Fatal(err)
	}
	events := eventsBy(t, second, waiting.ID, func(e renter.Event) bool { return e.Kind == renter.EvAward })
	want(t, wait(t, second, waiting.ID), renter.JobSucceeded, "")
	announced, awarded := 0, events[len(events)-1].At
	for _, e := range events {
		if e.Kind == renter.EvBid {
			announced++
		}
	}
	if announced != 4 {
		t.Errorf("the bid was announced %d times, want 4: the provider offers by itself", announced)
	}
	lease, err := p.Client.Lease(t.Context(), jobOf(t, first, running.ID).Lease.Hex())
	if err != nil {
		t.Fatal(err)
	}
	took := awarded.Sub(*lease.EndedAt)
	t.Logf("awarded %s after the lease before had ended", took)
	if took > 5*time.Second {
		t.Errorf("awarded %s after the lease before had ended", took)
	}
	if n := metric(t, p, "lacuna_provider_waiting_offers_total"); n != "1" {
		t.Errorf("%s offers to bids that waited, want 1", n)
	}
	views, err := second.Client.Auctions(t.Context(), waiting.ID)
	if err != nil || len(views) != 4 {
		t.Fatalf("%d auctions, %v", len(views), err)
	}
	for i, v := range views {
		if !v.Recomputed || (v.Award != nil) != (i == 3) {
			t.Errorf("auction %d: award %v, recomputed %v (%s)", i, v.Award, v.Recomputed, v.RecomputeError)
		}
	}
	if v := views[3]; len(v.Offers) != 1 || v.Offers[0].ArrivedMS <= v.TookMS {
		t.Errorf("offers %+v, want one that came after the window of %d ms", v.Offers, v.TookMS)
	}
}

func jobOf(t *testing.T, r *nodetest.Peer, id string) renter.Job {
	t.Helper()
	j, err := r.Client.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestOfferToAnEarlierBid has a provider that heard only the first announcement answer it after the second one.
func TestOfferToAnEarlierBid(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	type announced struct {
		id  attest.Digest
		bid market.Bid
	}
	bids := make(chan announced, 16)
	started := make(chan struct{})
	l := newLiar(t, r, &liar{
		answer: func(l *liar, bid attest.Digest, b market.Bid) (attest.Envelope, bool) {
			bids <- announced{bid, b}
			return l.sign(market.DeclineDomain, market.Decline{Version: 1, About: bid, Provider: l.signer.Key(), At: time.Now().UnixMilli(),
				Failures: []market.Failure{{Reason: market.Busy, Wanted: "1 free", Available: "0 free of 1"}}}), true
		},
		script: func(d *told) { close(started); d.ready() },
	})
	s := guest(t, "sleeps")
	s.Providers = []attest.Key{l.signer.Key()}
	j := submit(t, r, s)
	var first announced
	for i := range 3 {
		select {
		case a := <-bids:
			if i == 0 {
				first = a
			}
		case <-time.After(patience):
			t.Fatal("no bid came")
		}
	}
	code, err := l.deal.SendAnswer(within(t, patience), r.Node.Key(), nil, l.sign(market.OfferDomain, l.offerTo(first.id, first.bid)))
	if err != nil || code != deal.OK {
		t.Fatalf("the offer to the first bid: %v, %v", code, err)
	}
	<-started
	views, err := r.Client.Auctions(t.Context(), j.ID)
	if err != nil || len(views) < 3 {
		t.Fatalf("%d auctions, %v", len(views), err)
	}
	for i, v := range views {
		if !v.Recomputed || (v.Award != nil) != (i == 0) {
			t.Errorf("auction %d: award %v, recomputed %v (%s)", i, v.Award, v.Recomputed, v.RecomputeError)
		}
	}
	// The job has a provider: nothing may be offered to it any more.
	if code, err := l.deal.SendAnswer(within(t, patience), r.Node.Key(), nil, l.sign(market.OfferDomain, l.offerTo(first.id, first.bid))); err != nil || code != deal.Closed {
		t.Errorf("an offer after the award: %v, %v, want closed", code, err)
	}
	if _, err := r.Client.Stop(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	wait(t, r, j.ID)
}

// waiter is a raw renter that waits at a provider.
type waiter struct {
	*raw
	offers chan market.Offer
	reply  deal.Code
	bid    market.Bid
}

func newWaiter(t *testing.T, p *nodetest.Peer, reply deal.Code) *waiter {
	w := &waiter{offers: make(chan market.Offer, 16), reply: reply}
	w.raw = newRaw(t, deal.Options{Answer: func(_ context.Context, _ attest.Key, e attest.Envelope) deal.Code {
		if o, err := attest.Decode[market.Offer](e); err == nil {
			w.offers <- o
		}
		return w.reply
	}})
	w.connect(p)
	now := time.Now()
	w.bid = market.Bid{Version: 1, Renter: w.signer.Key(), Request: random16(), Seq: 1, IssuedAt: now.UnixMilli(),
		AnnounceUntil: now.Add(80 * time.Second).UnixMilli(), ValidUntil: now.Add(10 * time.Minute).UnixMilli(), Workload: market.WASM, Count: 1,
		Class: "any", DurationMS: 60_000, StartWithinMS: 1000, Tier: market.Silver, DeclineBP: 10_000, Simulated: true, IntervalMS: 1000,
		ReplyTo: w.host.Addrs()}
	return w
}

// announce sends the bid, which must be declined as busy, and returns its id.
func (w *waiter) announce(p *nodetest.Peer) attest.Digest {
	w.t.Helper()
	bid := w.sign(market.BidDomain, w.bid)
	e, ok, err := w.deal.SendBid(within(w.t, patience), p.Node.Key(), nil, bid)
	if err != nil || !ok {
		w.t.Fatalf("SendBid = %v, %v", ok, err)
	}
	if d, err := market.OpenDecline(e, w.signer.Network(), bid.ID()); err != nil || d.Failures[0].Reason != market.Busy {
		w.t.Fatalf("decline %+v, %v, want busy", d, err)
	}
	return bid.ID()
}

func (w *waiter) next() (market.Offer, error) {
	select {
	case o := <-w.offers:
		return o, nil
	case <-time.After(patience):
		return market.Offer{}, errors.New("no offer came")
	}
}

// TestOldestBidFirst frees a device that several renters wait for. The oldest is offered to, alone; the next one when it
// is gone, or does not award; and one that announced its request again only once, to its newest bid.
func TestOldestBidFirst(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	j := submit(t, r, guest(t, "sleeps"))
	until(t, r, j.ID, receiptNo(1))

	gone, slow, last := newWaiter(t, p, deal.Closed), newWaiter(t, p, deal.OK), newWaiter(t, p, deal.OK)
	goneBid := gone.announce(p)
	slow.announce(p)
	last.announce(p)
	slow.bid.Seq = 2
	slowBid := slow.announce(p)
	if _, err := r.Client.Stop(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	var at [3]time.Time
	for i, w := range []*waiter{gone, slow, last} {
		o, err := w.next()
		if err != nil {
			t.Fatalf("renter %d: %v", i, err)
		}
		at[i] = time.Now()
		if wanted := []attest.Digest{goneBid, slowBid}; i < 2 && o.Bid != wanted[i] {
			t.Errorf("renter %d: the offer answers bid %s, want %s", i, o.Bid.Short(), wanted[i].Short())
		}
		if len(last.offers) > 0 && i < 2 {
			t.Errorf("the last one was offered to before renter %d", i)
		}
	}
	t.Logf("second %s after the first, third %s after the second", at[1].Sub(at[0]), at[2].Sub(at[1]))
	if gap := at[2].Sub(at[1]); gap < time.Second {
		t.Errorf("the third was offered to %s after the second, which might have awarded", gap)
	}
	eventually(t, func() error {
		if n := metric(t, p, "lacuna_provider_waiting_offers_total"); n != "3" {
			return fmt.Errorf("%s offers to bids that waited, want 3", n)
		}
		return nil
	})
	if n := len(gone.offers) + len(slow.offers) + len(last.offers); n != 0 {
		t.Errorf("%d more offers came; each bid is offered to once", n)
	}
	// An offer held nothing: whoever comes now gets the device.
	want(t, run(t, r, guest(t, "exit", "0")), renter.JobSucceeded, "")
}
