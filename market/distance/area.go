package distance

import (
	"maps"
	"math"
	"strings"
	"sync"

	"github.com/lacuna-network/lacuna/market"
)

const (
	earthKm = 6371.0
	// flattening is by how much the way over the round earth may be longer than that over the real one.
	flattening = 0.006
)

// disc is a circle, ready to reckon with: its centre as a unit vector and its radius as an angle.
type disc struct {
	x, y, z float64
	angle   float64
}

func (c circle) disc() disc {
	lat, lon := c.lat*math.Pi/180, c.lon*math.Pi/180
	return disc{
		x: math.Cos(lat) * math.Cos(lon), y: math.Cos(lat) * math.Sin(lon), z: math.Sin(lat),
		angle: c.km / earthKm,
	}
}

// gap returns the angle between the nearest points of two discs, 0 if they overlap.
func (a disc) gap(b disc) float64 {
	cos := min(1, max(-1, a.x*b.x+a.y*b.y+a.z*b.z))
	return max(0, math.Acos(cos)-a.angle-b.angle)
}

// atlas holds the discs of each continent, of each country, and of each country's part on one continent ("eu/fr").
var atlas = sync.OnceValue(func() map[string][]disc {
	m := make(map[string][]disc)
	for country, circles := range maps.All(countries) {
		for _, c := range circles {
			m["/"+country] = append(m["/"+country], c.disc())
			for _, continent := range strings.Fields(c.continents) {
				m[continent] = append(m[continent], c.disc())
				m[continent+"/"+country] = append(m[continent+"/"+country], c.disc())
			}
		}
	}
	return m
})

// area returns where a place is: its country's part on its continent, all of the country if it has none there, or the
// continent where the country is unknown. nil is anywhere.
func area(p market.Place) []disc {
	m := atlas()
	if p.Country != "" {
		if a := m[p.Continent+"/"+p.Country]; a != nil {
			return a
		}
		if a := m["/"+p.Country]; a != nil {
			return a
		}
	}
	return m[p.Continent]
}

// apart returns the least distance between two places as the crow flies, in whole kilometres, rounded down: 0 if they
// may be neighbours, or if nothing is known of one. Cities count as anywhere in their country.
func apart(a, b market.Place) int {
	from, to := area(a), area(b)
	if len(from) == 0 || len(to) == 0 {
		return 0
	}
	least := math.Inf(1)
	for _, x := range from {
		for _, y := range to {
			if least = min(least, x.gap(y)); least == 0 {
				return 0
			}
		}
	}
	return int(least * earthKm * (1 - flattening))
}
