package hello

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Bounds of what is asked about third peers.
const (
	maxWatch     = 64
	maxSightings = 16 // per watched peer
	watchLife    = 10 * time.Minute
	enoughAsked  = 8 // greetings that asked for a peer, after which the rounds are in no hurry
)

// Sighting is a round trip to a peer that another peer says it has measured.
type Sighting struct {
	Observer attest.Key
	Range    string        // address range of the observer: sightings from one range are one voice
	RTT      time.Duration // rounded up to milliseconds
	Place    market.Place  // of the observer, as it claims
	At       time.Time     // when it told
}

// watch holds the peers whose round trips are asked for. The zero value is empty.
type watch struct {
	m map[attest.Key]*watched
}

type watched struct {
	at        time.Time // when the caller last wanted it
	asked     int       // greetings that asked for it
	sightings map[attest.Key]Sighting
}

// Watch asks other peers, from now on and for ten minutes, for their round trips to these. Of more than 64, those
// wanted longest ago are given up. The first answers take about two round trips.
func (s *Service) Watch(keys ...attest.Key) {
	now := time.Now()
	fresh := false
	s.mu.Lock()
	for _, key := range keys {
		if key != s.host.Key() && !key.IsZero() && s.watch.add(key, now) {
			fresh = true
		}
	}
	s.mu.Unlock()
	if fresh {
		s.roundNow()
	}
}

// add reports whether the key is new.
func (w *watch) add(key attest.Key, now time.Time) bool {
	if v := w.m[key]; v != nil {
		v.at = now
		return false
	}
	if w.m == nil {
		w.m = make(map[attest.Key]*watched)
	}
	if len(w.m) >= maxWatch {
		w.sweep(now)
	}
	if len(w.m) >= maxWatch {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(w.m)), func(a, b attest.Key) int { return w.m[a].at.Compare(w.m[b].at) })
		delete(w.m, oldest)
	}
	w.m[key] = &watched{at: now, sightings: make(map[attest.Key]Sighting)}
	return true
}

func (w *watch) sweep(now time.Time) {
	maps.DeleteFunc(w.m, func(_ attest.Key, v *watched) bool { return now.Sub(v.at) > watchLife })
}

// hungry reports whether a watched peer was hardly asked for.
func (w *watch) hungry(now time.Time) bool {
	for _, v := range w.m {
		if v.asked < enoughAsked && now.Sub(v.at) <= watchLife {
			return true
		}
	}
	return false
}

// pick returns the keys for one request to that peer: those asked for least.
func (w *watch) pick(of attest.Key) []attest.Key {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(w.m)), func(k attest.Key) bool { return k == of })
	slices.SortFunc(keys, func(a, b attest.Key) int {
		return cmp.Or(cmp.Compare(w.m[a].asked, w.m[b].asked), slices.Compare(a[:], b[:]))
	})
	keys = keys[:min(len(keys), maxWant)]
	for _, k := range keys {
		w.m[k].asked++
	}
	return keys
}

// heard takes in what an observer says. Only peers that are watched count.
func (w *watch) heard(list []seen, s Sighting) {
	for _, v := range list {
		to := w.m[v.Key]
		if to == nil || v.Key == s.Observer {
			continue
		}
		if _, known := to.sightings[s.Observer]; !known && len(to.sightings) >= maxSightings {
			oldest := slices.MinFunc(slices.Collect(maps.Values(to.sightings)), func(a, b Sighting) int { return a.At.Compare(b.At) })
			delete(to.sightings, oldest.Observer)
		}
		s.RTT = time.Duration(v.RTT) * time.Millisecond
		to.sightings[s.Observer] = s
	}
}

// Sightings returns the round trips to a watched peer that others told in the last ten minutes, nearest first.
func (s *Service) Sightings(key attest.Key) []Sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.watch.m[key]
	if v == nil {
		return nil
	}
	now := time.Now()
	maps.DeleteFunc(v.sightings, func(_ attest.Key, s Sighting) bool { return now.Sub(s.At) > watchLife })
	return slices.SortedFunc(maps.Values(v.sightings), func(a, b Sighting) int {
		return cmp.Or(cmp.Compare(a.RTT, b.RTT), slices.Compare(a.Observer[:], b.Observer[:]))
	})
}

// roundTrips answers what another peer asks for, as far as it was measured here.
func (s *Service) roundTrips(keys []attest.Key) []seen {
	var out []seen
	for _, key := range keys {
		rtt, ok := s.host.RTT(key)
		if !ok || rtt > maxRTT || rtt <= 0 {
			continue
		}
		out = append(out, seen{Key: key, RTT: uint64((rtt + time.Millisecond - 1) / time.Millisecond)})
	}
	return out
}
