package reputation_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest/reputation"
)

const (
	unit = reputation.Unit
	day  = reputation.Day
	// halfDollar is one default evidence unit.
	halfDollar = 500_000
)

// noon is the "now" of most tests.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// ref returns a distinct Ref for each n.
func ref(n int) (r [32]byte) {
	binary.BigEndian.PutUint64(r[:], uint64(n)+1)
	return r
}

// uncapped returns the default constants with a cap that none of the tests reaches.
func uncapped() reputation.Params {
	p := reputation.DefaultParams()
	p.CapPerDay = reputation.MaxCapPerDay
	return p
}

// units returns n entries of one default unit each at the given age.
func units(n, firstRef int, ok bool, age time.Duration) []reputation.Evidence {
	var ev []reputation.Evidence
	for i := range n {
		ev = append(ev, reputation.Evidence{
			At: noon.Add(-age), OK: ok, ValueMicroUSD: halfDollar, Ref: ref(firstRef + i), What: "done",
		})
	}
	return ev
}

func TestScoreOfCleanHistory(t *testing.T) {
	// R = 0.05^(1/(1+n)) after n clean units.
	for _, tc := range []struct{ n, want int }{
		{0, 5}, {1, 22}, {5, 61}, {10, 76}, {22, 88}, {28, 90}, {44, 94}, {100, 97},
	} {
		r := reputation.Score(uncapped(), units(tc.n, 0, true, 0), noon)
		if got := (r.ScoreBP + 50) / 100; got != tc.want {
			t.Errorf("score after %d clean units = %d bp, want %d %%", tc.n, r.ScoreBP, tc.want)
		}
		if r.ShortBP != reputation.Full {
			t.Errorf("short term after %d clean units = %d bp, want 10000", tc.n, r.ShortBP)
		}
	}
	// 0.90 takes 27.43 units.
	for n, want := range map[int]bool{27: false, 28: true} {
		if got := reputation.Score(uncapped(), units(n, 0, true, 0), noon).ScoreBP; (got >= 9_000) != want {
			t.Errorf("score after %d clean units = %d bp; at least 9000: want %v", n, got, want)
		}
	}
}

func TestQuantileWithFailures(t *testing.T) {
	// Own failures weigh Rho = 3: the quantile of Beta(101, 1 + 3f).
	for _, tc := range []struct{ f, want int }{{1, 927}, {2, 892}, {5, 808}, {10, 703}} {
		ev := append(units(100, 0, true, 0), units(tc.f, 1_000, false, 0)...)
		r := reputation.Score(uncapped(), ev, noon)
		if got := (r.QuantileBP + 5) / 10; got != tc.want {
			t.Errorf("quantile with 100 good and %d failed units = %d bp, want 0.%d", tc.f, r.QuantileBP, tc.want)
		}
	}
}

func TestShortTerm(t *testing.T) {
	for _, tc := range []struct {
		name              string
		ev                []reputation.Evidence
		wantShort, atMost int
	}{
		{name: "no evidence", wantShort: 10_000, atMost: 500},
		{
			name:      "four failures after silence",
			ev:        append(units(200, 0, true, 30*day), units(4, 1_000, false, 0)...),
			wantShort: 2_500, atMost: 2_500,
		},
		{
			name:      "one failure among twenty recent successes",
			ev:        append(units(20, 0, true, day), units(1, 1_000, false, 0)...),
			wantShort: 8_888, atMost: 8_888,
		},
		{
			name:      "the window holds seven days, today included",
			ev:        units(1, 0, false, 6*day),
			wantShort: 5_714, atMost: 500,
		},
		{name: "and not the eighth", ev: units(1, 0, false, 7*day), wantShort: 10_000, atMost: 500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reputation.Score(uncapped(), tc.ev, noon)
			if r.ShortBP != tc.wantShort {
				t.Errorf("short term = %d bp, want %d", r.ShortBP, tc.wantShort)
			}
			if r.ScoreBP > tc.atMost {
				t.Errorf("score = %d bp, want at most %d", r.ScoreBP, tc.atMost)
			}
		})
	}
}

func TestWhitewashingGainsNothing(t *testing.T) {
	fresh := reputation.Score(reputation.DefaultParams(), nil, noon).ScoreBP
	for _, n := range []int{1, 10, 500} {
		r := reputation.Score(reputation.DefaultParams(), units(n, 0, false, 0), noon)
		if r.ScoreBP != fresh || fresh != 500 {
			t.Errorf("score after %d failures = %d bp, of a fresh key %d; want 500 for both", n, r.ScoreBP, fresh)
		}
		if r.QuantileBP >= fresh {
			t.Errorf("quantile after %d failures = %d bp, want below %d", n, r.QuantileBP, fresh)
		}
	}
}

