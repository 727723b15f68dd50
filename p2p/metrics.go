package p2p

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	registerer prometheus.Registerer
	all        []prometheus.Collector
	streams    *prometheus.CounterVec
	refused    *prometheus.CounterVec
	panics     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, peers func() float64) (*metrics, error) {
	m := &metrics{
		registerer: r,
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_p2p_streams_total", Help: "Streams opened, by protocol and direction.",
		}, []string{"protocol", "direction"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_p2p_streams_refused_total", Help: "Inbound streams refused, by protocol and limit.",
		}, []string{"protocol", "reason"}),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_p2p_handler_panics_total", Help: "Panics caught in handlers, by protocol.",
		}, []string{"protocol"}),
	}
	m.all = []prometheus.Collector{m.streams, m.refused, m.panics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lacuna_p2p_peers", Help: "Connected peers.",
	}, peers)}
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

// unregister lets a later host use the same registerer.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all {
		m.registerer.Unregister(c)
	}
}
