package reputation

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Result is a score with everything that it was made of.
type Result struct {
	// ScoreBP is the score shown, in basis points:
	// max(FloorBP, min(QuantileBP, ShortBP)).
	ScoreBP int
	// QuantileBP is the quantile of Beta(1 + S, 1 + Rho*F), in basis points. It
	// may lie below the floor.
	QuantileBP int
	// ShortBP is (p + S7) / (p + S7 + Rho*F7) with p = ShortPrior, in basis
	// points rounded down; 10000 where the short window holds no failure.
	ShortBP int
	// S and F are the successes and failures after cap and decay, the sums of the
	// terms' Decayed.
	S, F Units
	// S7 and F7 are those of the short window after the cap, without decay.
	S7, F7 Units
	// Count is the number of distinct entries, the length of Terms.
	Count int
	// Terms holds one entry per piece of evidence, oldest first, then by Ref.
	Terms []Term
}

// Term is what one piece of evidence adds to a score.
type Term struct {
	// Evidence is the entry itself.
	Evidence Evidence
	// AgeDays is the number of midnights (UTC) since, 0 for today and later.
	AgeDays int64
	// DecayBP is the weight left at that age, in basis points.
	DecayBP int
	// Raw is the value in units before severity, cap and decay. It stops at the
	// largest Units.
	Raw Units
	// Capped is Raw after the cap and, for a failure, times its severity. The cap
	// of a day goes to its successes in the order of Terms.
	Capped Units
	// Decayed is Capped after decay: what S or F contains of it.
	Decayed Units
	// Recent tells whether the short window contains it.
	Recent bool
}

// Score returns how good the peer behind ev is at now, by the observer's own
// experience. No evidence gives QuantileBP = ScoreBP = p.QuantileBP. The quantile
// is computed in floating point and rounded to basis points, for people to read;
// what machines must agree on is Mean. Score panics on Params that Validate
// refuses. It does not change ev.
func Score(p Params, ev []Evidence, now time.Time) Result {
	r := tally(p, ev, now)
	a := 1 + float64(r.S)/float64(Unit)
	b := 1 + float64(p.Rho)*float64(r.F)/float64(Unit)
	r.QuantileBP = int(math.Round(Full * betaQuantile(float64(p.QuantileBP)/Full, a, b)))
	good := uint64(p.ShortPrior + r.S7)
	r.ShortBP = int(mulDiv(good, Full, satAdd(good, satMul(p.Rho, uint64(r.F7)))))
	r.ScoreBP = max(p.FloorBP, min(r.QuantileBP, r.ShortBP))
	return r
}

// tally returns a Result with its sums and terms set and its shares not.
func tally(p Params, ev []Evidence, now time.Time) Result {
	if err := p.Validate(); err != nil {
		panic("reputation: " + err.Error())
	}
	set := distinct(ev)
	r := Result{Count: len(set), Terms: make([]Term, 0, len(set))}
	limit := mulDiv(uint64(p.CapPerDay), p.UnitMicroUSD, uint64(Unit))
	window := int64(p.ShortWindow / Day)
	today := dayOf(now)
	var (
		day  int64  // the day that used belongs to
		used uint64 // micro-USD of successes counted in it, at most limit
	)
	for i, e := range set {
		t := Term{Evidence: e, Raw: p.units(e.ValueMicroUSD)}
		d := min(dayOf(e.At), today)
		if i == 0 || d != day {
			day, used = d, 0
		}
		t.AgeDays = today - d
		t.Recent = t.AgeDays < window
		value := min(e.ValueMicroUSD, limit)
		if e.OK {
			w := decay(t.AgeDays, p.HalfLifeOK)
			t.DecayBP = bpOf(w)
			// Differences of the day's running total, not amounts rounded one by
			// one: so the terms of a day add up to the same bits however its
			// value was split.
			before, after := p.units(used), p.units(min(used+value, limit))
			used = min(used+value, limit)
			t.Capped = after - before
			t.Decayed = scale(after, w) - scale(before, w)
			r.S += t.Decayed
			if t.Recent {
				r.S7 += t.Capped
			}
		} else {
			w := decay(t.AgeDays, p.HalfLifeFail)
			t.DecayBP = bpOf(w)
			t.Capped = Units(mulDiv(uint64(p.units(value)), severity(e), Full))
			t.Decayed = scale(t.Capped, w)
			r.F += t.Decayed
			if t.Recent {
				r.F7 += t.Capped
			}
		}
		r.Terms = append(r.Terms, t)
	}
	return r
}

// units returns the evidence units that value is worth, rounded down.
func (p Params) units(value uint64) Units {
	return Units(mulDiv(value, uint64(Unit), p.UnitMicroUSD))
}

// severity returns the weight of the failure e in basis points.
func severity(e Evidence) uint64 {
	if e.SeverityBP == 0 {
		return Full
	}
	return uint64(min(e.SeverityBP, MaxSeverityBP))
}

// distinct returns ev sorted by At and Ref, each Ref once.
func distinct(ev []Evidence) []Evidence {
	set := slices.Clone(ev)
	for i := range set {
		// A monotonic reading would make the order of times depend on where
		// each of them came from.
		set[i].At = set[i].At.Round(0)
	}
	slices.SortFunc(set, func(a, b Evidence) int {
		return cmp.Or(bytes.Compare(a.Ref[:], b.Ref[:]), byWeight(a, b))
	})
	set = slices.CompactFunc(set, func(a, b Evidence) bool { return a.Ref == b.Ref })
	slices.SortFunc(set, func(a, b Evidence) int {
		return cmp.Or(a.At.Compare(b.At), bytes.Compare(a.Ref[:], b.Ref[:]))
	})
	return set
}

// byWeight orders entries of one Ref so that the one to believe comes first. It
// looks at every field, for which one is kept must not depend on the order given.
func byWeight(a, b Evidence) int {
	return cmp.Or(
		boolCompare(a.OK, b.OK),
		a.At.Compare(b.At),
		cmp.Compare(a.ValueMicroUSD, b.ValueMicroUSD),
		cmp.Compare(a.SeverityBP, b.SeverityBP),
		boolCompare(a.FirstLease, b.FirstLease),
		cmp.Compare(a.What, b.What),
	)
}

// boolCompare orders false before true.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// mulDiv returns a*b/c, rounded down, or the largest uint64 where that is larger.
// c must not be zero.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// satMul returns a*b, or the largest uint64 where that is larger.
func satMul(a, b uint64) uint64 { return mulDiv(a, b, 1) }

// satAdd returns a+b, or the largest uint64 where that is larger.
func satAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
