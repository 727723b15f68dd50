package find

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	registerer prometheus.Registerer
	asks       *prometheus.CounterVec
	lookups    prometheus.Counter
	asked      *prometheus.CounterVec
	stored     *prometheus.CounterVec
	served     *prometheus.CounterVec
	held       prometheus.GaugeFunc
}

func newMetrics(r prometheus.Registerer, held func() float64) (*metrics, error) {
	m := &metrics{
		registerer: r,
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_find_asks_total",
			Help: "Asks that others sent, by result: found, again, older, expired, invalid (a bad one, or one not asked for).",
		}, []string{"result"}),
		lookups: prometheus.NewCounter(prometheus.CounterOpts{Name: "lacuna_find_lookups_total", Help: "Look-ups begun."}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_find_questions_total", Help: "Questions to storing peers, by result: answered, unanswered, lied.",
		}, []string{"result"}),
		stored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_find_puts_total",
			Help: "Requests to keep an ask, by result: kept, older, full, foreign, invalid; malformed counts all requests.",
		}, []string{"result"}),
		served: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_find_served_total", Help: "Requests answered, by kind: route, get.",
		}, []string{"kind"}),
		held: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lacuna_find_held_asks", Help: "Asks kept for others and the own one."}, held),
	}
	if r == nil {
		return m, nil
	}
	for i, c := range m.all() {
		if err := r.Register(c); err != nil {
			for _, done := range m.all()[:i] {
				r.Unregister(done)
			}
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.asks, m.lookups, m.asked, m.stored, m.served, m.held}
}

// unregister lets a later finder use the same registerer.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all() {
		m.registerer.Unregister(c)
	}
}
