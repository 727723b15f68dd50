package bids

import (
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats counts since [New].
type Stats struct {
	Heard     uint64            // delivered to subscribers
	Published uint64            // for others, as a hub
	Dropped   map[string]uint64 // by reason: see the constants of this package
}

type metrics struct {
	registerer prometheus.Registerer
	dropped    *prometheus.CounterVec
	heard      prometheus.Counter
	published  prometheus.Counter

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
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lacuna_bids_published_total", Help: "Bids published for other peers.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for i, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			for _, done := range m.collectors()[:i] {
				r.Unregister(done)
			}
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.dropped, m.heard, m.published}
}

func (m *metrics) hear() {
	m.mu.Lock()
	m.stats.Heard++
	m.mu.Unlock()
	m.heard.Inc()
}

func (m *metrics) publish() {
	m.mu.Lock()
	m.stats.Published++
	m.mu.Unlock()
	m.published.Inc()
}

func (m *metrics) drop(why reason) {
	m.mu.Lock()
	m.stats.Dropped[string(why)]++
	m.mu.Unlock()
	m.dropped.WithLabelValues(string(why)).Inc()
}

// unregister lets a later Gossip use the same registerer.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors() {
		m.registerer.Unregister(c)
	}
}

// Stats returns the counts so far.
func (g *Gossip) Stats() Stats {
	g.metrics.mu.Lock()
	defer g.metrics.mu.Unlock()
	s := g.metrics.stats
	s.Dropped = maps.Clone(s.Dropped)
	return s
}
