package hello_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
)

// off adds a peer whose clock is ahead by what d returns.
func (w *world) off(d func() time.Duration) *p2p.Host {
	h := w.apart(p2p.Options{})
	h.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
		answerWith(s, hello.Answer{Clock: time.Now().Add(d()).UnixMilli(), Reach: market.ReachDirect})
	})
	return h
}

func TestSkewWarns(t *testing.T) {
	run(t, func(w *world) {
		var l log
		a, s := w.peer(0, p2p.Options{}, hello.Options{Logger: l.logger()})
		if v, ok := s.Skew(); ok {
			t.Errorf("Skew = %+v before anybody was met", v)
		}
		var ahead atomic.Int64
		ahead.Store(int64(time.Hour))
		d := func() time.Duration { return time.Duration(ahead.Load()) }
		w.Connect(a, w.off(d))
		w.Connect(a, w.off(d))
		w.wait(3 * time.Minute)
		two, ok := s.Skew()
		if !ok || two.Peers != 2 || (two.Offset-time.Hour).Abs() > 100*time.Millisecond || two.Wrong() {
			t.Errorf("Skew = %+v, %v, want an hour by two peers, which is no verdict", two, ok)
		}
		w.Connect(a, w.off(d))
		w.wait(3 * time.Minute)
		if v, _ := s.Skew(); v.Peers != 3 || !v.Wrong() {
			t.Errorf("Skew = %+v, want a verdict by three peers", v)
		}
		w.wait(10 * time.Minute)
		if got := l.count(slog.LevelWarn, "clock"); got != 1 {
			t.Errorf("warned %d times, want once", got)
		}
		ahead.Store(int64(4 * time.Second)) // below what is worth a warning
		w.wait(3 * time.Minute)
		if v, _ := s.Skew(); v.Wrong() || (v.Offset-4*time.Second).Abs() > 100*time.Millisecond {
			t.Errorf("Skew = %+v, want 4 s, which is tolerable", v)
		}
		if got := l.count(slog.LevelInfo, "clock"); got != 1 {
			t.Errorf("said %d times that the clock is right again, want once", got)
		}
		for _, p := range a.Peers() {
			a.Disconnect(p.Key)
		}
		w.wait(11 * time.Minute)
		if v, ok := s.Skew(); ok {
			t.Errorf("Skew = %+v out of measurements of 11 min ago", v)
		}
	})
}

// Ten liars in ranges of their own and four honest peers: the warning is wrong, and nothing else is.
func TestLiarsOnlyMiswarn(t *testing.T) {
	run(t, func(w *world) {
		a, s := w.peer(0, p2p.Options{}, hello.Options{})
		var honest []*p2p.Host
		for i := range 4 {
			h, _ := w.peer(1+i, p2p.Options{}, hello.Options{Agent: "honest"})
			w.Connect(a, h)
			honest = append(honest, h)
		}
		w.wait(time.Minute)
		if v, _ := s.Skew(); v.Peers != 4 || v.Offset.Abs() > 100*time.Millisecond || v.Wrong() {
			t.Fatalf("Skew = %+v of honest peers", v)
		}
		for range 10 {
			w.Connect(a, w.off(func() time.Duration { return 20 * 365 * 24 * time.Hour }))
		}
		w.wait(5 * time.Minute)
		if v, _ := s.Skew(); v.Peers != 14 || !v.Wrong() {
			t.Errorf("Skew = %+v, want the liars' word by 14 voters", v)
		}
		answered := s.Stats().Out["answered"]
		w.wait(30 * time.Minute)
		if got := s.Stats().Out["answered"] - answered; got < 200 || got > 300 {
			t.Errorf("%d greetings in 30 min, want 8 a minute as before", got)
		}
		for _, h := range honest {
			m, ok := s.Met(h.Key())
			if !ok || m.Agent != "honest" || m.Offset.Abs() > 100*time.Millisecond || time.Since(m.At) > 10*time.Minute {
				t.Errorf("Met = %+v, %v of an honest peer", m, ok)
			}
		}
		if _, ok := s.Twin(); ok {
			t.Error("a twin out of lies about time")
		}
	})
}

