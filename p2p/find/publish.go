package find

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// Republish is how often an ask should be published again; give it some jitter. Peers near a key come and go, and after
// it the asks are where look-ups go.
const Republish = 11 * time.Minute

// Publish brings an ask of this peer to those who keep it. Call it again every [Republish], with a new sequence. An ask
// with a lower sequence than the last is refused. It returns an error that wraps [ErrAlone] if nobody but this peer holds
// the ask; those who are connected, such as light clients, find it all the same.
func (f *Finder) Publish(ctx context.Context, ask attest.Envelope) error {
	if err := f.publish(ctx, ask); err != nil {
		return fmt.Errorf("publish ask: %w", err)
	}
	return nil
}

// Withdraw replaces this peer's ask by a last one with a higher sequence that expires within seconds: nobody can be made
// to delete, but everyone forgets what has expired. It goes straight to those who keep the ask, since it is short-lived. The
// error wraps [ErrAlone] if none of them took it.
func (f *Finder) Withdraw(ctx context.Context, last attest.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if _, err := f.keep(last); err != nil {
		return fmt.Errorf("withdraw ask: %w", err)
	}
	f.mu.Lock()
	holders := f.holders
	f.keys, f.holders = nil, nil
	f.mu.Unlock()
	taken := make([]bool, len(holders))
	var wg sync.WaitGroup
	for i, id := range holders {
		wg.Go(func() { taken[i] = f.put(ctx, id, last) })
	}
	wg.Wait()
	if !slices.Contains(taken, true) {
		return fmt.Errorf("withdraw ask: %w", ErrAlone)
	}
	return nil
}

func (f *Finder) publish(ctx context.Context, e attest.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	a, err := f.keep(e)
	if err != nil {
		return err
	}
	keys := keysOf(a)
	f.mu.Lock()
	// Where the last ask was and this one does not belong, this one takes its place.
	all := slices.Concat(keys, slices.DeleteFunc(slices.Clone(f.keys), func(k string) bool { return slices.Contains(keys, k) }))
	f.keys = keys
	f.mu.Unlock()
	holders, err := f.spread(ctx, e, all)
	if len(holders) > 0 {
		f.mu.Lock()
		f.holders = holders
		f.mu.Unlock()
	}
	return err
}

// keep checks an ask of this peer and keeps it here.
func (f *Finder) keep(e attest.Envelope) (market.Ask, error) {
	now := time.Now()
	a, err := openAsk(f.network, e, now)
	if err != nil {
		return a, err
	}
	if a.Provider != f.host.Key() {
		return a, fmt.Errorf("ask of %s, this peer is %s", a.Provider.Short(), f.host.Key().Short())
	}
	return a, f.store.add(a, e, "", now)
}

// delivery is the ask's way to one peer, who may be near several keys.
type delivery struct {
	done chan struct{} // closed when kept is known
	kept bool
}

// spread brings an ask to the peers nearest to the keys, to each peer once, and returns those who keep it.
func (f *Finder) spread(ctx context.Context, e attest.Envelope, keys []string) ([]peer.ID, error) {
	f.seed(ctx)
	var mu sync.Mutex
	deliveries := make(map[peer.ID]*delivery)
	var wg sync.WaitGroup
	deliver := func(id peer.ID) *delivery {
		mu.Lock()
		defer mu.Unlock()
		d := deliveries[id]
		if d == nil {
			d = &delivery{done: make(chan struct{})}
			deliveries[id] = d
			wg.Go(func() {
				defer close(d.done)
				d.kept = f.put(ctx, id, e)
			})
		}
		return d
	}
	errs := make([]error, len(keys))
	for i, key := range keys {
		wg.Go(func() {
			peers, err := f.closest(ctx, key, publishPatience)
			if err != nil {
				errs[i] = err
				return
			}
			var near []*delivery
			for _, id := range peers {
				near = append(near, deliver(id))
			}
			errs[i] = ErrAlone
			for _, d := range near {
				if <-d.done; d.kept {
					errs[i] = nil
				}
			}
		})
	}
	wg.Wait()
	var holders []peer.ID
	for id, d := range deliveries {
		if d.kept {
			holders = append(holders, id)
		}
	}
	if len(holders) == 0 {
		return nil, errs[0]
	}
	for i, err := range errs {
		if err != nil {
			return holders, fmt.Errorf("under %s: %s", keys[i], err) // others hold it, so this is no ErrAlone
		}
	}
	return holders, nil
}

// put asks a peer to keep the own ask, and reports whether it does.
func (f *Finder) put(ctx context.Context, id peer.ID, e attest.Envelope) bool {
	key, err := p2p.KeyOf(id)
	if err != nil {
		return false
	}
	s, err := f.host.Open(ctx, key, nil, PutProtocol)
	if err != nil {
		f.log.Debug("ask not brought", "peer", key, "err", err)
		return false
	}
	defer s.Close()
	var a putAnswer
	if err := errors.Join(s.Send(putRequest{Ask: e}), s.RecvMax(&a, 64)); err != nil {
		f.log.Debug("ask not brought", "peer", key, "err", err)
		s.Reset()
		return false
	}
	return a.Kept
}
