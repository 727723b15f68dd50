package provider

import (
	"context"
	"errors"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/find"
)

const (
	askLife   = 30 * time.Minute
	askJitter = time.Minute            // at most, so that peers that started together do not publish together
	askSettle = time.Second            // changes within it go out as one
	askRetry  = 500 * time.Millisecond // while nobody can be reached; doubles
	askAlone  = time.Second            // while nobody is connected

	maxAskAddrs = 16
)

// publish keeps the ask in the network as long as something is for sale.
func (p *Provider) publish(ctx context.Context) error {
	retry := time.Duration(0)
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		reach := p.o.Host.ReachChanged()
		wait := find.Republish - rand.N(askJitter)
		if err := p.publishOnce(ctx); err != nil && ctx.Err() == nil {
			retry = min(max(2*retry, askRetry), find.Republish)
			if len(p.o.Host.Peers()) == 0 {
				retry = min(retry, askAlone) // it costs nothing, and the first peer should find the ask
			}
			wait = retry
			p.log.Debug("ask is not published yet", "err", err, "retry_in", retry)
		} else {
			retry = 0
		}
		if !waitFor(ctx, wait, changed, reach) {
			withdraw, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = p.withdraw(withdraw) // the ask expires anyway
			return nil
		}
	}
}

// Republish publishes the ask anew soon, as after a change of this peer's addresses.
func (p *Provider) Republish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
}

// waitFor waits for the time to pass, or for a change of what is for sale or of how this peer is reached, and a moment
// more. It returns false when ctx ends.
func waitFor(ctx context.Context, d time.Duration, changed, reach <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-changed:
	case <-reach:
	}
	settle := time.NewTimer(askSettle)
	defer settle.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-settle.C:
		return true
	}
}

func (p *Provider) publishOnce(ctx context.Context) error {
	now := time.Now()
	ask, ok, err := p.buildAsk(now)
	if err != nil {
		return err
	}
	if !ok {
		return p.withdraw(ctx)
	}
	env, err := p.o.Signer.Sign(market.AskDomain, ask)
	if err != nil {
		return err
	}
	err = p.o.Find.Publish(ctx, env)
	if err == nil || errors.Is(err, find.ErrAlone) { // then those who are connected find it here
		p.published = &ask
	}
	return err
}

// withdrawnLife is how long the last ask, which replaces the one in the network, still lives.
const withdrawnLife = 2 * time.Second

// withdraw takes the ask back, if one was published.
func (p *Provider) withdraw(ctx context.Context) error {
	if p.published == nil {
		return nil
	}
	now := time.Now()
	last := *p.published
	p.mu.Lock()
	p.askSeq = max(p.askSeq+1, uint64(now.UnixMilli()))
	last.Seq = p.askSeq
	p.mu.Unlock()
	last.IssuedAt, last.ExpiresAt = now.UnixMilli(), now.Add(withdrawnLife).UnixMilli()
	last.Lots = append([]market.Lot(nil), last.Lots...)
	for i := range last.Lots {
		last.Lots[i].Free = 0
	}
	env, err := p.o.Signer.Sign(market.AskDomain, last)
	if err != nil {
		return err
	}
	if err := p.o.Find.Withdraw(ctx, env); err != nil {
		return err
	}
	p.published = nil
	return nil
}

// buildAsk returns the ask of this moment, false if nothing is for sale.
func (p *Provider) buildAsk(now time.Time) (market.Ask, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	devices, free, err := p.sellable(now)
	if err != nil {
		return market.Ask{}, false, err
	}
	lots := p.lots(devices, free)
	if p.draining || len(lots) == 0 {
		p.ask = nil
		return market.Ask{}, false, nil
	}
	p.askSeq = max(p.askSeq+1, uint64(now.UnixMilli())) // rises across restarts too
	ask := market.Ask{Version: 1, Provider: p.o.Signer.Key(), Seq: p.askSeq, IssuedAt: now.UnixMilli(),
		ExpiresAt: now.Add(askLife).UnixMilli(), Lots: lots, Place: p.o.Policy.Place, Workloads: p.o.Policy.Workloads,
		Tiers: p.o.Policy.Tiers, Addrs: market.PickAddrs(p.o.Host.Addrs(), maxAskAddrs), Agent: p.o.Agent, Reach: p.o.Host.Reach().Verdict}
	p.ask = &ask
	return ask, true, nil
}

// lots groups equal devices. The caller holds p.mu.
func (p *Provider) lots(devices []gpu.Device, free map[string]bool) []market.Lot {
	type kind struct {
		model, class string
		mem          uint64
		price        market.MicroUSD
		simulated    bool
	}
	groups := map[kind]*market.Lot{}
	var order []kind
	for _, d := range devices {
		k := kind{d.Model, d.Class, d.MemBytes, p.o.Policy.Price(d), d.Simulated}
		if groups[k] == nil {
			groups[k] = &market.Lot{Model: d.Model, Class: d.Class, MemBytes: d.MemBytes, Price: k.price, Simulated: d.Simulated}
			order = append(order, k)
		}
		groups[k].Count++
		if free[d.ID] {
			groups[k].Free++
		}
	}
	sort.Slice(order, func(i, j int) bool { return order[i].price > order[j].price })
	lots := make([]market.Lot, 0, len(order))
	for _, k := range order[:min(len(order), 16)] {
		lots = append(lots, *groups[k])
	}
	return lots
}
