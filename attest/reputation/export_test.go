package reputation

// For the tests, which hold these against independent computations.
var (
	BetaQuantile = betaQuantile
	Decay        = decay
	DayOf        = dayOf
)
