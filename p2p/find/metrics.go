package find

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	registerer prometheus.Registerer
	asks       *prometheus.CounterVec
	lookups    prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: r,
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_find_asks_total", Help: "Asks fetched, by result: found, invalid, older.",
		}, []string{"result"}),
		lookups: prometheus.NewCounter(prometheus.CounterOpts{Name: "lacuna_find_lookups_total", Help: "Look-ups begun."}),
	}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m.asks); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if err := r.Register(m.lookups); err != nil {
		r.Unregister(m.asks)
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// unregister lets a later finder use the same registerer.
func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.asks)
		m.registerer.Unregister(m.lookups)
	}
}