func TestTerms(t *testing.T) {
	p := reputation.DefaultParams()
	ev := []reputation.Evidence{
		{At: noon.Add(time.Hour), OK: true, ValueMicroUSD: halfDollar, Ref: ref(5), What: "done"},
		{At: noon.Add(-60 * day), OK: true, ValueMicroUSD: 4 * halfDollar, Ref: ref(1), What: "done"},
		{At: noon.Add(-60*day + time.Minute), OK: true, ValueMicroUSD: 3 * halfDollar, Ref: ref(2), What: "done"},
		{At: noon.Add(-120 * day), ValueMicroUSD: 9 * halfDollar, Ref: ref(3), What: "lost", SeverityBP: 15_000},
		{At: noon.Add(-120 * day), ValueMicroUSD: 9 * halfDollar, Ref: ref(3), What: "lost", SeverityBP: 15_000},
	}
	given := slices.Clone(ev)
	got := reputation.Score(p, ev, noon)
	want := reputation.Result{
		ScoreBP: got.ScoreBP, QuantileBP: got.QuantileBP, ShortBP: 10_000,
		S: 3_500_000, F: 3_750_000, S7: unit, Count: 4,
		Terms: []reputation.Term{
			{Evidence: ev[3], AgeDays: 120, DecayBP: 5_000, Raw: 9 * unit, Capped: 7_500_000, Decayed: 3_750_000},
			{Evidence: ev[1], AgeDays: 60, DecayBP: 5_000, Raw: 4 * unit, Capped: 4 * unit, Decayed: 2 * unit},
			{Evidence: ev[2], AgeDays: 60, DecayBP: 5_000, Raw: 3 * unit, Capped: unit, Decayed: 500_000},
			{Evidence: ev[0], AgeDays: 0, DecayBP: 10_000, Raw: unit, Capped: unit, Decayed: unit, Recent: true},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Score (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(given, ev); diff != "" {
		t.Errorf("Score changed its input (-before +after):\n%s", diff)
	}
}

// TestSumsAgainstFloat adds up s and f as the formulae read, in floating point.
func TestSumsAgainstFloat(t *testing.T) {
	p := reputation.DefaultParams()
	ev := randomEvidence(rand.New(rand.NewPCG(7, 7)), 300)
	perDay := map[float64]float64{} // age in days → units of success
	var s, f float64
	for _, e := range ev {
		age := max(0, noon.Truncate(day).Sub(e.At.Truncate(day)).Hours()/24)
		value := float64(e.ValueMicroUSD) / halfDollar
		if e.OK {
			perDay[age] += value
		} else {
			f += min(value, 5) * float64(e.SeverityBP) / 10_000 * math.Exp2(-age/120)
		}
	}
	for age, value := range perDay {
		s += min(value, 5) * math.Exp2(-age/60)
	}
	r := reputation.Score(p, ev, noon)
	gotS, gotF := float64(r.S)/float64(unit), float64(r.F)/float64(unit)
	if math.Abs(gotS-s) > 0.005 || math.Abs(gotF-f) > 0.005 {
		t.Errorf("s, f = %v, %v, want %v, %v", gotS, gotF, s, f)
	}
}

func TestConflictingEntriesOfOneRef(t *testing.T) {
	good := reputation.Evidence{At: noon, OK: true, ValueMicroUSD: halfDollar, Ref: ref(1)}
	bad := reputation.Evidence{At: noon, ValueMicroUSD: halfDollar, Ref: ref(1)}
	for _, ev := range [][]reputation.Evidence{{good, bad}, {bad, good}} {
		r := reputation.Score(reputation.DefaultParams(), ev, noon)
		if r.Count != 1 || r.S != 0 || r.F != unit {
			t.Errorf("Score of a success and a failure with one Ref: count %d, s %v, f %v; want the failure alone", r.Count, r.S, r.F)
		}
	}
}

func TestExtremeValuesStayInRange(t *testing.T) {
	big := reputation.DefaultParams()
	big.UnitMicroUSD, big.CapPerDay = reputation.MaxUnitMicroUSD, reputation.MaxCapPerDay
	small := reputation.DefaultParams()
	small.UnitMicroUSD, small.CapPerDay = 1, unit
	for _, p := range []reputation.Params{big, small, reputation.TestParams()} {
		for _, at := range []time.Time{{}, noon, noon.AddDate(5_000, 0, 0), time.Unix(0, 0)} {
			ev := []reputation.Evidence{
				{At: at, OK: true, ValueMicroUSD: 1<<64 - 1, Ref: ref(1)},
				{At: at, OK: true, ValueMicroUSD: 1<<64 - 1, Ref: ref(2)},
				{At: at, ValueMicroUSD: 1<<64 - 1, Ref: ref(3), SeverityBP: 1<<32 - 1},
			}
			r := reputation.Score(p, ev, noon)
			if r.S > p.CapPerDay || r.F > 5*p.CapPerDay {
				t.Errorf("u=%d at %v: s %v, f %v, want at most one and five caps of %v", p.UnitMicroUSD, at, r.S, r.F, p.CapPerDay)
			}
		}
	}
}

func TestDemoMovesTheScore(t *testing.T) {
	// Five seconds of one device at 0.21 USD an hour.
	ev := []reputation.Evidence{{At: noon, OK: true, ValueMicroUSD: 291, Ref: ref(1), What: "done"}}
	if got := reputation.Score(reputation.TestParams(), ev, noon).ScoreBP; got < 1_000 {
		t.Errorf("score after a demo's lease on a test network = %d bp, want at least 1000", got)
	}
	if got := reputation.Score(reputation.DefaultParams(), ev, noon).ScoreBP; got > 510 {
		t.Errorf("score after the same lease elsewhere = %d bp, want at most 510", got)
	}
}

func BenchmarkScore1000(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	ev := randomEvidence(rng, 1_000)
	p := reputation.DefaultParams()
	b.ReportAllocs()
	for b.Loop() {
		reputation.Score(p, ev, noon)
	}
}
