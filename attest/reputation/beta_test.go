package reputation_test

import (
	"math"
	"testing"

	"github.com/lacuna-network/lacuna/attest/reputation"
)

// slowQuantile finds the q-quantile of Beta(a, b) by adding up its density, with
// neither gamma function nor continued fraction: x = sin²θ makes the density
// 2 sin^(2a-1) cos^(2b-1), smooth to both ends, and Simpson's rule does the rest.
func slowQuantile(q, a, b float64) float64 {
	const steps = 10_000
	h := math.Pi / 2 / steps
	mode := math.Atan2(math.Sqrt(2*a-1), math.Sqrt(2*b-1))
	logDensity := func(th float64) float64 {
		return (2*a-1)*math.Log(math.Sin(th)) + (2*b-1)*math.Log(math.Cos(th))
	}
	top := logDensity(mode)
	density := func(th float64) float64 {
		if th <= 0 || th >= math.Pi/2 {
			return 0
		}
		return math.Exp(logDensity(th) - top)
	}
	sums := make([]float64, steps+1)
	for i := range steps {
		at := float64(i) * h
		sums[i+1] = sums[i] + h/6*(density(at)+4*density(at+h/2)+density(at+h))
	}
	want := q * sums[steps]
	i := 0
	for sums[i+1] < want {
		i++
	}
	th := h * (float64(i) + (want-sums[i])/(sums[i+1]-sums[i]))
	return math.Sin(th) * math.Sin(th)
}

func TestBetaQuantileAgainstIntegration(t *testing.T) {
	for _, a := range []float64{1, 1.001, 1.5, 2, 6, 11, 29, 101, 435.7} {
		for _, b := range []float64{1, 1.3, 2.5, 4, 7, 16, 31, 301, 1501} {
			for _, q := range []float64{0.05, 0.5} {
				got, want := reputation.BetaQuantile(q, a, b), slowQuantile(q, a, b)
				if math.Abs(got-want) > 1e-6 {
					t.Errorf("%v quantile of Beta(%v, %v) = %.9f, want %.9f", q, a, b, got, want)
				}
			}
		}
	}
}

func TestBetaQuantileClosedForms(t *testing.T) {
	for _, n := range []float64{1, 1.25, 2, 10, 101, 5_000, 1e6} {
		if got, want := reputation.BetaQuantile(0.05, n, 1), math.Pow(0.05, 1/n); math.Abs(got-want) > 1e-9 {
			t.Errorf("5 %% quantile of Beta(%v, 1) = %v, want %v", n, got, want)
		}
		if got, want := reputation.BetaQuantile(0.05, 1, n), -math.Expm1(math.Log(0.95)/n); math.Abs(got-want) > 1e-9 {
			t.Errorf("5 %% quantile of Beta(1, %v) = %v, want %v", n, got, want)
		}
		if got := reputation.BetaQuantile(0.5, n, n); math.Abs(got-0.5) > 1e-9 {
			t.Errorf("median of Beta(%v, %v) = %v, want 0.5", n, n, got)
		}
	}
}

func TestBetaQuantileIsMonotone(t *testing.T) {
	for s := 0.0; s < 600; s = s*1.3 + 0.1 {
		for f := 0.0; f < 20_000; f = f*1.4 + 0.1 {
			q := reputation.BetaQuantile(0.05, 1+s, 1+f)
			if up := reputation.BetaQuantile(0.05, 1+s+0.001, 1+f); up <= q {
				t.Fatalf("more success at s=%v f=%v moved the quantile from %v to %v", s, f, q, up)
			}
			if down := reputation.BetaQuantile(0.05, 1+s, 1+f+0.001); down >= q+1e-13 {
				t.Fatalf("more failure at s=%v f=%v moved the quantile from %v to %v", s, f, q, down)
			}
		}
	}
}
