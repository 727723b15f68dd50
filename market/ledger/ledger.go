// Package ledger says what each side of a lease owes, what either may risk, and proves it afterwards.
//
// [Limits] are a provider's exposure rules: [Limits.Admit] is asked before each interval. Exposure is money, not
// paper: what is due but not settled over all leases of a renter, and what one lease ran up without an acknowledging
// voucher. [File] is the receipt file that a stranger verifies offline with [Verify].
//
// The package is pure. Its functions may be called concurrently.
package ledger

import (
	"fmt"
	"math"
	"time"

	"github.com/lacuna-network/lacuna/market"
)

// Limits are what a provider risks on renters. They are parameters of a network; the owner may set them lower or
// higher.
type Limits struct {
	// TrialPerDay is the credit, per UTC day, that all keys which never settled anything share.
	TrialPerDay market.MicroUSD
	// TrialDevices is how many devices all never-settled keys may hold at once; 0 = no limit.
	TrialDevices int
}

// DefaultLimits returns the limits of a network: a stranger's first dollar a day on one device, or, on a test network,
// enough for any experiment.
func DefaultLimits(network string) Limits {
	if market.IsTestNetwork(network) {
		return Limits{TrialPerDay: 1000 * market.USD}
	}
	return Limits{TrialPerDay: 1 * market.USD, TrialDevices: 1}
}

// Position is where a provider stands with a renter when the next interval of a lease is to begin. Intervals of other
// leases of the renter that run already, but are not due yet, belong into Due and TrialToday at their full price.
type Position struct {
	Line         market.MicroUSD // credit line written for this renter; where it and Settled are 0 the trial cap counts
	Due          market.MicroUSD // due over all leases of this renter
	Settled      market.MicroUSD // received from this renter over a rail
	TrialToday   market.MicroUSD // due today over all never-settled keys, this one with it
	TrialDevices int             // devices held by never-settled keys, those asked for with them

	Lease    market.Lease    // the lease that asks
	LeaseDue market.MicroUSD // due on this lease
	Vouched  market.MicroUSD // vouched on this lease
	Next     market.MicroUSD // cost of the next interval
}

// Gate names the gate that an interval failed to pass.
type Gate string

// The gates.
const (
	MoneyGate           Gate = "credit"
	AcknowledgementGate Gate = "acknowledgement"
)

// Refusal says why the next interval may not begin.
type Refusal struct {
	Gate   Gate
	Reason string
}

// Error returns the reason for people.
func (r *Refusal) Error() string { return string(r.Gate) + ": " + r.Reason }

// Admit returns nil if the provider may run the next interval, else why not.
func (l Limits) Admit(p Position) *Refusal {
	if r := l.admitMoney(p); r != nil {
		return r
	}
	limit := AckLimit(p.Lease)
	if open := sub(add(p.LeaseDue, p.Next), p.Vouched); open > limit {
		return &Refusal{AcknowledgementGate, fmt.Sprintf("%s would be unacknowledged, at most %s", open, limit)}
	}
	return nil
}

func (l Limits) admitMoney(p Position) *Refusal {
	if p.Line > 0 || p.Settled > 0 {
		if open := sub(add(p.Due, p.Next), p.Settled); open > p.Line { // what was settled ahead counts
			return &Refusal{MoneyGate, fmt.Sprintf("%s would be unsettled, the credit line is %s", open, p.Line)}
		}
		return nil
	}
	if open := add(p.TrialToday, p.Next); open > l.TrialPerDay {
		return &Refusal{MoneyGate, fmt.Sprintf("%s would be owed today by peers that never settled, the cap is %s", open, l.TrialPerDay)}
	}
	if l.TrialDevices > 0 && p.TrialDevices > l.TrialDevices {
		return &Refusal{MoneyGate, fmt.Sprintf("peers that never settled may hold %d devices", l.TrialDevices)}
	}
	return nil
}

// AckLimit is how much of a lease may go unacknowledged: what the time it may survive costs, and at least two
// intervals, since the receipt of one is under way while the next runs.
func AckLimit(l market.Lease) market.MicroUSD {
	survive := market.DueFor(l.Price, len(l.Devices), time.Duration(l.SurviveMS)*time.Millisecond)
	return max(survive, 2*(l.IntervalCost()+1))
}

// CheckBudget reports whether a lease may cost another interval within the renter's budget.
func CheckBudget(l market.Lease, due, next market.MicroUSD) bool { return add(due, next) <= l.Budget }

func sub(a, b market.MicroUSD) market.MicroUSD { return a - min(a, b) }

// add stops at the largest amount instead of wrapping, which would look like no exposure at all.
func add(a, b market.MicroUSD) market.MicroUSD { return a + min(b, math.MaxUint64-a) }
