package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
	"github.com/lacuna-network/lacuna/market/plan"
)

// demand returns a bid of the renter of that seed, valid for ten minutes, and a name for it.
func demand(renter, request, seq uint64) (attest.Digest, market.Bid) {
	b := markettest.Bid(markettest.FakeKey(renter))
	b.Request, b.Seq = markettest.Nonce(request), seq
	return attest.Sum([]byte{byte(renter), byte(renter >> 8), byte(request), byte(request >> 8), byte(seq)}), b
}

// listed returns renter key, request and seq of what waits, in order.
func listed(w *plan.Waiting) (out []attest.Digest) {
	w.Serve(func(k plan.WaitingBid) (bool, bool) {
		out = append(out, k.ID)
		return false, false
	})
	return out
}

func TestWaiting(t *testing.T) {
	start := markettest.Start()
	id := func(renter, request, seq uint64) attest.Digest { d, _ := demand(renter, request, seq); return d }
	add := func(w *plan.Waiting, renter, request, seq uint64) bool {
		d, b := demand(renter, request, seq)
		return w.Add(d, b, start)
	}
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *plan.Waiting)
		want []attest.Digest
	}{
		{"oldest first", func(t *testing.T, w *plan.Waiting) { add(w, 2, 1, 1); add(w, 1, 1, 1) }, []attest.Digest{id(2, 1, 1), id(1, 1, 1)}},
		{"announced again keeps its turn", func(t *testing.T, w *plan.Waiting) {
			add(w, 1, 1, 1)
			add(w, 2, 1, 1)
			add(w, 1, 1, 2)
		}, []attest.Digest{id(1, 1, 2), id(2, 1, 1)}},
		{"an older announcement changes nothing", func(t *testing.T, w *plan.Waiting) {
			add(w, 1, 1, 3)
			if !add(w, 1, 1, 2) {
				t.Error("it was refused")
			}
		}, []attest.Digest{id(1, 1, 3)}},
		{"a few of each renter", func(t *testing.T, w *plan.Waiting) {
			for i := range uint64(plan.MaxWaitingPerRenter + 3) {
				if got := add(w, 1, i, 1); got != (i < plan.MaxWaitingPerRenter) {
					t.Errorf("request %d was kept: %v", i, got)
				}
			}
			add(w, 2, 1, 1)
			if w.Len() != plan.MaxWaitingPerRenter+1 {
				t.Errorf("%d wait", w.Len())
			}
			w.Expire(start.Add(time.Hour))
		}, nil},
		{"a thousand in all", func(t *testing.T, w *plan.Waiting) {
			for i := range uint64(plan.MaxWaiting + 50) {
				if got := add(w, i, 1, 1); got != (i < plan.MaxWaiting) {
					t.Fatalf("bid %d was kept: %v", i, got)
				}
			}
			if !add(w, 5, 1, 2) {
				t.Error("an announcement of one that waits was refused")
			}
			w.Expire(start.Add(time.Hour))
		}, nil},
		{"dropped by a newer announcement, not by an older one", func(t *testing.T, w *plan.Waiting) {
			add(w, 1, 1, 5)
			add(w, 2, 1, 5)
			_, old := demand(1, 1, 4)
			w.Drop(old)
			_, newer := demand(2, 1, 6)
			w.Drop(newer)
		}, []attest.Digest{id(1, 1, 5)}},
		{"its time runs on this clock", func(t *testing.T, w *plan.Waiting) {
			d, b := demand(1, 1, 1)
			b.IssuedAt += 3_600_000 // the renter's clock is an hour ahead
			b.ValidUntil += 3_600_000
			w.Add(d, b, start)
			w.Expire(start.Add(10 * time.Minute))
			if w.Len() != 1 {
				t.Error("it was forgotten early")
			}
			w.Expire(start.Add(10*time.Minute + time.Millisecond))
		}, nil},
		{"served until done", func(t *testing.T, w *plan.Waiting) {
			for i := range uint64(4) {
				add(w, i, 1, 1)
			}
			n := 0
			w.Serve(func(plan.WaitingBid) (bool, bool) { n++; return n != 2, n == 3 })
			if n != 3 {
				t.Errorf("%d were looked at", n)
			}
		}, []attest.Digest{id(1, 1, 1), id(3, 1, 1)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w plan.Waiting
			tt.do(t, &w)
			if diff := cmp.Diff(tt.want, listed(&w)); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
		})
	}
}
