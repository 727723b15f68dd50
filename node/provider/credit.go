package provider

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// credit keeps what renters owe, over all leases. It is filled from the store at start and guarded by Provider.mu.
// While no settlement rail exists nobody has settled anything, and the trial cap holds for all.
type credit struct {
	due     map[attest.Key]market.MicroUSD // over all leases of a renter
	days    map[string]market.MicroUSD     // UTC day → due by never-settled keys
	devices map[attest.Key]int             // devices in use
	running map[attest.Digest]running      // by lease: the interval that runs and is not due yet
}

// running is an interval under way, at its full price.
type running struct {
	renter attest.Key
	cost   market.MicroUSD
}

func newCredit() *credit {
	return &credit{due: map[attest.Key]market.MicroUSD{}, days: map[string]market.MicroUSD{}, devices: map[attest.Key]int{},
		running: map[attest.Digest]running{}}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// add books what a renter came to owe at that time.
func (c *credit) add(renter attest.Key, amount market.MicroUSD, at time.Time) {
	c.due[renter] += amount
	c.days[day(at)] += amount
	for d := range c.days {
		if d < day(at.AddDate(0, 0, -2)) {
			delete(c.days, d)
		}
	}
}

func (c *credit) use(renter attest.Key, devices int) {
	if c.devices[renter] += devices; c.devices[renter] <= 0 {
		delete(c.devices, renter)
	}
}

// position returns where a renter stands. The running intervals of all leases but one count as due.
func (c *credit) position(renter attest.Key, but attest.Digest, now time.Time) ledger.Position {
	p := ledger.Position{Due: c.due[renter], TrialToday: c.days[day(now)]}
	for _, n := range c.devices {
		p.TrialDevices += n
	}
	for lease, r := range c.running {
		if lease == but {
			continue
		}
		p.TrialToday += r.cost
		if r.renter == renter {
			p.Due += r.cost
		}
	}
	return p
}

// affordable returns the running time that the lease's budget pays for.
func affordable(l market.Lease) time.Duration {
	hi, lo := bits.Mul64(uint64(l.Budget), uint64(time.Hour/time.Millisecond))
	if hi >= uint64(l.Price) {
		return math.MaxInt64
	}
	deviceMS, _ := bits.Div64(hi, lo, uint64(l.Price))
	ms := deviceMS / uint64(len(l.Devices))
	if ms > uint64(market.MaxDuration/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// admit holds the next interval of a tenancy against both gates. It returns nil, and counts the interval as running, or
// why not.
func (p *Provider) admit(t *tenancy, now time.Time) *ledger.Refusal {
	due, vouched := t.amounts()
	next := t.lease.IntervalCost() + 1 // the interval may be a millisecond longer than planned
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.credit.position(t.lease.Renter, t.id, now)
	pos.Lease, pos.LeaseDue, pos.Vouched, pos.Next = t.lease, due, vouched, next
	refusal := p.o.Policy.Limits.Admit(pos)
	if refusal == nil {
		p.credit.running[t.id] = running{t.lease.Renter, next}
	}
	return refusal
}

// Renters returns the peers that have had leases here, nil until Run has read them from the store.
func (p *Provider) Renters() []attest.Key {
	select {
	case <-p.up:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.credit.due))
}
