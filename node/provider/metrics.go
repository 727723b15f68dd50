package provider

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	offers, late, declines, accepts, refusals, receipts, vouchers prometheus.Counter
	dropped                                                       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "lacuna_provider_" + name + "_total", Help: help})
	}
	m := &metrics{
		offers:   counter("offers", "Offers made."),
		late:     counter("waiting_offers", "Offers made to bids that waited for a device."),
		declines: counter("declines", "Bids declined."),
		accepts:  counter("accepts", "Awards accepted."),
		refusals: counter("refusals", "Awards refused."),
		receipts: counter("receipts", "Receipts signed."),
		vouchers: counter("vouchers", "Vouchers accepted."),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lacuna_provider_dropped_total",
			Help: "Messages from renters that were malformed or did not hold, by kind."}, []string{"kind"}),
	}
	if reg != nil {
		reg.MustRegister(m.offers, m.late, m.declines, m.accepts, m.refusals, m.receipts, m.vouchers, m.dropped)
	}
	return m
}
