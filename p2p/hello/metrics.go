package hello

import (
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// result is how a greeting ended, on either side.
type result string

const (
	answered  result = "answered"
	malformed result = "malformed" // no valid frame, or not what the protocol carries
	signature result = "signature" // a statement that the sender did not sign for this network
	replayed  result = "replayed"  // a statement that was said before
	broken    result = "broken"    // the peer went away or was too slow
	foreign   result = "foreign"   // the peer speaks no common version
	failed    result = "failed"    // a fault of this side
)

// Stats counts greetings since [New], by how they ended: answered, malformed, signature, replayed, broken, foreign
// or failed. Streams that the host refused are not in it.
type Stats struct {
	In  map[string]uint64 // of others
	Out map[string]uint64 // own ones
}

type metrics struct {
	registerer prometheus.Registerer
	all        []prometheus.Collector
	greetings  *prometheus.CounterVec
	forgotten  prometheus.Counter

	mu    sync.Mutex
	stats Stats
}

func newMetrics(r prometheus.Registerer, offset func() float64) (*metrics, error) {
	m := &metrics{
		registerer: r,
		stats:      Stats{In: make(map[string]uint64), Out: make(map[string]uint64)},
		greetings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_hello_greetings_total", Help: "Greetings, by direction and how they ended.",
		}, []string{"direction", "result"}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lacuna_hello_forgotten_total", Help: "Peers that were not remembered for lack of room.",
		}),
	}
	m.all = []prometheus.Collector{m.greetings, m.forgotten, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lacuna_hello_clock_offset_seconds", Help: "How far the median of other clocks is ahead of this one; 0 = unknown.",
	}, offset)}
	if r == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := r.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) in(r result)  { m.count("in", m.stats.In, r) }
func (m *metrics) out(r result) { m.count("out", m.stats.Out, r) }

func (m *metrics) count(direction string, stats map[string]uint64, r result) {
	m.greetings.WithLabelValues(direction, string(r)).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	stats[string(r)]++
}

// unregister lets a later Service use the same registerer.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all {
		m.registerer.Unregister(c)
	}
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	return Stats{In: maps.Clone(s.metrics.stats.In), Out: maps.Clone(s.metrics.stats.Out)}
}
