package p2p

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
)

const (
	maxRTTs      = 4096      // peers whose round trip is remembered, about 150 bytes each
	rttLife      = time.Hour // of a measurement
	rttPick      = 8
	rttSamples   = 4               // measurements of a peer that count; the lowest is what the line can do
	pingEvery    = time.Minute     // between two rounds of pings
	pingPeers    = 32              // of one round, those first that were measured longest ago
	pingTestnet  = 5 * time.Minute // on a test network, whose peers share one machine
	pingTestnetN = 8
	pingAtOnce   = 4
)

// rtts remembers round trips.
type rtts struct {
	mu sync.Mutex
	m  map[attest.Key]rtt
}

// rtt is what was measured of one peer, newest last.
type rtt struct {
	d  [rttSamples]time.Duration
	n  int
	at time.Time // of the newest
}

func (r *rtts) init() { r.m = make(map[attest.Key]rtt) }

// note keeps a measurement. When there are too many peers, one that was measured long ago is forgotten.
func (r *rtts) note(key attest.Key, d time.Duration, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, known := r.m[key]
	if !known && len(r.m) >= maxRTTs {
		r.evict()
	}
	if now.Sub(v.at) >= rttLife {
		v = rtt{}
	}
	if v.n == rttSamples {
		copy(v.d[:], v.d[1:])
		v.n--
	}
	v.d[v.n] = d
	v.n++
	v.at = now
	r.m[key] = v
}

// evict forgets the oldest of a few peers picked at random, so that a flood of peers does not buy a walk through all.
func (r *rtts) evict() {
	var oldest attest.Key
	seen := 0
	for key, v := range r.m {
		if seen == 0 || v.at.Before(r.m[oldest].at) {
			oldest = key
		}
		if seen++; seen == rttPick {
			break
		}
	}
	delete(r.m, oldest)
}

// get returns the lowest of a peer's recent round trips and when the newest was measured.
func (r *rtts) get(key attest.Key, now time.Time) (d time.Duration, at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, known := r.m[key]
	if !known || now.Sub(v.at) >= rttLife {
		return 0, time.Time{}, false
	}
	return slices.Min(v.d[:v.n]), v.at, true
}

// RTT returns the round trip to a peer as measured, the lowest of the last four measurements, and false if there is none
// of the last hour. It is kept when the connection ends.
func (h *Host) RTT(key attest.Key) (time.Duration, bool) {
	d, _, ok := h.rtts.get(key, time.Now())
	return d, ok
}

// MeasureRTT pings a connected peer and returns the round trip.
func (h *Host) MeasureRTT(ctx context.Context, key attest.Key) (time.Duration, error) {
	return h.pingOnce(ctx, PeerID(key))
}

// MedianRTT returns the median round trip to the connected peers whose latency is known, and false if there are none.
func (h *Host) MedianRTT() (time.Duration, bool) {
	var all []time.Duration
	for _, id := range h.host.Network().Peers() {
		if key, err := KeyOf(id); err == nil {
			if d, ok := h.RTT(key); ok {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// pingOnce returns the round trip to a connected peer, also through a relay, and remembers it.
func (h *Host) pingOnce(ctx context.Context, id peer.ID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, ok := <-h.ping.Ping(network.WithNoDial(ctx, "ping"), id)
	if !ok {
		return 0, context.Cause(ctx)
	}
	if r.Error != nil {
		return 0, r.Error
	}
	if key, err := KeyOf(id); err == nil {
		h.rtts.note(key, r.RTT, time.Now())
	}
	return r.RTT, nil
}

// pingNew measures the latency of a peer that has just connected, once; [Host.MedianRTT] lives on it.
func (h *Host) pingNew(id peer.ID) {
	key, err := KeyOf(id)
	if err != nil {
		return
	}
	if _, ok := h.RTT(key); ok || !h.begin() {
		return
	}
	go func() { // ends with the host's context, which Close waits for
		defer h.running.Done()
		ctx, cancel := context.WithTimeout(h.ctx, pingTimeout)
		defer cancel()
		if _, err := h.pingOnce(ctx, id); err != nil {
			h.log.Debug("ping of new peer without answer", "peer", id.String(), "err", err)
		}
	}()
}

// pingAll measures connected peers again and again, until the host's context ends.
func (h *Host) pingAll() {
	every, most := pingEvery, pingPeers
	if h.testnet {
		every, most = pingTestnet, pingTestnetN
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-ticker.C:
		}
		var wg sync.WaitGroup
		places := make(chan struct{}, pingAtOnce)
		for _, id := range h.stalest(most) {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				ctx, cancel := context.WithTimeout(h.ctx, pingTimeout)
				defer cancel()
				if _, err := h.pingOnce(ctx, id); err != nil {
					h.log.Debug("ping without answer", "peer", id.String(), "err", err)
				}
			})
		}
		wg.Wait()
	}
}

// stalest returns the n connected peers that were measured longest ago.
func (h *Host) stalest(n int) []peer.ID {
	type aged struct {
		id peer.ID
		at time.Time
	}
	var all []aged
	now := time.Now()
	for _, id := range h.host.Network().Peers() {
		if key, err := KeyOf(id); err == nil {
			_, at, _ := h.rtts.get(key, now)
			all = append(all, aged{id, at})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return a.at.Compare(b.at) })
	out := make([]peer.ID, 0, n)
	for _, a := range all[:min(len(all), n)] {
		out = append(out, a.id)
	}
	return out
}
