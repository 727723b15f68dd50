package find

import (
	"context"
	"iter"
	"sync"
	"time"

	kbucket "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

const (
	voices     = 3                      // peers that are asked at once, each for its part, so that none alone decides what is found
	hedge      = 500 * time.Millisecond // after it the search goes on without the answers of slow peers
	freshFor   = Republish + 2*time.Minute
	atOnce     = 4  // buckets that are searched at once
	getsAtOnce = 32 // questions under way in one look-up
)

// Found is an ask with the envelope that proves it.
type Found struct {
	Ask      market.Ask
	Envelope attest.Envelope
}

// Lookup yields asks that match, as they come in, each provider once, until all who should keep them were asked, q.Limit
// is reached, the loop is left, or ctx ends. An ask that its provider should have replaced by now comes last, and only if
// no newer one was found. All goroutines have ended when it returns.
func (f *Finder) Lookup(ctx context.Context, q Query) iter.Seq[Found] {
	return func(yield func(Found) bool) {
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		f.metrics.lookups.Inc()
		f.seed(ctx)
		limit := q.Limit
		if limit <= 0 || limit > maxAsks {
			limit = maxAsks
		}
		s := newSearch(f, getRequest{Classes: q.Classes, Places: q.Places}, limit)
		done := make(chan struct{})
		go func() { // ends soon after cancel
			defer close(done)
			defer close(s.found)
			s.run(ctx, q.buckets())
		}()
		defer func() {
			cancel()
			<-done
		}()
		n := 0
		for x := range s.found {
			if !yield(x) {
				return
			}
			if n++; n == limit {
				return
			}
		}
	}
}

// search is one look-up under way.
type search struct {
	f     *Finder
	want  getRequest
	found chan Found
	calls chan struct{} // bounds the questions under way
	mu    sync.Mutex
	heard map[peer.ID]bool       // those who were asked for something
	asked map[peer.ID]bool       // those who have nothing more, or were asked for it
	known map[attest.Key]*answer // by provider
	left  int                    // how many asks are still wanted
}

// answer is the best ask of a provider so far.
type answer struct {
	Found
	tag     tag
	yielded bool
}

func newSearch(f *Finder, want getRequest, limit int) *search {
	return &search{
		f: f, want: want, left: limit, found: make(chan Found), calls: make(chan struct{}, getsAtOnce),
		heard: make(map[peer.ID]bool), asked: make(map[peer.ID]bool), known: make(map[attest.Key]*answer),
	}
}

func (s *search) run(ctx context.Context, buckets []bucket) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, b := range buckets {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			s.bucket(ctx, b.key(), min(len(buckets), atOnce))
		})
	}
	wg.Wait()
	// What this peer keeps itself comes last: anyone may have brought it here, to be what this peer finds.
	for _, k := range s.f.store.find(s.need(), s.want.query(), time.Now(), s.want.wants(s.tags())) {
		s.take(ctx, k.ask, k.envelope)
	}
	s.rest(ctx)
}

// bucket asks the peers that keep a bucket: first the nearest that are known, and then, unless that is enough, those that
// are nearest. The search's other buckets are asked for their share meanwhile.
func (s *search) bucket(ctx context.Context, key string, share int) {
	var steps sync.WaitGroup
	defer steps.Wait()
	// step goes on when all peers have answered, or some take long. What these still send counts, too.
	step := func(peers []peer.ID, split int) {
		done := make(chan struct{})
		steps.Go(func() {
			defer close(done)
			s.ask(ctx, peers, split)
		})
		wait := time.NewTimer(hedge)
		defer wait.Stop()
		select {
		case <-done:
		case <-wait.C:
		}
	}
	step(s.f.dht.RoutingTable().NearestPeers(kbucket.ConvertKey(key), voices), voices*share)
	if s.need() == 0 || ctx.Err() != nil {
		return
	}
	peers, err := s.f.closest(ctx, key, lookupPatience)
	if err != nil {
		s.f.log.Debug("nobody near a bucket", "bucket", key, "err", err)
		return
	}
	peers = s.unheardFirst(peers)
	// Of honest peers the first three have all there is. One more shows what those hid, and only then all are asked at once,
	// who would each send the same.
	n := min(voices, len(peers))
	step(peers[:n], n)
	step(peers[n:min(n+1, len(peers))], 0)
	step(peers, 0)
}