// A measurement that took long says little: half of the round trip may be its error.
func TestSlowAnswerHasNoVote(t *testing.T) {
	run(t, func(w *world) {
		a, s := w.peer(0, p2p.Options{}, hello.Options{})
		slow := w.apart(p2p.Options{})
		slow.Handle(hello.Protocol, func(_ context.Context, stream *p2p.Stream) {
			now := time.Now()
			w.wait(3 * time.Second)
			answerWith(stream, hello.Answer{Clock: now.UnixMilli()})
		})
		w.Connect(a, slow)
		w.wait(10 * time.Second)
		if m, ok := s.Met(slow.Key()); !ok || m.RoundTrip < 3*time.Second {
			t.Errorf("Met = %+v, %v, want a round trip of 3 s", m, ok)
		}
		if v, ok := s.Skew(); ok {
			t.Errorf("Skew = %+v out of an answer after 3 s", v)
		}
	})
}

func TestOneRangeOneVote(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	votes := []hello.Vote{{0, "a", now}, {10 * time.Millisecond, "b", now}, {-10 * time.Millisecond, "c", now}}
	for range 1000 {
		votes = append(votes, hello.Vote{Offset: time.Hour, From: "z", At: now})
	}
	if got, ok := hello.Tally(votes, now); !ok || got.Peers != 4 || got.Wrong() || got.Offset.Abs() > 10*time.Millisecond {
		t.Errorf("Tally = %+v, %v, want what three of four ranges say", got, ok)
	}
	if got, ok := hello.Tally(votes, now.Add(10*time.Minute+1)); ok {
		t.Errorf("Tally = %+v out of stale votes", got)
	}
}

// As long as fewer than half of the ranges lie, the median lies within what the honest ones say, whatever is said.
func TestMinorityMovesNothing(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		honest := 2 + r.IntN(20)
		liars := r.IntN(honest)
		low, high := time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
		var votes []hello.Vote
		for j := range honest {
			d := time.Duration(r.Int64N(int64(4*time.Second))) - 2*time.Second
			low, high = min(low, d), max(high, d)
			votes = append(votes, hello.Vote{Offset: d, From: fmt.Sprint("honest ", j), At: now})
		}
		for j := range liars {
			for range 1 + r.IntN(5) { // a liar may have many peers in its range
				votes = append(votes, hello.Vote{Offset: time.Duration(r.Uint64()), From: fmt.Sprint("liar ", j), At: now})
			}
		}
		r.Shuffle(len(votes), func(a, b int) { votes[a], votes[b] = votes[b], votes[a] })
		got, ok := hello.Tally(votes, now)
		if !ok || got.Offset < low || got.Offset > high || got.Wrong() || got.Peers != honest+liars {
			t.Fatalf("round %d, %d liars: Tally = %+v, %v, want %v to %v by %d", i, liars, got, ok, low, high, honest+liars)
		}
	}
}

func TestOffsetOf(t *testing.T) {
	sent := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		clock int64
		trip  time.Duration
		want  time.Duration
	}{
		{"same clock", sent.UnixMilli() + 50, 100 * time.Millisecond, 0},
		{"ahead", sent.UnixMilli() + 50 + 3000, 100 * time.Millisecond, 3 * time.Second},
		{"behind", sent.UnixMilli() - 3000, 0, -3 * time.Second},
		{"at the beginning of time", 0, 0, time.Duration(-sent.UnixMilli()) * time.Millisecond},
		{"at its end", math.MaxInt64, 0, 100 * 365 * 24 * time.Hour},
	} {
		if got := hello.OffsetOf(tt.clock, sent, tt.trip); got != tt.want {
			t.Errorf("%s: OffsetOf = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestRangeOf(t *testing.T) {
	for _, tt := range []struct{ addr, want string }{
		{"/ip4/203.0.113.77/tcp/4711", "203.0.113.0/24"},
		{"/ip4/203.0.113.1/udp/1/quic-v1", "203.0.113.0/24"},
		{"/ip6/2001:db8:1:2::3/tcp/4711", "2001:db8:1::/48"},
		{"/ip6/::ffff:203.0.113.9/tcp/1", "203.0.113.0/24"},
		{"/ip4/203.0.113.7/tcp/1/p2p/" + name(1).String() + "/p2p-circuit", "203.0.113.0/24"},
		{"/dns4/example.org/tcp/1", "/dns4/example.org"},
		{"", ""},
	} {
		if got := hello.RangeOf(tt.addr); got != tt.want {
			t.Errorf("RangeOf(%s) = %s, want %s", tt.addr, got, tt.want)
		}
	}
}
