package plan_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market/markettest"
	"github.com/lacuna-network/lacuna/market/plan"
)

func lease(name string) attest.Digest { return attest.Sum([]byte(name)) }

func TestPlan(t *testing.T) {
	start, hold := markettest.Start(), 5*time.Second
	at := func(d time.Duration) time.Time { return start.Add(d) }
	taken := func(t *testing.T, p *plan.Plan, now time.Time, want ...string) {
		t.Helper()
		for _, d := range []string{"a", "b", "c"} {
			if free := p.Free(d, now); free == strings.Contains(strings.Join(want, ""), d) {
				t.Errorf("%s: free %v, taken are %v", d, free, want)
			}
		}
	}
	must := func(t *testing.T, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *plan.Plan)
	}{
		{"empty", func(t *testing.T, p *plan.Plan) { taken(t, p, start) }},
		{"hold", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"b", "a"}, lease("1"), start, at(hold)), nil)
			taken(t, p, start, "a", "b")
			taken(t, p, at(hold-1), "a", "b")
		}},
		{"a hold ends by itself", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a"}, lease("1"), start, at(hold)), nil)
			taken(t, p, at(hold))
			must(t, p.Hold([]string{"a"}, lease("2"), at(hold), at(2*hold)), nil)
			taken(t, p, at(hold), "a")
		}},
		{"all or none", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"b"}, lease("1"), start, at(hold)), nil)
			must(t, p.Hold([]string{"a", "b", "c"}, lease("2"), start, at(hold)), plan.ErrTaken)
			taken(t, p, start, "b")
		}},
		{"the same award again", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a"}, lease("1"), start, at(hold)), nil)
			must(t, p.Hold([]string{"a"}, lease("1"), at(1), at(hold)), nil)
			taken(t, p, at(1), "a")
		}},
		{"take", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a"}, lease("1"), start, at(hold)), nil)
			must(t, p.Take([]string{"a"}, lease("1"), at(1)), nil)
			taken(t, p, at(1000*time.Hour), "a")
			must(t, p.Hold([]string{"a"}, lease("2"), at(time.Hour), at(2*time.Hour)), plan.ErrTaken)
		}},
		{"an award that comes again after the start frees nothing", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a"}, lease("1"), start, at(hold)), nil)
			must(t, p.Take([]string{"a"}, lease("1"), at(1)), nil)
			must(t, p.Hold([]string{"a"}, lease("1"), at(2), at(2+hold)), nil)
			taken(t, p, at(time.Hour), "a")
		}},
		{"take after the hold ran out", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a"}, lease("1"), start, at(hold)), nil)
			must(t, p.Take([]string{"a"}, lease("1"), at(2*hold)), nil)
			taken(t, p, at(time.Hour), "a")
		}},
		{"take after another got it", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a", "b"}, lease("1"), start, at(hold)), nil)
			must(t, p.Hold([]string{"b"}, lease("2"), at(hold), at(2*hold)), nil)
			must(t, p.Take([]string{"a", "b"}, lease("1"), at(hold)), plan.ErrTaken)
			taken(t, p, at(hold), "b")
		}},
		{"release", func(t *testing.T, p *plan.Plan) {
			must(t, p.Take([]string{"a", "b"}, lease("1"), start), nil)
			must(t, p.Take([]string{"c"}, lease("2"), start), nil)
			p.Release(lease("1"))
			taken(t, p, start, "c")
			p.Release(lease("1"))
			p.Release(lease("3"))
			taken(t, p, start, "c")
		}},
		{"a late release frees nobody else's", func(t *testing.T, p *plan.Plan) {
			must(t, p.Hold([]string{"a"}, lease("1"), start, at(hold)), nil)
			must(t, p.Take([]string{"a"}, lease("2"), at(hold)), nil)
			p.Release(lease("1"))
			taken(t, p, at(hold), "a")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.do(t, plan.New()) })
	}
}

// model is the plan as a list of who was promised what until when.
type model map[string]struct {
	lease attest.Digest
	until time.Time // zero = taken
}

func (m model) owner(d string, now time.Time) (attest.Digest, bool) {
	s, ok := m[d]
	return s.lease, ok && (s.until.IsZero() || now.Before(s.until))
}

// Whatever is asked in whatever order, no device has two owners, and what is refused changes nothing.
func TestNoDeviceHasTwoOwners(t *testing.T) {
	devices := []string{"a", "b", "c", "d"}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p, m, now := plan.New(), model{}, markettest.Start()
		for range 200 {
			now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			id := lease(string(rune('A' + rng.IntN(5))))
			want := append([]string{}, devices...)
			rng.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
			want = want[:1+rng.IntN(len(want))]
			free := true
			for _, d := range want {
				owner, taken := m.owner(d, now)
				free = free && (!taken || owner == id)
			}
			until := now.Add(5 * time.Second)
			var err error
			switch rng.IntN(3) {
			case 0:
				err = p.Hold(want, id, now, until)
			case 1:
				err, until = p.Take(want, id, now), time.Time{}
			case 2:
				p.Release(id)
				for d, s := range m {
					if s.lease == id {
						delete(m, d)
					}
				}
				want, free = nil, true
			}
			if (err == nil) != free || err != nil && !errors.Is(err, plan.ErrTaken) {
				t.Fatalf("seed %d: %v for %v, free %v", seed, err, want, free)
			}
			for _, d := range want {
				if s := m[d]; free && !(s.lease == id && s.until.IsZero()) {
					s.lease, s.until = id, until
					m[d] = s
				}
			}
			for _, d := range devices {
				if _, taken := m.owner(d, now); taken == p.Free(d, now) {
					t.Fatalf("seed %d: %s is free %v, want %v", seed, d, p.Free(d, now), !taken)
				}
			}
		}
	}
}
