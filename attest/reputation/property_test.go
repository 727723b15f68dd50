package reputation_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest/reputation"
)

// randomEvidence returns n entries of the last 200 days and a little of the
// future, three of four good.
func randomEvidence(rng *rand.Rand, n int) []reputation.Evidence {
	var ev []reputation.Evidence
	for i := range n {
		ev = append(ev, reputation.Evidence{
			At:            noon.Add(2*day - time.Duration(rng.Int64N(int64(200*day)))),
			OK:            rng.IntN(4) > 0,
			ValueMicroUSD: rng.Uint64N(4 * halfDollar),
			Ref:           ref(i),
			FirstLease:    rng.IntN(20) == 0,
			What:          "done",
			SeverityBP:    uint32(rng.IntN(30_000)),
		})
	}
	return ev
}

// FuzzProperties draws evidence from a seed and holds what must be true of any.
func FuzzProperties(f *testing.F) {
	for seed := range uint64(150) {
		f.Add(seed, seed*7_919, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed, value uint64, size uint8) {
		rng := rand.New(rand.NewPCG(seed, value))
		p := reputation.DefaultParams()
		if seed%2 == 0 {
			p = reputation.TestParams()
		}
		prior := reputation.Prior{FirstLeases: uint(rng.IntN(50)), OK: uint(rng.IntN(50))}
		ev := randomEvidence(rng, int(size))
		base := reputation.Score(p, ev, noon)
		mean := reputation.Mean(p, ev, prior, noon)
		if base.ScoreBP < 500 || base.ScoreBP > 10_000 {
			t.Fatalf("score = %d bp, want 500 to 10000", base.ScoreBP)
		}
		if mean <= 0 || mean >= 10_000 {
			t.Fatalf("mean = %d bp, want between 0 and 10000", mean)
		}
		checkSums(t, base)

		shuffled := append(slices.Clone(ev), ev...)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(base, reputation.Score(p, shuffled, noon)); diff != "" {
			t.Fatalf("score depends on order or repetition:\n%s", diff)
		}
		if got := reputation.Mean(p, shuffled, prior, noon); got != mean {
			t.Fatalf("mean of shuffled evidence = %d, want %d", got, mean)
		}

		extra := reputation.Evidence{
			At: noon.Add(day - time.Duration(rng.Int64N(int64(150*day)))), OK: true,
			ValueMicroUSD: value, Ref: ref(1 << 20), SeverityBP: uint32(rng.IntN(60_000)),
		}
		more := append(slices.Clone(ev), extra)
		up := reputation.Score(p, more, noon)
		if up.ScoreBP < base.ScoreBP || up.QuantileBP < base.QuantileBP || up.ShortBP < base.ShortBP {
			t.Fatalf("a success lowered the score: %d/%d/%d to %d/%d/%d", base.ScoreBP, base.QuantileBP, base.ShortBP, up.ScoreBP, up.QuantileBP, up.ShortBP)
		}
		if got := reputation.Mean(p, more, prior, noon); got < mean {
			t.Fatalf("a success lowered the mean from %d to %d", mean, got)
		}
		checkSplit(t, p, ev, extra, rng)

		more[len(more)-1].OK = false
		down := reputation.Score(p, more, noon)
		if down.ScoreBP > base.ScoreBP || down.QuantileBP > base.QuantileBP || down.ShortBP > base.ShortBP {
			t.Fatalf("a failure raised the score: %d/%d/%d to %d/%d/%d", base.ScoreBP, base.QuantileBP, base.ShortBP, down.ScoreBP, down.QuantileBP, down.ShortBP)
		}
		if got := reputation.Mean(p, more, prior, noon); got > mean {
			t.Fatalf("a failure raised the mean from %d to %d", mean, got)
		}
	})
}

// checkSums holds the terms of r against its totals.
func checkSums(t *testing.T, r reputation.Result) {
	t.Helper()
	var s, f, s7, f7 reputation.Units
	for _, term := range r.Terms {
		sum, recent := &f, &f7
		if term.Evidence.OK {
			sum, recent = &s, &s7
		}
		*sum += term.Decayed
		if term.Recent {
			*recent += term.Capped
		}
	}
	if s != r.S || f != r.F || s7 != r.S7 || f7 != r.F7 {
		t.Fatalf("terms add up to s %v f %v s7 %v f7 %v, want %v %v %v %v", s, f, s7, f7, r.S, r.F, r.S7, r.F7)
	}
}

// checkSplit holds that cutting the success whole into parts, anywhere in its day,
// changes no number but Count and Terms.
func checkSplit(t *testing.T, p reputation.Params, ev []reputation.Evidence, whole reputation.Evidence, rng *rand.Rand) {
	t.Helper()
	one := reputation.Score(p, append(slices.Clone(ev), whole), noon)
	parts := slices.Clone(ev)
	start := whole.At.Truncate(day)
	left := whole.ValueMicroUSD
	for i := range 9 {
		part := whole
		part.Ref = ref(1<<20 + i)
		part.At = start.Add(time.Duration(rng.Int64N(int64(day))))
		part.ValueMicroUSD = left
		if i < 8 && left > 0 {
			part.ValueMicroUSD = rng.Uint64N(left)
		}
		left -= part.ValueMicroUSD
		parts = append(parts, part)
	}
	many := reputation.Score(p, parts, noon)
	one.Terms, many.Terms, one.Count, many.Count = nil, nil, 0, 0
	if diff := cmp.Diff(one, many); diff != "" {
		t.Fatalf("splitting a success changed the score (-whole +parts):\n%s", diff)
	}
}
