package plan

import (
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Bounds of a [Waiting]. A renter of many jobs waits with a few at each provider, so that it cannot fill the list alone.
const (
	MaxWaiting          = 1000
	MaxWaitingPerRenter = 8
)

// WaitingBid is a bid that could be served but for what is taken now.
type WaitingBid struct {
	ID  attest.Digest // of the newest announcement
	Bid market.Bid
	// Until is when the bid is forgotten: its own time to live, counted on this peer's clock.
	Until time.Time
}

// Waiting is a provider's list of bids that wait for capacity, oldest first. It is plain state like [Plan], bounded by
// [MaxWaiting] and [MaxWaitingPerRenter]. The zero value is empty.
type Waiting struct{ bids []WaitingBid }

// Len returns how many bids wait.
func (w *Waiting) Len() int { return len(w.bids) }

func (w *Waiting) index(renter attest.Key, request market.Nonce) int {
	return slices.IndexFunc(w.bids, func(k WaitingBid) bool { return k.Bid.Renter == renter && k.Bid.Request == request })
}

// Add keeps a bid. A newer announcement of the same request takes the place of the older one, in the older one's turn;
// an older one changes nothing. It reports false if there is no room.
func (w *Waiting) Add(id attest.Digest, b market.Bid, now time.Time) bool {
	k := WaitingBid{id, b, now.Add(time.Duration(b.ValidUntil-b.IssuedAt) * time.Millisecond)}
	if i := w.index(b.Renter, b.Request); i >= 0 {
		if b.Seq > w.bids[i].Bid.Seq {
			w.bids[i] = k
		}
		return true
	}
	mine := 0
	for _, o := range w.bids {
		if o.Bid.Renter == b.Renter {
			mine++
		}
	}
	if len(w.bids) >= MaxWaiting || mine >= MaxWaitingPerRenter {
		return false
	}
	w.bids = append(w.bids, k)
	return true
}

// Drop forgets a request of which an announcement came that is not older: it is served, or it asks for something else.
func (w *Waiting) Drop(b market.Bid) {
	if i := w.index(b.Renter, b.Request); i >= 0 && b.Seq >= w.bids[i].Bid.Seq {
		w.bids = slices.Delete(w.bids, i, i+1)
	}
}

// Expire forgets the bids whose time is over.
func (w *Waiting) Expire(now time.Time) {
	w.bids = slices.DeleteFunc(w.bids, func(k WaitingBid) bool { return now.After(k.Until) })
}

// Serve calls f for each bid, oldest first, until f is done. A bid for which f says so is forgotten.
func (w *Waiting) Serve(f func(WaitingBid) (forget, done bool)) {
	over := false
	w.bids = slices.DeleteFunc(w.bids, func(k WaitingBid) (forget bool) {
		if !over {
			forget, over = f(k)
		}
		return forget
	})
}
