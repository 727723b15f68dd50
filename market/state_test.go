package market_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lacuna-network/lacuna/market"
)

const (
	firstState, lastState = market.Offered, market.Lost
	firstEvent, lastEvent = market.EvAward, market.EvExpire
)

// table is the life of a lease, written a second time: one row a state, one column an event, "-" = cannot happen.
//
//	award     start      ready     pause    resume    finish  stop     silence expire
var table = map[market.LeaseState][9]string{
	market.Offered:  {"awarded", "-", "-", "-", "-", "-", "void", "-", "void"},
	market.Awarded:  {"-", "starting", "-", "-", "-", "-", "void", "void", "void"},
	market.Starting: {"-", "-", "running", "-", "-", "-", "failed", "lost", "failed"},
	market.Running:  {"-", "-", "-", "paused", "-", "done", "failed", "lost", "failed"},
	market.Paused:   {"-", "-", "-", "-", "running", "done", "failed", "lost", "failed"},
	market.Void:     {"-", "-", "-", "-", "-", "-", "-", "-", "-"},
	market.Done:     {"-", "-", "-", "-", "-", "-", "-", "-", "-"},
	market.Failed:   {"-", "-", "-", "-", "-", "-", "-", "-", "-"},
	market.Lost:     {"-", "-", "-", "-", "-", "-", "-", "-", "-"},
}

func TestNext(t *testing.T) {
	for s := firstState; s <= lastState; s++ {
		for e := firstEvent; e <= lastEvent; e++ {
			t.Run(fmt.Sprintf("%s/%d", s, e), func(t *testing.T) {
				want := table[s][e-firstEvent]
				got, err := market.Next(s, e)
				if want == "-" {
					if err == nil || got != s {
						t.Errorf("Next = %s, %v, want an error and no change", got, err)
					}
					return
				}
				if err != nil || got.String() != want {
					t.Errorf("Next = %s, %v, want %s", got, err, want)
				}
			})
		}
	}
}

func TestNextKnowsNothingElse(t *testing.T) {
	for _, s := range []market.LeaseState{0, lastState + 1, 255} {
		for e := firstEvent; e <= lastEvent; e++ {
			if got, err := market.Next(s, e); err == nil || got != s {
				t.Errorf("Next(%s, %d) = %s, %v, want an error", s, e, got, err)
			}
		}
	}
	for s := firstState; s <= lastState; s++ {
		for _, e := range []market.LeaseEvent{0, lastEvent + 1, 255} {
			if got, err := market.Next(s, e); err == nil || got != s {
				t.Errorf("Next(%s, %d) = %s, %v, want an error", s, e, got, err)
			}
		}
	}
}

func TestFinalStates(t *testing.T) {
	final := map[market.LeaseState]bool{market.Void: true, market.Done: true, market.Failed: true, market.Lost: true}
	for s := firstState; s <= lastState; s++ {
		if s.Final() != final[s] {
			t.Errorf("%s: final %v, want %v", s, s.Final(), final[s])
		}
		if after, err := market.Next(s, market.EvStop); (err != nil) != final[s] || err == nil && !after.Final() {
			t.Errorf("%s: a cancel gives %s, %v", s, after, err)
		}
		if after, err := market.Next(s, market.EvExpire); !final[s] && (err != nil || !after.Final()) {
			t.Errorf("%s: its deadline gives %s, %v, want an end", s, after, err)
		}
	}
}

// Whatever happens in whatever order, a lease ends and then stays as it is.
func TestRandomLivesEnd(t *testing.T) {
	ends := map[market.LeaseState]int{}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := market.Offered
		for step := 0; !s.Final(); step++ {
			if step > 10_000 {
				t.Fatalf("seed %d: still %s after %d events", seed, s, step)
			}
			e := firstEvent + market.LeaseEvent(rng.IntN(int(lastEvent-firstEvent)+1))
			if after, err := market.Next(s, e); err == nil {
				s = after
			}
		}
		ends[s]++
	}
	for _, s := range []market.LeaseState{market.Void, market.Done, market.Failed, market.Lost} {
		if ends[s] == 0 {
			t.Errorf("no life ended as %s: %v", s, ends)
		}
	}
}

func TestStateText(t *testing.T) {
	seen := map[string]bool{}
	for s := firstState; s <= lastState; s++ {
		b, err := s.MarshalText()
		if err != nil || string(b) != s.String() || seen[s.String()] || len(b) == 0 {
			t.Errorf("state %d is %q, %v", uint8(s), b, err)
		}
		seen[s.String()] = true
	}
	for s, want := range map[market.LeaseState]string{0: "state(0)", lastState + 1: "state(10)", 255: "state(255)"} {
		if s.String() != want {
			t.Errorf("state %d is %q, want %q", uint8(s), s, want)
		}
	}
}
