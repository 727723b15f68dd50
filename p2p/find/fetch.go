package find

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	kbucket "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// errLie means that a storing peer sent what no honest one sends. Nothing more is read from it.
var errLie = errors.New("storing peer sent what was not asked for")

// Get returns the newest ask of a provider that can be found, checked. The error wraps [ErrNotFound] if there is none.
func (f *Finder) Get(ctx context.Context, key attest.Key) (market.Ask, attest.Envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	f.seed(ctx)
	x := f.newestOf(ctx, key)
	switch {
	case x == nil && ctx.Err() != nil:
		return market.Ask{}, attest.Envelope{}, fmt.Errorf("get ask of %s: %w", key.Short(), ctx.Err())
	case x == nil:
		return market.Ask{}, attest.Envelope{}, fmt.Errorf("get ask of %s: %w", key.Short(), ErrNotFound)
	case !f.newest.note(key, x.Ask.Seq, x.Ask.ExpiresAt, time.Now()):
		f.metrics.asks.WithLabelValues("older").Inc()
		return market.Ask{}, attest.Envelope{}, fmt.Errorf("get ask of %s: %w: only one that was replaced", key.Short(), ErrNotFound)
	}
	f.metrics.asks.WithLabelValues("found").Inc()
	return x.Ask, x.Envelope, nil
}

// newestOf asks the provider itself if it is connected, then a few peers near its key, then all of them, until it has an
// ask that need not have been replaced yet. It returns nil if there is none.
func (f *Finder) newestOf(ctx context.Context, key attest.Key) *Found {
	var mu sync.Mutex
	var best *Found
	hold := func(a market.Ask, e attest.Envelope) {
		mu.Lock()
		defer mu.Unlock()
		if best == nil || a.Seq > best.Ask.Seq {
			best = &Found{Ask: a, Envelope: e}
		}
	}
	want := getRequest{Provider: &key, Limit: 1}
	ask := func(peers []peer.ID) (enough bool) {
		var wg sync.WaitGroup
		for _, id := range peers {
			wg.Go(func() { _, _ = f.fetch(ctx, id, want, hold) }) // who does not answer is counted there
		}
		wg.Wait()
		return best != nil && fresh(best.Ask, time.Now())
	}
	for _, k := range f.local(want, time.Now()) {
		hold(k.ask, k.envelope)
	}
	if (f.host.Connected(key) && ask([]peer.ID{p2p.PeerID(key)})) ||
		ask(f.dht.RoutingTable().NearestPeers(kbucket.ConvertKey(askKey(key)), voices)) {
		return best
	}
	if peers, err := f.closest(ctx, askKey(key), lookupPatience); err == nil {
		ask(peers)
	}
	return best
}

// fetch asks one peer and hands on what passes all checks, at most want.Limit asks. It returns their number.
func (f *Finder) fetch(ctx context.Context, id peer.ID, want getRequest, take func(market.Ask, attest.Envelope)) (int, error) {
	if f.liars.has(id, time.Now()) {
		return 0, errLie
	}
	n, err := f.read(ctx, id, want, take)
	switch {
	case err == nil:
		f.metrics.asked.WithLabelValues("answered").Inc()
	case errors.Is(err, errLie):
		f.metrics.asked.WithLabelValues("lied").Inc()
		f.liars.add(id, time.Now())
		f.dht.RoutingTable().RemovePeer(id)
	default:
		f.metrics.asked.WithLabelValues("unanswered").Inc()
	}
	if err != nil {
		f.log.Debug("question without an answer", "peer", id.String(), "err", err)
	}
	return n, err
}

func (f *Finder) read(ctx context.Context, id peer.ID, want getRequest, take func(market.Ask, attest.Envelope)) (int, error) {
	key, err := p2p.KeyOf(id)
	if err != nil {
		return 0, err
	}
	s, err := f.host.Open(ctx, key, nil, GetProtocol)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, s.Reset)()
	defer s.Reset() // whatever else it has to say
	if err := s.Send(want); err != nil {
		return 0, err
	}
	wants := want.wants(want.Have)
	for n, got := 0, 0; ; {
		var p page
		if err := s.RecvMax(&p, frameBytes); errors.Is(err, io.EOF) {
			return n, nil
		} else if errors.Is(err, p2p.ErrFrame) {
			return n, fmt.Errorf("%w: %w", errLie, err)
		} else if err != nil {
			return n, err
		}
		for _, e := range p.Asks {
			a, err := openAsk(f.network, e, time.Now())
			got++
			if got > int(want.Limit) || (err == nil && !wants(&kept{ask: a, tag: tagOf(e)})) {
				err = errors.New("not asked for")
			}
			if errors.Is(err, market.ErrExpired) { // on its way, or clocks differ
				f.metrics.asks.WithLabelValues("expired").Inc()
				continue
			}
			if err != nil {
				f.metrics.asks.WithLabelValues("invalid").Inc()
				return n, fmt.Errorf("%w: %w", errLie, err)
			}
			n++
			take(a, e)
		}
	}
}

// Peers that lied are not asked again for a while.
const (
	shunFor  = 10 * time.Minute
	maxLiars = 1024
)

// liars holds peers that lied.
type liars struct {
	mu    sync.Mutex
	until map[peer.ID]time.Time
}

func (l *liars) add(id peer.ID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = make(map[peer.ID]time.Time)
	}
	for old, t := range l.until {
		if len(l.until) >= maxLiars || now.After(t) {
			delete(l.until, old)
		}
	}
	l.until[id] = now.Add(shunFor)
}

func (l *liars) has(id peer.ID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.until[id])
}
