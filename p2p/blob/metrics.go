package blob

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// result is how a request of a peer ended.
type result string

const (
	answered   result = "answered"
	notFound   result = "not_found"
	notAllowed result = "not_allowed"
	malformed  result = "malformed" // no valid frame
	broken     result = "broken"    // the peer went away or was too slow
	failed     result = "failed"    // the file could not be read
)

type metrics struct {
	registerer prometheus.Registerer
	requests   *prometheus.CounterVec
	bytes      *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_blob_requests_total", Help: "Requests of peers for files, by how they ended.",
		}, []string{"result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lacuna_blob_transferred_bytes_total", Help: "Bytes of files sent and received, by direction.",
		}, []string{"direction"}),
	}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m.requests); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if err := r.Register(m.bytes); err != nil {
		r.Unregister(m.requests)
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) count(r result) { m.requests.WithLabelValues(string(r)).Inc() }

// unregister lets a later service use the same registerer.
func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.requests)
		m.registerer.Unregister(m.bytes)
	}
}
