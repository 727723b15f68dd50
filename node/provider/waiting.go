package provider

import (
	"context"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/match"
	"github.com/lacuna-network/lacuna/market/plan"
	"github.com/lacuna-network/lacuna/p2p/deal"
)

// promiseTime is how long devices that were offered to a bid that waits are offered to no other bid that waits: an answer
// and an award over the longest paths, and a renter that thinks for a moment. It holds nothing: a new bid, and an award of
// any offer that stands, come first.
const promiseTime = 2 * time.Second

// queue is what a provider remembers of the bids that wait for its devices. It is under Provider.mu.
type queue struct {
	plan.Waiting
	fresh    bool                 // a bid came since the last look
	seen     map[string]bool      // devices that were to be had at the last look
	promised map[string]time.Time // devices offered to a bid that waits, until when no other gets them offered
	again    chan struct{}        // tells that an offer to a bid that waits came to nothing
}

func newQueue() queue {
	return queue{promised: map[string]time.Time{}, again: make(chan struct{}, 1)}
}

// await keeps a bid that only has to wait, and forgets one that need not, or must not. The caller holds p.mu.
func (p *Provider) await(id attest.Digest, b market.Bid, fails []market.Failure, now time.Time) {
	if len(fails) != 1 || fails[0].Reason != market.Busy {
		p.queue.Drop(b)
		return
	}
	if !p.queue.Add(id, b, now) {
		p.metrics.dropped.WithLabelValues("waiting_full").Inc()
		return
	}
	p.queue.fresh = true
}

// offerWaiting offers what gets free to the bids that wait for it, the oldest that fits first.
func (p *Provider) offerWaiting(ctx context.Context) error {
	tick := time.NewTicker(watchEvery) // holds run out without anyone saying so
	defer tick.Stop()
	for {
		p.mu.Lock()
		changed := p.changed
		p.serveWaiting(ctx, time.Now())
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-p.queue.again:
		case <-tick.C:
		}
	}
}

// serveWaiting makes one offer for each set of devices that is to be had. It costs nothing while nothing has changed. The
// caller holds p.mu.
func (p *Provider) serveWaiting(ctx context.Context, now time.Time) {
	p.queue.Expire(now)
	if p.queue.Len() == 0 || p.draining {
		p.queue.seen = nil
		return
	}
	devices, free, err := p.sellable(now)
	if err != nil {
		return // watch says so
	}
	left, news := p.unpromised(free, now)
	fresh := p.queue.fresh
	p.queue.fresh = false
	if left == 0 || !fresh && !news {
		return
	}
	p.queue.Serve(func(k plan.WaitingBid) (forget, done bool) {
		chosen, fails := p.fit(k.ID, k.Bid, devices, free, now)
		if len(fails) > 0 {
			return fails[0].Reason != market.Busy, false
		}
		env, ok := p.offer(k.ID, k.Bid, chosen, now)
		if !ok {
			return true, false
		}
		p.metrics.late.Inc()
		p.answers[k.ID] = &answered{env, true, answerUntil(k.Bid)}
		for _, d := range chosen {
			free[d.ID] = false
			delete(p.queue.seen, d.ID)
			p.queue.promised[d.ID] = now.Add(promiseTime)
			left--
		}
		p.group.Go(func() error { p.sendLate(ctx, k.Bid, env, chosen); return nil })
		return true, left == 0
	})
}

// unpromised takes what is promised out of free. It returns how many devices are left, and whether one of them was not to
// be had at the last look. The caller holds p.mu.
func (p *Provider) unpromised(free map[string]bool, now time.Time) (left int, news bool) {
	for id, until := range p.queue.promised {
		if !now.Before(until) {
			delete(p.queue.promised, id)
		} else {
			free[id] = false
		}
	}
	seen := map[string]bool{}
	for id, ok := range free {
		if ok {
			seen[id] = true
			news = news || !p.queue.seen[id]
		}
	}
	p.queue.seen = seen
	return len(seen), news
}

// sendLate sends an offer to a bid that waited. If its renter is gone, or waits no more, the next one is offered to.
func (p *Provider) sendLate(ctx context.Context, b market.Bid, env attest.Envelope, devices []gpu.Device) {
	code, err := p.o.Deal.SendAnswer(ctx, b.Renter, b.ReplyTo, env)
	if err == nil && code == deal.OK {
		return
	}
	p.log.Debug("offer to a bid that waited came to nothing", "peer", b.Renter, "code", code, "err", err)
	p.mu.Lock()
	delete(p.offers, env.ID())
	for _, d := range devices {
		delete(p.queue.promised, d.ID)
	}
	p.mu.Unlock()
	select {
	case p.queue.again <- struct{}{}:
	default:
	}
}

// fit returns the devices that this provider would offer to the bid, or why none. The caller holds p.mu.
func (p *Provider) fit(id attest.Digest, b market.Bid, devices []gpu.Device, free map[string]bool, now time.Time) ([]gpu.Device, []market.Failure) {
	chosen, fails := match.Fit(b, match.Seller{Devices: devices, Free: free, Place: p.o.Policy.Place,
		Workloads: p.o.Policy.Workloads, Tiers: p.o.Policy.Tiers, HostMemBytes: p.o.Policy.HostMem,
		MaxDuration: p.o.Policy.MaxDuration, Notice: p.o.Policy.Notice, Stopping: p.draining, Spread: id})
	if len(fails) == 0 {
		fails = p.creditFails(b.Renter, len(chosen), p.priceOf(chosen), b, now)
	}
	return chosen, fails
}