// ask asks peers at once for what is still wanted. With split > 0 each is asked for that fraction of it, so that no peer
// alone decides what is found, and three for different providers, so that nothing is read twice.
func (s *search) ask(ctx context.Context, peers []peer.ID, split int) {
	n := s.need()
	if split > 0 {
		n = (n + split - 1) / split
	}
	var wg sync.WaitGroup
	for i, id := range peers {
		want := s.want
		if split > 0 && len(peers) == voices {
			want.Part, want.Parts = uint64(i), voices
		}
		if n > 0 && s.mayAsk(id, split == 0) {
			wg.Go(func() { s.drain(ctx, id, want, n) })
		}
	}
	wg.Wait()
}

// mayAsk reports whether a peer may have more, and notes that it is asked for all of it.
func (s *search) mayAsk(id peer.ID, all bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.asked[id]
	s.asked[id] = old || all
	s.heard[id] = true
	return !old
}

// unheardFirst puts those first who had no say yet, so that one peer's share of a small answer stays a third.
func (s *search) unheardFirst(peers []peer.ID) []peer.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, then []peer.ID
	for _, id := range peers {
		if s.heard[id] {
			then = append(then, id)
		} else {
			first = append(first, id)
		}
	}
	return append(first, then...)
}

// drain asks one peer for up to n asks, page by page.
func (s *search) drain(ctx context.Context, id peer.ID, want getRequest, n int) {
	for n > 0 && s.need() > 0 {
		want.Limit, want.Have = uint64(min(n, maxPage)), s.tags()
		select {
		case s.calls <- struct{}{}:
		case <-ctx.Done():
			return
		}
		got, err := s.f.fetch(ctx, id, want, func(a market.Ask, e attest.Envelope) { s.take(ctx, a, e) })
		<-s.calls
		n -= got
		if more := err == nil && uint64(got) == want.Limit; !more {
			if err != nil || want.Parts == 0 {
				s.mayAsk(id, true)
			}
			return
		}
	}
}

func (s *search) need() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// tags returns the tags of all that is known, so that it is not sent again.
func (s *search) tags() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []byte
	for _, x := range s.known {
		if len(out) < maxAsks*tagBytes {
			out = append(out, x.tag[:]...)
		}
	}
	return out
}

// take takes in an ask that was checked.
func (s *search) take(ctx context.Context, a market.Ask, e attest.Envelope) {
	now := time.Now()
	s.mu.Lock()
	x := s.known[a.Provider]
	if (x != nil && (x.yielded || a.Seq <= x.Ask.Seq)) || (x == nil && len(s.known) >= maxAsks) {
		s.mu.Unlock()
		s.f.metrics.asks.WithLabelValues("again").Inc()
		return
	}
	if !s.f.newest.note(a.Provider, a.Seq, a.ExpiresAt, now) {
		s.mu.Unlock()
		s.f.metrics.asks.WithLabelValues("older").Inc()
		return
	}
	x = &answer{Found: Found{Ask: a, Envelope: e}, tag: tagOf(e)}
	s.known[a.Provider] = x
	x.yielded = s.left > 0 && fresh(a, now)
	if x.yielded {
		s.left--
	}
	yield := x.yielded
	s.mu.Unlock()
	if yield {
		s.give(ctx, x.Found)
	}
}

// fresh reports an ask that its provider need not have replaced yet. Others may be brought back by a peer that hides the
// newer one.
func fresh(a market.Ask, now time.Time) bool {
	return now.UnixMilli() < a.IssuedAt+freshFor.Milliseconds()
}

func (s *search) give(ctx context.Context, x Found) {
	s.f.metrics.asks.WithLabelValues("found").Inc()
	s.f.host.Remember(x.Ask.Provider, x.Ask.Addrs)
	select {
	case s.found <- x:
	case <-ctx.Done():
	}
}

// rest gives the asks that were held back for newer ones.
func (s *search) rest(ctx context.Context) {
	s.mu.Lock()
	var held []Found
	for _, x := range s.known {
		if !x.yielded && s.left > 0 {
			x.yielded = true
			s.left--
			held = append(held, x.Found)
		}
	}
	s.mu.Unlock()
	for _, x := range held {
		s.give(ctx, x)
	}
}
