// Package reputation turns one peer's own experience of another into a score.
//
// There is no global score. A node gathers what it saw of a peer as neutral
// [Evidence] (so many micro-USD of work received, or a failure with so much at
// stake) and asks two questions of it:
//
//   - [Score] answers "how good is this peer surely": the 5 % quantile of a Beta
//     posterior, held down by the last seven days and never below the floor that
//     a fresh key gets. It is what people see, and what badges and credit go by.
//     Its [Result] lists every term.
//   - [Mean] answers "what should I expect of the next lease": the posterior mean
//     with a [Prior] learned from this node's own first leases with strangers.
//     The auction ranks by it, so it is computed in integers alone: the same
//     evidence gives the same basis points on every machine.
//
// Evidence counts in [Units] of value ([Params].UnitMicroUSD each), so splitting a
// job gains nothing. Time is counted in whole UTC days: a success adds to its day,
// a day counts at most Params.CapPerDay, and the day's age gives the decay. What
// happens within a day therefore depends neither on the hour nor on the order.
// Every function sees a set of evidence: order is irrelevant and two entries with
// one Ref count once.
//
// The package knows own experience only. It does not store, fetch or verify
// anything, reads no clock, and does not walk other peers' attestations. The
// market and the node's views of peers call it. All functions are pure and
// therefore safe for concurrent use.
package reputation

import (
	"errors"
	"fmt"
	"time"
)

// Full is one whole in basis points.
const Full = 10_000

// Units is an amount of evidence in millionths of an evidence unit, so 5*Unit is
// five units. It is fixed-point because ranking must not depend on a machine's
// floating point.
type Units uint64

// Unit is one evidence unit: Params.UnitMicroUSD of value.
const Unit Units = 1_000_000

// Milli returns u in thousandths of a unit, rounded down.
func (u Units) Milli() uint64 { return uint64(u) / 1_000 }

// String returns u in units with three decimals, rounded down: "12.345".
func (u Units) String() string {
	return fmt.Sprintf("%d.%03d", u/Unit, u%Unit/1_000)
}

// Limits on Params and Evidence. They keep every product below within 128 bits
// and the quantile within the range where it converges.
const (
	// MaxUnitMicroUSD is the largest evidence unit, a million dollars.
	MaxUnitMicroUSD = 1_000_000_000_000
	// MaxCapPerDay is the largest daily cap.
	MaxCapPerDay = 1_000 * Unit
	// MaxRho is the largest weight of a failure against a success.
	MaxRho = 100
	// MaxHalfLife is the longest half-life, ten years of 365 days.
	MaxHalfLife = 10 * 365 * Day
	// MaxSeverityBP is the most that one failure counts, five times its value.
	MaxSeverityBP = 5 * Full
)

// Day is the grain of time in this package: 24 hours, beginning at 00:00 UTC.
const Day = 24 * time.Hour

// Params are the constants of one network; all its peers should agree on them.
// Start from DefaultParams or TestParams: the zero value does not pass Validate.
type Params struct {
	// UnitMicroUSD is the value of one evidence unit, 1 to MaxUnitMicroUSD.
	UnitMicroUSD uint64
	// CapPerDay bounds the successes of one UTC day taken together, and each
	// failure alone: Unit to MaxCapPerDay. Failures have no daily bound, for
	// otherwise all failures past it would be free.
	CapPerDay Units
	// HalfLifeOK and HalfLifeFail are the ages at which a success and a failure
	// count half, Day to MaxHalfLife.
	HalfLifeOK, HalfLifeFail time.Duration
	// ShortWindow is how far back the short term looks, today included: whole
	// days, Day to MaxHalfLife.
	ShortWindow time.Duration
	// ShortPrior is the success that the short term assumes beforehand, so that
	// one failure after silence is not ruin: Unit to MaxCapPerDay.
	ShortPrior Units
	// Rho is the weight of a failure against a success in the score, 1 to MaxRho.
	// The mean weighs both alike: there it estimates, here it deters.
	Rho uint64
	// QuantileBP is the quantile of the posterior that is shown, 1 to Full-1.
	QuantileBP int
	// FloorBP is the lowest score, 1 to Full-1. Where it equals QuantileBP, which
	// is the score of a key without evidence, changing keys gains nothing.
	FloorBP int
}

// DefaultParams returns the constants of a network where money is earned: a unit
// of half a dollar, five units a day, half-lives of 60 and 120 days.
func DefaultParams() Params {
	return Params{
		UnitMicroUSD: 500_000,
		CapPerDay:    5 * Unit,
		HalfLifeOK:   60 * Day,
		HalfLifeFail: 120 * Day,
		ShortWindow:  7 * Day,
		ShortPrior:   4 * Unit,
		Rho:          3,
		QuantileBP:   500,
		FloorBP:      500,
	}
}

// TestParams returns the constants of a test network. A unit is a twenty-
// thousandth of the default, about half a second of a device at 0.20 USD an hour,
// so that a job of seconds moves a score and a dropped one counts; 30 units a day
// let one day of runs pass 9000 basis points, which takes 28.
func TestParams() Params {
	p := DefaultParams()
	p.UnitMicroUSD = 25
	p.CapPerDay = 30 * Unit
	return p
}

// Validate reports every field that is out of its range, joined; nil when none is.
func (p Params) Validate() error {
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("check reputation params: %s must be %s", field, want))
		}
	}
	units := func(u Units) bool { return u >= Unit && u <= MaxCapPerDay }
	age := func(d time.Duration) bool { return d >= Day && d <= MaxHalfLife }
	share := func(bp int) bool { return bp > 0 && bp < Full }
	check(p.UnitMicroUSD >= 1 && p.UnitMicroUSD <= MaxUnitMicroUSD, "UnitMicroUSD", "1 to a million dollars")
	check(units(p.CapPerDay), "CapPerDay", "1 to 1000 units")
	check(age(p.HalfLifeOK), "HalfLifeOK", "a day to ten years")
	check(age(p.HalfLifeFail), "HalfLifeFail", "a day to ten years")
	check(age(p.ShortWindow) && p.ShortWindow%Day == 0, "ShortWindow", "whole days, one to ten years")
	check(units(p.ShortPrior), "ShortPrior", "1 to 1000 units")
	check(p.Rho >= 1 && p.Rho <= MaxRho, "Rho", "1 to 100")
	check(share(p.QuantileBP), "QuantileBP", "1 to 9999")
	check(share(p.FloorBP), "FloorBP", "1 to 9999")
	return errors.Join(errs...)
}

// Evidence is one fact that the observer saw of one peer.
type Evidence struct {
	// At is when it happened. Evidence later than now counts as of now.
	At time.Time
	// OK tells a success from a failure.
	OK bool
	// ValueMicroUSD is, for a success, the value received and accepted; for a
	// failure, the value at stake: what was paid in the job plus one interval, so
	// that nobody can claim more failure than it paid for. Zero counts nothing.
	ValueMicroUSD uint64
	// Ref is the digest of the document that shows it. Entries with one Ref count
	// once; the zero Ref is a Ref like any other. Where entries with one Ref
	// differ, a failure goes before a success, then the earlier, then the smaller.
	Ref [32]byte
	// FirstLease marks the first lease of this observer with this peer; at most
	// one entry per peer carries it. PriorOf counts them.
	FirstLease bool
	// What is a short code for people: done, provider_abort, timeout, lost. It
	// changes no number.
	What string
	// SeverityBP is the weight of a failure: 10000 and 0 count it in full, at
	// most MaxSeverityBP. Successes ignore it.
	SeverityBP uint32
}
