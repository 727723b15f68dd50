// Package meter integrates time and samples into the usage and telemetry of one
// lease.
//
// A [Meter] is told when the job starts, pauses and resumes, and is handed each
// reading of the lease's devices; [Meter.Cut] ends an interval and returns what
// a receipt states about it. Every instant is monotonic time since the lease's
// own origin, given by the caller, so that a step of the wall clock changes
// nothing. An instant before the newest one already seen counts as that one.
//
// Cumulative figures are derived from totals and an interval is the difference
// of two of them; rounded parts are never summed, so nothing drifts however the
// intervals fall. What was not measured is absent, never 0.
//
// Rules that a reader of a receipt should know:
//
//   - Billable time is devices × running time. Readings in a pause show the
//     owner's load; of them only the cards' own counters are looked at.
//   - Energy and active time are booked when a reading arrives, for the running
//     time since the device's previous reading. They are stated for an interval
//     in which every device gave such a reading; otherwise what is booked waits
//     for the next such interval, and the interval has no figure.
//   - Energy is the difference of the card's own counter where it has one
//     (shared out by running time over a span with a pause), and else power over
//     time by the trapezoidal rule.
//   - Power or utilisation is not assumed over more than [MaxGap] of running
//     time between two readings: such a span is left out. So a cumulative figure
//     is what was measured, which may be less than what was used.
//   - A telemetry field is stated if every device reported it in the interval.
//
// The package reads no clock and no device, and signs nothing. It is called by
// node, once per lease. A Meter is not safe for concurrent use.
package meter

import (
	"fmt"
	"math"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
)

// MaxGap is the longest running time between two readings over which power and
// utilisation are taken as continuous: ten readings at the usual one a second.
const MaxGap = 10 * time.Second

// Meter holds the totals of one lease. Use [New].
type Meter struct {
	devices int

	running bool
	started bool
	now     time.Duration // newest instant seen
	ran     time.Duration // running time until now

	cards  map[string]*card
	counts gpu.Usage // tokens and bytes so far
	cum    gpu.Usage // as of the last cut
	obs    *observations
}

// New returns a meter for a lease of the given number of devices. It panics if
// there are none.
func New(devices int) *Meter {
	if devices < 1 {
		panic(fmt.Sprintf("meter: lease of %d devices", devices))
	}
	return &Meter{
		devices: devices,
		cards:   make(map[string]*card, devices),
		counts:  gpu.Usage{},
		cum:     gpu.Usage{},
		obs:     newObservations(devices),
	}
}

// Start begins the running time at at. A second Start does nothing.
func (m *Meter) Start(at time.Duration) {
	if m.started {
		return
	}
	m.started, m.running, m.now = true, true, at
}

// Pause stops the running time at at. It does nothing while paused or before
// Start.
func (m *Meter) Pause(at time.Duration) {
	m.advance(at)
	m.running = false
}

// Resume continues the running time at at. It does nothing while running or
// before Start.
func (m *Meter) Resume(at time.Duration) {
	m.advance(at)
	m.running = m.started
}

// Running returns the running time until the newest instant seen.
func (m *Meter) Running() time.Duration { return m.ran }

// advance moves the newest instant to at and adds to the running time.
func (m *Meter) advance(at time.Duration) {
	if !m.started || at <= m.now {
		return
	}
	if m.running {
		m.ran += at - m.now
	}
	m.now = at
}

// Sample takes a reading made at at. Readings before Start are ignored, and so
// are those of a device beyond the number given to [New]: the caller passes the
// readings of the lease's own devices only. s.At is not looked at.
func (m *Meter) Sample(at time.Duration, s gpu.Sample) {
	if !m.started {
		return
	}
	m.advance(at)
	c := m.cards[s.Device]
	if c == nil {
		if len(m.cards) == m.devices {
			return
		}
		c = &card{}
		m.cards[s.Device] = c
	}
	passed := c.take(reading{Sample: s, at: m.now, ran: m.ran, running: m.running})
	if m.running {
		m.obs.add(s, passed)
	}
}

// Count adds n to a counter that the work itself reports: tokens or bytes. A
// counter that is never counted stays absent; a count of 0 makes it present. It
// panics for the units that the meter measures itself.
func (m *Meter) Count(u gpu.Unit, n uint64) {
	if u < gpu.TokensIn || u > gpu.BytesOut {
		panic(fmt.Sprintf("meter: %v is not counted by the caller", u))
	}
	m.counts = m.counts.Add(gpu.Usage{u: n})
}

// Cut ends the interval at at and begins the next one. It returns the usage of
// the interval, the cumulative usage since Start, which never falls, and the
// interval's telemetry. A delta lacks the counters that were not measured in the
// interval; cum keeps their last value. The caller owns all three.
func (m *Meter) Cut(at time.Duration) (delta, cum gpu.Usage, tel gpu.Telemetry) {
	m.advance(at)
	next := m.counts.Clone()
	next[gpu.BillableDeviceMS] = mulDiv(uint64(m.ran), uint64(m.devices), uint64(time.Millisecond))
	if v, ok := m.total(func(c *card) *booking { return &c.active }); ok {
		next[gpu.ActiveMS] = v / gpu.MaxBP
	}
	if v, ok := m.total(func(c *card) *booking { return &c.energy }); ok {
		next[gpu.EnergyMJ] = v / 1000
	}

	delta = make(gpu.Usage, len(next))
	for u, v := range next {
		delta[u] = v - m.cum[u]
		m.cum[u] = v
	}
	tel = m.obs.telemetry()
	m.obs = newObservations(m.devices)
	return delta, m.cum.Clone(), tel
}

// total sums a booking over all cards and reports whether each of them was fed
// since the last cut.
func (m *Meter) total(of func(*card) *booking) (sum uint64, ok bool) {
	ok = len(m.cards) == m.devices
	for _, c := range m.cards {
		b := of(c)
		ok = ok && b.fed
		b.fed = false
		sum = addSaturating(sum, b.total)
	}
	return sum, ok
}

func addSaturating(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
