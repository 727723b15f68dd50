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
	neighbours *prometheus.CounterVec

	verdicts      *prometheus.CounterVec
	dialBacks     *prometheus.CounterVec
	resources     *prometheus.CounterVec
	relayCircuits prometheus.Gauge
	relayPlaces   prometheus.Gauge
	relayBytes    prometheus.Counter
	relayRefused  *prometheus.CounterVec
	relayAsked    prometheus.Counter
}

func newMetrics(r prometheus.Registerer, peers func() float64) *metrics {
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
		neighbours: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_p2p_neighbours_total", Help: "Peers heard of on the local network, by what came of it.",
		}, []string{"result"}),
	}
	m.reaching()
	m.all = []prometheus.Collector{m.streams, m.refused, m.panics, m.neighbours, m.verdicts, m.dialBacks, m.resources,
		m.relayCircuits, m.relayPlaces, m.relayBytes, m.relayRefused, m.relayAsked, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lacuna_p2p_peers", Help: "Connected peers.",
		}, peers)}
	return m
}

// register lets the counters be read; before that, they only count. If one cannot be registered, none is.
func (m *metrics) register() error {
	if m.registerer == nil {
		return nil
	}
	for i, c := range m.all {
		if err := m.registerer.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// reaching makes the counters of reachability and relaying.
func (m *metrics) reaching() {
	m.verdicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lacuna_p2p_reach_verdicts_total", Help: "Changes of the verdict on how others reach this peer, by the new one.",
	}, []string{"verdict"})
	m.dialBacks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lacuna_p2p_dial_backs_total", Help: "Own addresses that others were asked to dial, by result.",
	}, []string{"result"})
	m.resources = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lacuna_p2p_resources_refused_total", Help: "What the resource manager refused, by kind.",
	}, []string{"kind"})
	m.relayCircuits = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lacuna_p2p_relay_circuits", Help: "Circuits that are relayed for others now.",
	})
	m.relayPlaces = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lacuna_p2p_relay_reservations", Help: "Reservations that others hold here.",
	})
	m.relayAsked = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lacuna_p2p_relay_requests_total", Help: "Reservations asked for by others, granted or not.",
	})
	m.relayBytes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lacuna_p2p_relay_bytes_total", Help: "Bytes relayed for others, both directions.",
	})
	m.relayRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lacuna_p2p_relay_refused_total", Help: "Reservations and circuits refused or ended, by reason.",
	}, []string{"reason"})
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
