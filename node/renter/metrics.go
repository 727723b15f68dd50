package renter

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	auctions, awards, receipts, moves prometheus.Counter
	dropped                           *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "lacuna_renter_" + name + "_total", Help: help})
	}
	m := &metrics{
		auctions: counter("auctions", "Auctions held."),
		awards:   counter("awards", "Leases signed by both sides."),
		receipts: counter("receipts", "Receipts accepted."),
		moves:    counter("moves", "Times a job moved to another provider."),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lacuna_renter_dropped_total",
			Help: "Messages from providers that were malformed or did not hold, by kind."}, []string{"kind"}),
	}
	if reg != nil {
		reg.MustRegister(m.auctions, m.awards, m.receipts, m.moves, m.dropped)
	}
	return m
}

// drop counts a message of a peer that does not hold. What was wrong with it is for the developer.
func (r *Renter) drop(kind string, err error) {
	r.metrics.dropped.WithLabelValues(kind).Inc()
	r.log.Debug(kind+" dropped", "err", err)
}
