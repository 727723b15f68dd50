package reputation_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest/reputation"
)

func TestPriorBP(t *testing.T) {
	for _, tc := range []struct {
		name  string
		prior reputation.Prior
		want  int
	}{
		{"nothing known", reputation.Prior{}, 8_000},
		{"one good", reputation.Prior{FirstLeases: 1, OK: 1}, 8_400},
		{"one bad", reputation.Prior{FirstLeases: 1}, 6_400},
		{"six of ten", reputation.Prior{FirstLeases: 10, OK: 6}, 6_571},
		{"more good than leases", reputation.Prior{FirstLeases: 1, OK: 9}, 8_400},
		{"all bad for ever", reputation.Prior{FirstLeases: math.MaxUint}, 1},
		{"all good for ever", reputation.Prior{FirstLeases: math.MaxUint, OK: math.MaxUint}, 9_999},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.prior.BP(); got != tc.want {
				t.Errorf("BP() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestPriorOf(t *testing.T) {
	ev := []reputation.Evidence{
		{At: noon, OK: true, Ref: ref(1), FirstLease: true},
		{At: noon, OK: true, Ref: ref(1), FirstLease: true},
		{At: noon, Ref: ref(2), FirstLease: true},
		{At: noon, OK: true, Ref: ref(3)},
	}
	want := reputation.Prior{FirstLeases: 2, OK: 1}
	if got := reputation.PriorOf(ev); got != want {
		t.Errorf("PriorOf = %+v, want %+v", got, want)
	}
}

func TestMean(t *testing.T) {
	for _, tc := range []struct {
		name string
		ev   []reputation.Evidence
		want int
	}{
		{"a stranger", nil, 8_000},
		{"one good unit", units(1, 0, true, 0), 8_400},
		{"one failed unit", units(1, 0, false, 0), 6_400},
		{"half a unit left of one good", units(1, 0, true, 60*day), 8_222},
		{"half a unit left of one failed", units(1, 0, false, 120*day), 7_111},
		{"a good day is capped at five units", units(50, 0, true, 0), 9_111},
		{"failures are not capped by the day", units(96, 0, false, 0), 320},
		{"long forgotten", units(50, 0, false, 100*365*day), 8_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := reputation.Mean(reputation.DefaultParams(), tc.ev, reputation.Prior{}, noon)
			if got != tc.want {
				t.Errorf("Mean = %d, want %d", got, tc.want)
			}
		})
	}
}

// What seed (7, 7) gives.
const (
	goldenS    = 165_470_571
	goldenF    = 127_815_851
	goldenMean = 5_673
)

// TestMeanGolden pins the bits: a machine on which it fails would award otherwise
// than the rest of the network.
func TestMeanGolden(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	ev := randomEvidence(rng, 300)
	r := reputation.Score(reputation.DefaultParams(), ev, noon)
	if r.S != goldenS || r.F != goldenF {
		t.Errorf("s, f = %d, %d, want %d, %d", r.S, r.F, goldenS, goldenF)
	}
	if got := reputation.Mean(reputation.DefaultParams(), ev, reputation.Prior{}, noon); got != goldenMean {
		t.Errorf("Mean = %d, want %d", got, goldenMean)
	}
}

func TestMeanOfIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2_000 {
		s, f := reputation.Units(rng.Uint64N(1<<rng.IntN(60)+1)), reputation.Units(rng.Uint64N(1<<rng.IntN(60)+1))
		prior := reputation.Prior{FirstLeases: uint(rng.IntN(100)), OK: uint(rng.IntN(100))}
		good := new(big.Int).SetUint64(400*uint64(prior.BP()) + uint64(s))
		all := new(big.Int).SetUint64(4*uint64(unit) + uint64(s) + uint64(f))
		want := good.Mul(good, big.NewInt(10_000)).Div(good, all).Int64()
		want = min(max(want, 1), 9_999)
		if got := reputation.MeanOf(s, f, prior); int64(got) != want {
			t.Fatalf("MeanOf(%d, %d, %+v) = %d, want %d", s, f, prior, got, want)
		}
	}
}

func TestDecay(t *testing.T) {
	for _, half := range []time.Duration{day, 36*time.Hour + 17*time.Minute, 60 * day, 120 * day, reputation.MaxHalfLife} {
		last := uint64(1 << 32)
		for age := range int64(5_000) {
			got := reputation.Decay(age, half)
			want := math.Exp2(-float64(age) * float64(day) / float64(half))
			if diff := math.Abs(float64(got)/(1<<32) - want); diff > 1.0/(1<<16) {
				t.Fatalf("decay(%d days, %v) = %v, want %v", age, half, float64(got)/(1<<32), want)
			}
			if got > last {
				t.Fatalf("decay(%d days, %v) = %d, more than %d the day before", age, half, got, last)
			}
			last = got
		}
		if got := reputation.Decay(math.MaxInt64, half); got != 0 {
			t.Errorf("decay(for ever, %v) = %d, want 0", half, got)
		}
	}
	// At k/64 half-lives the table itself answers, to half a unit of 2^-32.
	for k := range int64(65) {
		got, want := float64(reputation.Decay(k, 64*day)), math.Exp2(32-float64(k)/64)
		if math.Abs(got-want) > 0.500001 {
			t.Errorf("decay(%d of 64 days) = %v/2^32, want %v", k, got, want)
		}
	}
}

func TestDayOf(t *testing.T) {
	for _, tc := range []struct {
		at   time.Time
		want int64
	}{
		{time.Unix(0, 0), 0},
		{time.Unix(-1, 0), -1},
		{time.Unix(86_399, 999_999_999), 0},
		{time.Unix(86_400, 0), 1},
		{time.Unix(-86_400, 0), -1},
		{time.Unix(-86_401, 0), -2},
		{time.Date(1970, 1, 2, 1, 0, 0, 0, time.FixedZone("east", 2*3600)), 0},
	} {
		if got := reputation.DayOf(tc.at); got != tc.want {
			t.Errorf("dayOf(%v) = %d, want %d", tc.at, got, tc.want)
		}
	}
}
