package find

import (
	"slices"

	"github.com/lacuna-network/lacuna/market"
)

// Query says which asks to look for.
type Query struct {
	Classes []string // the ask has a lot of one of them; empty = any
	Places  []string // the provider says it is on one of these continents, or market.AnyPlace; empty = anywhere
	Limit   int      // stop after so many asks, at most 4,096; 0 = 4,096
}

func (q Query) anywhere() bool {
	return len(q.Places) == 0 || slices.Contains(q.Places, market.AnyPlace)
}

// buckets returns where to look. Without classes there is one bucket for all places.
func (q Query) buckets() []bucket {
	if len(q.Classes) == 0 {
		return []bucket{{allClasses, market.AnyPlace}}
	}
	places := q.Places
	if q.anywhere() {
		places = []string{market.AnyPlace}
	}
	var out []bucket
	for _, class := range q.Classes {
		for _, place := range places {
			if b := (bucket{class, place}); !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// shelves returns the buckets of a store that have all that matches.
func (q Query) shelves() []bucket {
	if len(q.Classes) > 0 || q.anywhere() {
		return q.buckets()
	}
	var out []bucket
	for _, place := range q.Places {
		out = append(out, bucket{allClasses, place})
	}
	return out
}

// match checks an ask itself: a bucket says only where it was kept.
func (q Query) match(a market.Ask) bool {
	if !q.anywhere() && !slices.Contains(q.Places, a.Place.Continent) {
		return false
	}
	return len(q.Classes) == 0 || slices.ContainsFunc(a.Lots, func(l market.Lot) bool { return slices.Contains(q.Classes, l.Class) })
}
