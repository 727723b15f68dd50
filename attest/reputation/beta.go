package reputation

import "math"

// maxShape bounds the shape parameters of the Beta distribution. Far more evidence
// than a peer can give lies below it, and the continued fraction needs about the
// square root of the larger shape in steps.
const maxShape = 1e6

// betaQuantile returns the x with I_x(a, b) = q, for 0 < q < 1 and shapes a, b of
// at least 1; larger shapes than maxShape count as maxShape. It bisects, because
// the result must follow the shapes monotonely: 44 halvings leave 6e-14, far
// below a basis point and above the rounding of the integral.
func betaQuantile(q, a, b float64) float64 {
	a, b = min(a, maxShape), min(b, maxShape)
	lo, hi := 0.0, 1.0
	for range 44 {
		mid := (lo + hi) / 2
		if betaInc(mid, a, b) < q {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// betaInc returns the regularised incomplete beta function I_x(a, b) for 0 < x < 1
// by its continued fraction (NIST DLMF 8.17.22), which converges fast on the
// near side of the mean; the far side is reached by I_x(a, b) = 1 - I_1-x(b, a).
func betaInc(x, a, b float64) float64 {
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	if x > (a+1)/(a+b+2) {
		return 1 - front/b/betaFraction(1-x, b, a)
	}
	return front / a / betaFraction(x, a, b)
}

// betaFraction evaluates 1 + d1/(1 + d2/(1 + …)) with the coefficients of DLMF
// 8.17.23 by the modified Lentz method.
func betaFraction(x, a, b float64) float64 {
	const (
		tiny  = 1e-300
		eps   = 1e-15
		steps = 5_000
	)
	value, c, d := 1.0, 1.0, 0.0
	for k := 1; k <= steps; k++ {
		m := float64(k / 2)
		var coef float64
		if k%2 == 0 {
			coef = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		} else {
			coef = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		d = 1 + coef*d
		if math.Abs(d) < tiny {
			d = tiny
		}
		d = 1 / d
		c = 1 + coef/c
		if math.Abs(c) < tiny {
			c = tiny
		}
		value *= c * d
		if math.Abs(c*d-1) < eps {
			break
		}
	}
	return value
}
