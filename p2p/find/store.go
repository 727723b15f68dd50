package find

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// maxStored bounds the asks that one peer keeps for others: 8 MB as asks usually are, 32 MB at the most.
const maxStored = 8192

var (
	errOlder = errors.New("a newer ask of this provider is known")
	errFull  = errors.New("no room")
)

// store keeps asks. A provider has one place in it, whatever the number of its buckets.
//
// Keys cost nothing, so a flood of them from one network must not push out the asks of others: where there is no room,
// the network with the most asks gives way, and that may be the newcomer's own.
type store struct {
	limit  int
	mu     sync.Mutex
	byKey  map[attest.Key]*kept
	all    []*kept // in no order
	index  map[bucket]map[*kept]bool
	groups map[string]int
	swept  time.Time
}

type kept struct {
	at       int // index in all
	ask      market.Ask
	envelope attest.Envelope
	tag      tag
	group    string // the network that it came from; empty = this peer's own ask, which never gives way
}

func newStore(limit int) *store {
	return &store{limit: limit, byKey: make(map[attest.Key]*kept), index: make(map[bucket]map[*kept]bool), groups: make(map[string]int)}
}

// add keeps an ask that was checked. It refuses one that is older than what it has, and what it has no room for.
func (s *store) add(a market.Ask, e attest.Envelope, group string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[a.Provider]
	if k != nil && a.Seq < k.ask.Seq && now.UnixMilli() < k.ask.ExpiresAt {
		return errOlder
	}
	if k == nil && !s.room(group, now) {
		return errFull
	}
	if k != nil {
		s.remove(k)
	}
	k = &kept{at: len(s.all), ask: a, envelope: e, tag: tagOf(e), group: group}
	s.byKey[a.Provider] = k
	s.all = append(s.all, k)
	for _, b := range shelves(a) {
		if s.index[b] == nil {
			s.index[b] = make(map[*kept]bool)
		}
		s.index[b][k] = true
	}
	s.groups[group]++
	return nil
}

// shelves returns the buckets under which a store finds an ask: its own, and that of all classes in its place.
func shelves(a market.Ask) []bucket {
	out := bucketsOf(a)
	if a.Place.Continent != "" {
		out = append(out, bucket{allClasses, a.Place.Continent})
	}
	return out
}

// choice is how many asks are drawn to find one that gives way.
const choice = 16

func (s *store) room(group string, now time.Time) bool {
	if len(s.all) < s.limit {
		return true
	}
	if d := now.Sub(s.swept); d < 0 || d >= time.Second {
		s.swept = now
		for i := len(s.all) - 1; i >= 0; i-- {
			if now.UnixMilli() >= s.all[i].ask.ExpiresAt {
				s.remove(s.all[i])
			}
		}
		if len(s.all) < s.limit {
			return true
		}
	}
	var weakest *kept
	most := s.groups[group]
	for range choice {
		if k := s.all[rand.IntN(len(s.all))]; k.group != "" && s.groups[k.group] > most {
			weakest, most = k, s.groups[k.group]
		}
	}
	if weakest == nil {
		return false
	}
	s.remove(weakest)
	return true
}

func (s *store) remove(k *kept) {
	last := s.all[len(s.all)-1]
	s.all[k.at], last.at = last, k.at
	s.all = s.all[:len(s.all)-1]
	delete(s.byKey, k.ask.Provider)
	for _, b := range shelves(k.ask) {
		if delete(s.index[b], k); len(s.index[b]) == 0 {
			delete(s.index, b)
		}
	}
	if s.groups[k.group]--; s.groups[k.group] == 0 {
		delete(s.groups, k.group)
	}
}

// get returns the ask of one provider.
func (s *store) get(key attest.Key, now time.Time) (kept, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[key]
	if k == nil || now.UnixMilli() >= k.ask.ExpiresAt {
		return kept{}, false
	}
	return *k, true
}

// find returns up to n asks that match the query and for which ok reports true, in random order, so that no provider is
// always first. Its work depends on them and on those that ok refuses, not on all that is kept.
func (s *store) find(n int, q Query, now time.Time, ok func(*kept) bool) []kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []kept
	taken := make(map[*kept]bool)
	for _, b := range q.shelves() {
		for k := range s.index[b] { // a map's order is random enough
			if len(out) == n {
				return out
			}
			if !taken[k] && now.UnixMilli() < k.ask.ExpiresAt && ok(k) {
				taken[k] = true
				out = append(out, *k)
			}
		}
	}
	return out
}

func (s *store) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
