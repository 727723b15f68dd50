package find

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// fetchers is how many asks one look-up fetches at a time; each costs about 6 calls.
const fetchers = 8

// Query says which asks to look for.
type Query struct {
	Classes []string // the ask has a lot of one of them; empty = any
	Places  []string // the provider says it is on one of these continents, or market.AnyPlace; empty = anywhere
	Limit   int      // stop after so many asks; 0 = no limit
}

// Found is an ask with the envelope that proves it.
type Found struct {
	Ask      market.Ask
	Envelope attest.Envelope
}

func (q Query) anywhere() bool {
	return len(q.Places) == 0 || slices.Contains(q.Places, market.AnyPlace)
}

// buckets returns where to look. Without classes there is one bucket for all places, and the places are checked on the
// asks.
func (q Query) buckets() []bucket {
	if len(q.Classes) == 0 {
		return []bucket{{allClasses, market.AnyPlace}}
	}
	places := q.Places
	if q.anywhere() {
		places = []string{market.AnyPlace}
	}
	var out []bucket
	for _, class := range q.Classes {
		for _, place := range places {
			if b := (bucket{class, place}); !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// match checks an ask itself: buckets are only what its provider entered.
func (q Query) match(a market.Ask) bool {
	if !q.anywhere() && !slices.Contains(q.Places, a.Place.Continent) {
		return false
	}
	return len(q.Classes) == 0 || slices.ContainsFunc(a.Lots, func(l market.Lot) bool { return slices.Contains(q.Classes, l.Class) })
}

// Lookup yields asks that match, as they come in, each provider once, until all buckets are read, q.Limit is reached,
// the loop is left, or ctx ends. All goroutines have ended when it returns.
func (f *Finder) Lookup(ctx context.Context, q Query) iter.Seq[Found] {
	return func(yield func(Found) bool) {
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		f.metrics.lookups.Inc()
		f.seed(ctx)
		found := make(chan Found)
		done := make(chan struct{})
		go func() { // ends when all fetchers have, at the latest after cancel
			defer close(done)
			defer close(found)
			f.search(ctx, q, found)
		}()
		defer func() {
			cancel()
			<-done
		}()
		n := 0
		for x := range found {
			if !yield(x) {
				return
			}
			if n++; n == q.Limit {
				return
			}
		}
	}
}

// search reads the buckets at once and fetches the ask of each provider in them.
func (f *Finder) search(ctx context.Context, q Query, found chan<- Found) {
	var wg sync.WaitGroup
	defer wg.Wait()
	candidates := make(chan peer.AddrInfo)
	for range fetchers {
		wg.Go(func() {
			for info := range candidates {
				f.fetch(ctx, q, info, found)
			}
		})
	}
	var readers sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[peer.ID]bool)
	for _, b := range q.buckets() {
		readers.Go(func() {
			for info := range f.dht.FindProvidersAsync(ctx, b.cid(), 0) {
				mu.Lock()
				old := seen[info.ID]
				seen[info.ID] = true
				mu.Unlock()
				if old {
					continue
				}
				select {
				case candidates <- info:
				case <-ctx.Done(): // the channel above is closed soon, too
				}
			}
		})
	}
	readers.Wait()
	close(candidates)
}

func (f *Finder) fetch(ctx context.Context, q Query, info peer.AddrInfo, found chan<- Found) {
	key, err := p2p.KeyOf(info.ID)
	if err != nil || ctx.Err() != nil {
		return
	}
	a, e, err := f.Get(ctx, key)
	if err != nil {
		f.log.Debug("candidate without ask", "peer", key, "err", err)
		return
	}
	if !q.match(a) {
		return
	}
	f.remember(info, key, a)
	select {
	case found <- Found{Ask: a, Envelope: e}:
	case <-ctx.Done():
	}
}
