package find

import (
	"context"
	"errors"
	"slices"
	"time"

	kbucket "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"
)

// A walk through the DHT waits for peers that died, 5 s or more for each few of them. These are how long others wait for
// the walk, which takes less than a second among the living.
const (
	lookupPatience  = 1500 * time.Millisecond
	publishPatience = 5 * time.Second
)

const (
	storing  = 20 // peers that keep an ask under each key
	maxWalks = 32 // under way at once; those that nobody waits for any more last up to 30 s
)

// closest returns the peers nearest to a key, nearest first. If it takes longer than patience to find out, these are the
// nearest that have answered so far and then the nearest that are known; the walk goes on, up to 30 s, so that those who
// died are forgotten. The error wraps [ErrAlone] if there are none.
func (f *Finder) closest(ctx context.Context, key string, patience time.Duration) ([]peer.ID, error) {
	if !f.begin() { // then it is time to look at what is known, and not to begin another
		return f.known(key, nil)
	}
	type result struct {
		peers []peer.ID
		err   error
	}
	done := make(chan result, 1)
	walk, cancel := context.WithTimeout(f.ctx, opTimeout)
	walk, events := routing.RegisterForQueryEvents(walk)
	go func() { // ends with the finder, or after opTimeout
		defer f.end()
		defer cancel()
		peers, err := f.dht.GetClosestPeers(walk, key)
		done <- result{peers, err}
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	var answered []peer.ID
	for {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
			} else if e.Type == routing.PeerResponse {
				answered = append(answered, e.ID)
			}
		case r := <-done:
			if errors.Is(r.err, kbucket.ErrLookupFailure) || (r.err == nil && len(r.peers) == 0) {
				r.err = ErrAlone
			}
			return r.peers, r.err
		case <-ctx.Done():
			cancel()
			return nil, ctx.Err()
		case <-limit.C:
			if events != nil {
				go drain(events)
			}
			return f.known(key, answered)
		}
	}
}

// known returns the peers nearest to a key as far as is known: of those who answered, and then of the routing table.
func (f *Finder) known(key string, answered []peer.ID) ([]peer.ID, error) {
	near := kbucket.SortClosestPeers(answered, kbucket.ConvertKey(key))
	near = near[:min(len(near), storing)]
	for _, id := range f.dht.RoutingTable().NearestPeers(kbucket.ConvertKey(key), storing) {
		if !slices.Contains(near, id) {
			near = append(near, id)
		}
	}
	if len(near) == 0 {
		return nil, ErrAlone
	}
	return near, nil
}

// drain reads what a walk still tells, or it would wait. It ends with the walk.
func drain(events <-chan *routing.QueryEvent) {
	for range events {
	}
}

// begin counts a walk in; it reports false when there are too many, or the finder closes.
func (f *Finder) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil || f.walking == maxWalks {
		return false
	}
	f.walking++
	f.walks.Add(1)
	return true
}

func (f *Finder) end() {
	f.mu.Lock()
	f.walking--
	f.mu.Unlock()
	f.walks.Done()
}
