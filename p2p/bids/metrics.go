package bids

import (
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats counts since [New].
type Stats struct {
	Heard   uint64            // delivered to subscribers
	Dropped map[string]uint64 // by reason: size, malformed, signature, expired, future, replayed, rate, full, queue
}

type metrics struct {
	registerer prometheus.Registerer
	dropped    *prometheus.CounterVec
	heard      prometheus.Counter

	mu    sync.Mutex
	stats Stats
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: r,
		stats:      Stats{Dropped: make(map[string]uint64)},
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_bids_dropped_total", Help: "Bids dropped, by reason.",
		}, []string{"reason"}),
		heard: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lacuna_bids_heard_total", Help: "Bids delivered to subscribers.",
		}),
	}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m.dropped); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if err := r.Register(m.heard); err != nil {
		r.Unregister(m.dropped)
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) hear() {
	m.mu.Lock()
	m.stats.Heard++
	m.mu.Unlock()
	m.heard.Inc()
}

func (m *metrics) drop(why reason) {
	m.mu.Lock()
	m.stats.Dropped[string(why)]++
	m.mu.Unlock()
	m.dropped.WithLabelValues(string(why)).Inc()
}

// unregister lets a later Gossip use the same registerer.
func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.dropped)
		m.registerer.Unregister(m.heard)
	}
}

// Stats returns the counts so far.
func (g *Gossip) Stats() Stats {
	g.metrics.mu.Lock()
	defer g.metrics.mu.Unlock()
	return Stats{Heard: g.metrics.stats.Heard, Dropped: maps.Clone(g.metrics.stats.Dropped)}
}
