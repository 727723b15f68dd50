package distance

import (
	"math"

	"github.com/lacuna-network/lacuna/market"
)

// KmPerMs is what a millisecond of round trip covers at most.
const KmPerMs = kmPerMs

// Apart returns the least distance between two places.
func Apart(a, b market.Place) int { return apart(a, b) }

// Countries returns the codes of the table.
func Countries() []string {
	var out []string
	for c := range countries {
		out = append(out, c)
	}
	return out
}

// Circle is a circle of the table.
type Circle struct {
	Continents   string
	Lat, Lon, Km float64
}

// Circles returns the circles of a country.
func Circles(country string) []Circle {
	var out []Circle
	for _, c := range countries[country] {
		out = append(out, Circle{c.continents, c.lat, c.lon, c.km})
	}
	return out
}

// Km returns the way between two points over a round earth.
func Km(lat1, lon1, lat2, lon2 float64) float64 {
	const rad = math.Pi / 180
	a := math.Pow(math.Sin((lat2-lat1)*rad/2), 2) + math.Cos(lat1*rad)*math.Cos(lat2*rad)*math.Pow(math.Sin((lon2-lon1)*rad/2), 2)
	return 2 * earthKm * math.Asin(math.Sqrt(min(1, a)))
}
