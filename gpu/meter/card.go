package meter

import (
	"math"
	"math/bits"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
)

// reading is a sample with the instant and the lease's running time at it, and
// whether the job ran.
type reading struct {
	gpu.Sample
	at      time.Duration
	ran     time.Duration
	running bool
}

// booking is a running total of one device.
type booking struct {
	total uint64
	fed   bool // grew, or could have grown, since the last cut
}

func (b *booking) add(n uint64) {
	b.total = addSaturating(b.total, n)
	b.fed = true
}

// card is what the meter knows of one device.
type card struct {
	active booking // basis points × ms
	energy booking // µJ (mW × ms)

	// The newest reading while the job ran: readings in a pause show the
	// owner's load, so power and utilisation go from one running reading to
	// the next, in running time.
	seen    bool
	ran     time.Duration
	powerMW *uint64

	// The newest reading that had the energy counter, paused or not.
	counter *reading

	// The newest known running counts.
	ecc, xids, retiredPages *uint64
}

// span is what passed on one device until a reading.
type span struct {
	ms           uint64 // running time since the previous running reading
	continuous   bool   // ms is at most MaxGap
	ecc, xids    *uint64
	retiredPages *uint64
}

// take books what passed since the card's previous reading and returns it. The
// first running reading speaks for the time since the start.
func (c *card) take(r reading) span {
	s := span{
		ms:           uint64(r.ran.Milliseconds() - c.ran.Milliseconds()),
		continuous:   r.ran-c.ran <= MaxGap,
		ecc:          rise(&c.ecc, r.ECCErrors),
		xids:         rise(&c.xids, r.XIDs),
		retiredPages: rise(&c.retiredPages, r.RetiredPages),
	}
	if r.running && r.UtilBP != nil {
		c.active.fed = true
		if s.continuous {
			c.active.add(mulDiv(min(*r.UtilBP, gpu.MaxBP), s.ms, 1))
		}
	}
	switch {
	case r.EnergyMJ != nil && c.counter != nil:
		c.bookCounter(r)
	case c.counter == nil && r.running:
		c.bookPower(r, s)
	}
	if r.EnergyMJ != nil {
		c.counter = &r
	}
	if r.running {
		c.seen, c.ran, c.powerMW = true, r.ran, r.PowerMW
	}
	return s
}

// bookCounter books the difference of the card's own counter, which misses
// nothing between readings. A counter that fell was reset with the driver, so
// its span has no figure.
func (c *card) bookCounter(r reading) {
	c.energy.fed = true
	elapsed := r.at - c.counter.at
	if *r.EnergyMJ <= *c.counter.EnergyMJ || elapsed <= 0 {
		return
	}
	micro := mulDiv(*r.EnergyMJ-*c.counter.EnergyMJ, 1000, 1)
	c.energy.add(mulDiv(micro, uint64(r.ran-c.counter.ran), uint64(elapsed)))
}

// bookPower books power over time, trapezoidal; the card's first reading counts
// for both ends. A card that once showed a counter never comes here again, or a
// span could be booked from both.
func (c *card) bookPower(r reading, s span) {
	from := c.powerMW
	if !c.seen {
		from = r.PowerMW
	}
	if from == nil || r.PowerMW == nil {
		return
	}
	c.energy.fed = true
	if s.continuous {
		c.energy.add(mulDiv(addSaturating(*from, *r.PowerMW), s.ms, 2))
	}
}

// rise returns how much a running count grew since it was last known, and
// remembers it. A count that fell was reset, so all it shows now is new. It is
// nil unless the count was known before and is now.
func rise(known **uint64, now *uint64) *uint64 {
	if now == nil {
		return nil
	}
	before := *known
	*known = new(*now)
	switch {
	case before == nil:
		return nil
	case *now < *before:
		return new(*now)
	default:
		return new(*now - *before)
	}
}

// mulDiv returns ⌊a·b/d⌋, or the largest uint64 if it does not fit. d is not 0.
func mulDiv(a, b, d uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, d)
	return q
}
