package reputation

import "time"

// What the mean assumes of a stranger before any first lease: priorWeight units of
// evidence, eight tenths of them good.
const (
	priorWeight  = 4
	priorStartBP = 8_000
)

// Prior is what this observer learned from its first leases with strangers. The
// zero value is an observer without any.
type Prior struct {
	// FirstLeases is the number of peers that it ever leased from.
	FirstLeases uint
	// OK is how many of these first leases went well; more than FirstLeases
	// counts as FirstLeases.
	OK uint
}

// PriorOf counts the first leases in ev, which holds the observer's evidence of
// all peers. Entries with one Ref count once.
func PriorOf(ev []Evidence) Prior {
	var p Prior
	for _, e := range distinct(ev) {
		if !e.FirstLease {
			continue
		}
		p.FirstLeases++
		if e.OK {
			p.OK++
		}
	}
	return p
}

// BP returns the success rate to expect of a stranger, (3.2 + ok) / (4 + n), in
// basis points rounded down, 1 to 9999. Without first leases it is 8000.
func (p Prior) BP() int {
	// The bound is beyond any life's leases; it keeps the sums below from
	// overflowing.
	n := min(uint64(p.FirstLeases), 1<<48)
	ok := min(uint64(p.OK), n)
	good := priorWeight*priorStartBP + Full*ok
	return open(good / (priorWeight + n))
}

// Mean returns the success rate to expect of the peer behind ev at now, in basis
// points rounded down, 1 to 9999:
//
//	(4*p0 + s) / (4 + s + f)
//
// with p0 = prior.BP() and s, f as in Result, the failure weighing no more than
// its value. No evidence gives p0. Mean is never 0, so that an expected price may
// be divided by it. It computes in integers alone. Mean panics on Params that
// Validate refuses. It does not change ev.
func Mean(p Params, ev []Evidence, prior Prior, now time.Time) int {
	r := tally(p, ev, now)
	return MeanOf(r.S, r.F, prior)
}

// MeanOf is Mean for a caller that has the sums S and F of a Result already.
func MeanOf(s, f Units, prior Prior) int {
	const weight = priorWeight * uint64(Unit)
	good := satAdd(weight/Full*uint64(prior.BP()), uint64(s))
	all := satAdd(satAdd(weight, uint64(s)), uint64(f))
	return open(mulDiv(good, Full, all))
}

// open returns bp, moved into the open interval between 0 and Full.
func open(bp uint64) int { return int(min(max(bp, 1), Full-1)) }
