package node_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
)

// TestRunnerUp loses the winner of an auction at once. The runner-up gets the job without a new bid, and that choice is
// explained as well.
func TestRunnerUp(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	for range 10 { // on a slow machine one of the two offers may come too late
		r := nodetest.Start(t, nil)
		nodetest.Join(t, p, r)
		l := newLiar(t, r, &liar{price: market.USD / 10, script: func(d *told) { d.ready(); r := d.receipt(200, receipt.Running); r.Seq = 2; d.state(r) }})
		s := guest(t, "exit", "0")
		s.Providers = []attest.Key{l.signer.Key(), p.Node.Key()}
		j := run(t, r, s)
		want(t, j, renter.JobSucceeded, "")
		views, err := r.Client.Auctions(t.Context(), j.ID)
		if err != nil || len(views) == 0 {
			t.Fatalf("%d auctions, %v", len(views), err)
		}
		if len(views[0].Offers) < 2 {
			continue
		}
		if len(j.Leases) != 2 || len(views) != 2 || views[0].Bid != views[1].Bid {
			t.Fatalf("%d leases, %d auctions; want two of one bid", len(j.Leases), len(views))
		}
		first, second := views[0], views[1]
		if first.Follows != nil || *first.Award.Lease != j.Leases[0] || *second.Award.Lease != j.Leases[1] || second.Award.Peer != p.Node.Key() ||
			second.Follows == nil || *second.Follows != j.Leases[0] || !first.Recomputed || !second.Recomputed {
			t.Errorf("first %+v, then %+v after %v; recomputed: %v (%s), %v (%s)", first.Award, second.Award, second.Follows,
				first.Recomputed, first.RecomputeError, second.Recomputed, second.RecomputeError)
		}
		e := until(t, r, j.ID, func(e renter.Event) bool { return e.Kind == renter.EvAward && e.Award.RunnerUp })
		if e.Award.AuctionMS != nil {
			t.Errorf("an auction of %d ms, want none", *e.Award.AuctionMS)
		}
		return
	}
	t.Error("never were both offers there in time")
}

// TestOffersThatAreNone holds an auction into which a stranger throws everything (cases of a price that is not a price).
func TestOffersThatAreNone(t *testing.T) {
	t.Parallel()
	cheap := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"0.25 USD/h"}]`, nil)
	dear := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"0.30 USD/h"}]`, nil)
	for range 10 { // on a slow machine the best offer may come too late to win
		if thrownAt(t, cheap, dear) {
			return
		}
	}
	t.Error("never were all offers there in time")
}

// thrownAt holds the auction for a renter of its own. It reports whether both honest offers came in time.
func thrownAt(t *testing.T, cheap, dear *nodetest.Peer) bool {
	log := &logged{}
	r := nodetest.StartLogging(t, nil, log.logger())
	nodetest.Join(t, cheap, dear, r)
	var sent sync.WaitGroup
	l := newLiar(t, r, &liar{script: func(*told) { t.Error("a liar was hired") }, answer: func(l *liar, bid attest.Digest, b market.Bid) (attest.Envelope, bool) {
		sent.Go(func() { l.flood(r, bid, b) })
		return attest.Envelope{}, false
	}})
	s := guest(t, "exit", "0")
	s.MaxPrice = market.USD / 2
	s.Providers = []attest.Key{cheap.Node.Key(), dear.Node.Key(), l.signer.Key()}
	j := run(t, r, s)
	want(t, j, renter.JobSucceeded, "")
	sent.Wait()
	views, err := r.Client.Auctions(t.Context(), j.ID)
	if err != nil || len(views) == 0 {
		t.Fatalf("%d auctions, %v", len(views), err)
	}
	v := views[len(views)-1]
	came := map[attest.Key]bool{}
	for _, o := range v.Offers {
		came[o.Peer] = true
	}
	if !came[cheap.Node.Key()] || !came[dear.Node.Key()] {
		return false
	}
	if *j.Provider != cheap.Node.Key() || j.Price != market.USD/4 {
		t.Errorf("awarded to %s for %s, want the honest offer of 0.25", j.Provider, j.Price.PerHour())
	}
	if !v.Recomputed || len(v.Offers) > 4 {
		t.Errorf("auction recomputed: %v (%s), %d offers", v.Recomputed, v.RecomputeError, len(v.Offers))
	}
	for _, o := range v.Offers {
		if o.Peer == l.signer.Key() && o.Excluded != "price_above_limit" {
			t.Errorf("an offer of the liar counts: %+v", o)
		}
	}
	log.quiet(t)
	return true
}

// flood sends offers that no auction may take, and one above the limit a thousand times.
func (l *liar) flood(r *nodetest.Peer, bid attest.Digest, b market.Bid) {
	ctx := within(l.t, patience)
	other := newRaw(l.t, noPorts()).signer
	send := func(e attest.Envelope) { _, _ = l.deal.SendAnswer(ctx, r.Node.Key(), nil, e) } // refused or dropped
	change := func(f func(*market.Offer)) {
		o := l.offerTo(bid, b)
		o.Price = 1
		f(&o)
		if payload, err := attest.Marshal(o); err == nil { // also what Validate refuses
			send(l.signer.SignBytes(market.OfferDomain, payload))
		}
	}
	change(func(o *market.Offer) { o.Price = 0 })
	change(func(o *market.Offer) { o.Price = 1 << 63 })
	change(func(o *market.Offer) { o.FirmUntil = time.Now().Add(-market.ClockTolerance - time.Minute).UnixMilli() })
	change(func(o *market.Offer) { o.FirmUntil = time.Now().Add(time.Hour).UnixMilli() })
	change(func(o *market.Offer) { o.Bid[0]++ })
	change(func(o *market.Offer) { o.Provider = other.Key() })
	change(func(o *market.Offer) { o.Devices = nil })
	change(func(o *market.Offer) { o.Devices = append(o.Devices, o.Devices[0]) })
	good, err := attest.Marshal(l.offerTo(bid, b))
	if err != nil {
		l.t.Error(err)
		return
	}
	price := []byte{5, 0x1a, 0x00, 0x0f, 0x42, 0x40} // key 5: 1,000,000
	if !strings.Contains(string(good), string(price)) {
		l.t.Error("the offer's price is not where this test looks for it")
	}
	for _, p := range [][]byte{
		{5, 0xfb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}, // not a number
		{5, 0xfb, 0xff, 0xf0, 0, 0, 0, 0, 0, 0}, // minus infinity
		{5, 0x20},                               // −1
		{5, 0xf6},                               // null
		{5, 0x64, '0', '.', '1', '0'},           // text
		{5, 1, 5, 1},                            // twice
		{5, 0x18, 1},                            // 1 in two bytes
		{},                                      // missing
	} {
		send(l.signer.SignBytes(market.OfferDomain, []byte(strings.Replace(string(good), string(price), string(p), 1))))
	}
	send(other.SignBytes(market.OfferDomain, good))
	broken := l.signer.SignBytes(market.OfferDomain, good)
	broken.Sig[0]++
	send(broken)
	for range 1000 {
		if _, err := l.deal.SendAnswer(ctx, r.Node.Key(), nil, l.signer.SignBytes(market.OfferDomain, good)); err != nil {
			break // over its rate
		}
	}
}
