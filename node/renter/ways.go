package renter

import (
	"context"
	"errors"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/p2p"
)

// network is what the renter asks about the way to a peer. It is a port since the ways that matter here, through routers
// and relays, cannot be made on one machine; a *p2p.Host has it.
type network interface {
	Path(peer attest.Key) p2p.Path
	Widen(ctx context.Context, peer attest.Key, addrs []string) (p2p.Path, error)
	RTT(peer attest.Key) (time.Duration, bool)
	MeasureRTT(ctx context.Context, peer attest.Key) (time.Duration, error)
}

const (
	// maxMeasured bounds the round trips that one job measures at once.
	maxMeasured = 64
	// measureTimeout bounds one measurement where no window does.
	measureTimeout = time.Second
	// doubtTimeout is how long a peer that left an award unanswered has for a ping.
	doubtTimeout = 2 * time.Second
	// widenTime is how long a hole punch may take, with a margin over the 5 to 10 s that it is known to need.
	widenTime = 12 * time.Second
	// redialTime is how long a peer that is no longer connected is dialled.
	redialTime = awardTimeout
	// earlyWays is to how many peers a wider path is sought while the window is still open.
	earlyWays = 4
)

// measured is an offer on its way into an auction.
type measured struct {
	to    *openAuction
	entry auction.Entry
}

// measure brings an offer into its auction, after the round trip to its provider is known where the job asks for that.
func (v *vigil) measure(ctx context.Context, m measured) {
	k := m.entry.Offer.Provider
	if m.to.record.Latency == 0 {
		v.enter(m)
		return
	}
	if rtt, ok := v.r.net.RTT(k); ok || v.asked >= maxMeasured {
		m.entry.RTTMS = wholeMS(rtt)
		v.enter(m)
		return
	}
	v.asked++
	v.r.group.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, measureTimeout)
		defer cancel()
		if rtt, err := v.r.net.MeasureRTT(ctx, k); err == nil {
			m.entry.RTTMS = wholeMS(rtt)
		}
		v.measured <- m // has room for all that are under way
		return nil
	})
}

// wholeMS returns d in milliseconds, rounded up; 0 for nothing measured.
func wholeMS(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

// pathTo returns how the connection to a peer runs, in the words of the market. One that carries signalling only costs what
// a relay costs, until a better one is found.
func (r *Renter) pathTo(k attest.Key) market.Reach {
	switch r.net.Path(k) {
	case p2p.PathDirect:
		return market.ReachDirect
	case p2p.PathPunched:
		return market.ReachPunched
	case p2p.PathRelayed, p2p.PathLimited:
		return market.ReachRelayed
	}
	return market.ReachUnknown
}

// way is the search for a path that carries a job.
type way struct {
	done chan struct{}
	path p2p.Path
	err  error
}

// doubt closes the connections to a peer that leaves a ping unanswered too. When a peer has changed networks they look
// open for half a minute, and swallow what is said.
func (r *Renter) doubt(k attest.Key) {
	r.group.Go(func() error {
		ctx, cancel := context.WithTimeout(r.ctx, doubtTimeout)
		defer cancel()
		if _, err := r.net.MeasureRTT(ctx, k); err != nil && r.ctx.Err() == nil {
			r.log.Debug("connection is dead", "peer", k, "err", err)
			r.o.Host.Disconnect(k)
		}
		return nil
	})
}

// seek begins to look for a path to the peer that carries a job, or returns the search that is under way.
func (v *vigil) seek(k attest.Key) *way {
	if w := v.ways[k]; w != nil {
		return w
	}
	limit := widenTime
	if v.r.net.Path(k) == p2p.PathNone {
		limit = redialTime
	}
	limit = min(limit, max(time.Until(v.deadline), redialTime))
	w := &way{done: make(chan struct{})}
	v.ways[k] = w
	v.r.group.Go(func() error {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(v.r.ctx, limit)
		defer cancel()
		w.path, w.err = v.r.net.Widen(ctx, k, nil)
		return nil
	})
	return w
}

// widenEarly looks for a path to one of the first candidates while the window is open, so that it costs no time.
func (v *vigil) widenEarly(k attest.Key) {
	if len(v.ways) < earlyWays && v.r.net.Path(k) < p2p.PathPunched {
		v.seek(k)
	}
}

// forgetWays lets an auction look again for what was not found before.
func (v *vigil) forgetWays() {
	for k, w := range v.ways {
		select {
		case <-w.done:
			delete(v.ways, k)
		default:
		}
	}
}

// reach makes sure that a job's data can flow to the provider of the first of these offers. It returns why not, "" if it
// can; the error is errStopped if the job was stopped meanwhile, or that of ctx. As soon as it has to wait, it looks for
// paths to the others as well, so that all together take the time of one.
func (v *vigil) reach(ctx context.Context, ranked []auction.Entry) (string, error) {
	first := ranked[0].Offer.Provider
	if v.r.net.Path(first) >= p2p.PathPunched { // one that is relayed may become a straight one while the punch lasts
		return "", nil
	}
	for _, e := range ranked[1:] {
		if k := e.Offer.Provider; v.r.net.Path(k) == p2p.PathLimited {
			v.seek(k)
		}
	}
	w := v.seek(first)
	for waiting := true; waiting; {
		v.t.mu.Lock()
		changed, stopped := v.t.changed, v.t.stopped
		v.t.mu.Unlock()
		if stopped {
			return "", errStopped
		}
		select {
		case <-w.done:
			waiting = false
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	switch {
	case w.err == nil && w.path.Bulk():
		return "", nil
	case errors.Is(w.err, p2p.ErrLimited) || w.path == p2p.PathLimited:
		return auction.RelayLimited, nil
	}
	v.r.log.Debug("no way to a provider", "peer", first, "err", w.err)
	return auction.CannotReach, nil
}
