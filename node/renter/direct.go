package renter

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/find"
)

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
				if t.named {
					r.resolve(ctx, t.peer)
				}
				reply, ok, err := r.o.Deal.SendBid(ctx, t.peer, t.addrs, env)
				if err != nil {
					r.log.Debug("bid was not answered directly", "peer", t.peer, "err", err)
				}
				if err != nil || !ok {
					return
				}
				select {
				case a.answers <- answer{a, t.peer, reply}:
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
	named bool // by the spec, by its key alone
}

// resolveTimeout is how long the addresses of a named provider are looked for.
const resolveTimeout = 5 * time.Second

// resolve looks up where a peer can be dialled of which only the key may be known. It returns when that is found or ctx
// ends; a look-up that takes longer than one window is of use to the next.
func (r *Renter) resolve(ctx context.Context, k attest.Key) {
	if r.net.Path(k) != p2p.PathNone {
		return
	}
	done := make(chan struct{})
	r.group.Go(func() error {
		defer close(done)
		ctx, cancel := context.WithTimeout(r.ctx, resolveTimeout)
		defer cancel()
		ask, _, err := r.o.Find.Get(ctx, k)
		if err != nil {
			r.log.Debug("no ask of a named provider", "peer", k, "err", err)
			return nil
		}
		r.o.Host.Remember(k, ask.Addrs)
		return nil
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// directTargets finds whom to send a bid directly: the providers that the spec names, half of the rest from own
// experience, then asks.
func (r *Renter) directTargets(ctx context.Context, a *openAuction, j Job, out chan<- target) {
	seen := map[attest.Key]bool{r.o.Signer.Key(): true}
	for _, k := range j.Spec.Exclude {
		seen[k] = true
	}
	n := 0
	send := func(k attest.Key, addrs []string, named bool) bool {
		if seen[k] || n >= auction.DirectCopies {
			return n < auction.DirectCopies
		}
		seen[k] = true
		n++
		a.choose(k)
		select {
		case out <- target{k, addrs, named}:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for _, k := range j.Spec.Providers {
		if !send(k, nil, true) {
			return
		}
	}
	past, err := r.o.Store.EvidencePeers()
	if err != nil {
		r.log.Warn("own experience cannot be read", "err", err)
	}
	for i, k := range shuffled(past) {
		if i >= auction.DirectCopies/2 || !send(k, nil, false) {
			break
		}
	}
	for ask := range r.twoLookups(ctx, a) {
		if !send(ask.Provider, ask.Addrs, false) {
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
