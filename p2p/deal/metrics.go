package deal

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// result is how a request of a peer ended.
type result string

const (
	answered  result = "answered"
	malformed result = "malformed" // no valid frame, or not what the protocol carries
	broken    result = "broken"    // the peer went away or was too slow
	failed    result = "failed"    // a fault of this side
)

// Stats counts requests of peers since New, over all protocols. Streams that the host refused are not in it.
type Stats struct {
	Answered  uint64 // got an answer, whatever it says
	Malformed uint64 // no valid frame, or not what the protocol carries
	Broken    uint64 // the peer went away or was too slow
	Failed    uint64 // this side could not answer
}

type metrics struct {
	registerer prometheus.Registerer
	requests   *prometheus.CounterVec
	mu         sync.Mutex
	stats      Stats
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{registerer: r, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lacuna_deal_requests_total", Help: "Requests of peers, by protocol and how they ended.",
	}, []string{"protocol", "result"})}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m.requests); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) count(protocol string, r result) {
	m.requests.WithLabelValues(protocol, string(r)).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r {
	case answered:
		m.stats.Answered++
	case malformed:
		m.stats.Malformed++
	case broken:
		m.stats.Broken++
	case failed:
		m.stats.Failed++
	}
}

// unregister lets a later service use the same registerer.
func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.requests)
	}
}

// Stats returns what was counted so far.
func (s *Service) Stats() Stats {
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	return s.metrics.stats
}
