package hello_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

var berlin = market.Place{Continent: "eu", Country: "de", City: "berlin"}

// world is a network in virtual time.
type world struct {
	*p2ptest.Network
	t   *testing.T
	ctx context.Context
	wg  sync.WaitGroup
}

// run runs f in a bubble; what it started is ended afterwards.
func run(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		n := p2ptest.New(t, 0, p2ptest.Options{Latency: 25_300 * time.Microsecond}) // no whole milliseconds
		defer n.Close()
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{Network: n, t: t, ctx: ctx}
		defer w.wg.Wait()
		defer cancel()
		f(w)
	})
}

// apart adds a host in an address range of its own.
func (w *world) apart(o p2p.Options) *p2p.Host {
	for range 255 {
		w.Options(p2p.Options{}) // uses up addresses
	}
	return w.Add(o)
}

// wait lets virtual time pass.
func (w *world) wait(d time.Duration) { time.Sleep(d) }

func signer(private ed25519.PrivateKey) attest.Signer {
	return attest.NewSigner(private, attest.NetworkID("test"))
}

// service starts a greeter on the host, which was added with that private key. stop ends it before the world ends.
func (w *world) service(h *p2p.Host, private ed25519.PrivateKey, o hello.Options) (s *hello.Service, stop func()) {
	w.t.Helper()
	o.Host, o.Signer = h, signer(private)
	s, err := hello.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	w.wg.Go(func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
		s.Close()
	})
	return s, func() { cancel(); <-done }
}

// peer adds a host with a greeter. Private keys are told apart by seed.
func (w *world) peer(seed int, o p2p.Options, ho hello.Options) (*p2p.Host, *hello.Service) {
	w.t.Helper()
	o.Key = p2ptest.Key(1_000_000 + seed)
	h := w.apart(o)
	s, _ := w.service(h, o.Key, ho)
	return h, s
}

// log collects what is logged.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// count returns how many lines at that level hold the text.
func (l *log) count(level slog.Level, text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, "level="+level.String()) && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestMeet(t *testing.T) {
	run(t, func(w *world) {
		a, sa := w.peer(0, p2p.Options{}, hello.Options{Agent: "lacuna/1.2 linux", Place: func() market.Place { return berlin }})
		b, sb := w.peer(1, p2p.Options{Profile: p2p.Light}, hello.Options{})
		if _, ok := sa.Met(b.Key()); ok {
			t.Error("met a peer before there was a connection")
		}
		w.Connect(a, b)
		w.wait(2 * time.Second)
		for _, tt := range []struct {
			name string
			s    *hello.Service
			of   attest.Key
			want hello.Meeting
		}{
			{"b of a", sb, a.Key(), hello.Meeting{Agent: "lacuna/1.2 linux", Place: berlin, Reach: market.ReachDirect}},
			{"a of b", sa, b.Key(), hello.Meeting{Reach: market.ReachDirect, Light: true}},
		} {
			got, ok := tt.s.Met(tt.of)
			if !ok {
				t.Fatalf("%s: not met", tt.name)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(hello.Meeting{}, "At", "Offset", "RoundTrip")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
			if got.RoundTrip < 50*time.Millisecond || got.RoundTrip > 200*time.Millisecond || got.Offset.Abs() > got.RoundTrip/2 {
				t.Errorf("%s: offset %v after %v, want none within half of a round trip of about 50 ms", tt.name, got.Offset, got.RoundTrip)
			}
			if age := time.Since(got.At); age > 2*time.Second {
				t.Errorf("%s: At is %v ago", tt.name, age)
			}
		}
		if _, ok := sa.Twin(); ok {
			t.Error("a twin where there is none")
		}
	})
}

func TestGreetingsGoOn(t *testing.T) {
	run(t, func(w *world) {
		a, sa := w.peer(0, p2p.Options{}, hello.Options{})
		b, _ := w.peer(1, p2p.Options{}, hello.Options{})
		w.Connect(a, b)
		w.wait(10*time.Minute + 30*time.Second)
		if n := sa.Stats().In["answered"]; n < 9 || n > 14 {
			t.Errorf("%d greetings from one peer in 10 min, want about one a minute", n)
		}
		m, _ := sa.Met(b.Key())
		if age := time.Since(m.At); age > 80*time.Second {
			t.Errorf("last word %v ago, want about a minute at most", age)
		}
		a.Disconnect(b.Key())
		w.wait(9 * time.Minute)
		if _, ok := sa.Met(b.Key()); !ok {
			t.Error("forgotten within 10 min")
		}
		w.wait(4 * time.Minute)
		if _, ok := sa.Met(b.Key()); ok {
			t.Error("still remembered 13 min after it left")
		}
	})
}

func TestRoundsAreSmall(t *testing.T) {
	const n = 20
	run(t, func(w *world) {
		a, sa := w.peer(0, p2p.Options{}, hello.Options{})
		served := make(map[attest.Key]int)
		var mu sync.Mutex
		for range n {
			h := w.Add(p2p.Options{})
			h.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
				mu.Lock()
				served[h.Key()]++
				mu.Unlock()
				answerWith(s, hello.Answer{Clock: time.Now().UnixMilli()})
			})
			w.Connect(a, h)
		}
		w.wait(5 * time.Second)
		if got := sa.Stats().Out["answered"]; got != n {
			t.Fatalf("%d greetings on meeting %d peers", got, n)
		}
		w.wait(10 * time.Minute)
		if got := sa.Stats().Out["answered"] - n; got < 70 || got > 104 {
			t.Errorf("%d greetings of %d peers in 10 min, want 8 a minute", got, n)
		}
		w.wait(4 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		often := 0
		for key, got := range served {
			if got < 2 {
				t.Errorf("%s was never greeted again", key.Short())
			}
			if got >= 12 {
				often++
			}
		}
		if often != 4 {
			t.Errorf("%d peers are greeted in each round, want the 4 nearest", often)
		}
	})
}

// answerWith reads a request and answers it.
func answerWith(s *p2p.Stream, a hello.Answer) {
	var q hello.Request
	if s.Recv(&q) == nil {
		_ = s.Send(a)
	}
}

func TestOtherMajor(t *testing.T) {
	run(t, func(w *world) {
		var l log
		a, sa := w.peer(0, p2p.Options{}, hello.Options{Logger: l.logger()})
		b := w.Add(p2p.Options{})
		newer := hello.Protocol
		newer.Major = 2
		b.Handle(newer, func(context.Context, *p2p.Stream) {})
		w.Connect(a, b)
		w.wait(5 * time.Minute)
		m, ok := sa.Met(b.Key())
		if !ok || !strings.Contains(m.Trouble, "this peer speaks 1 and is too old") || !m.At.IsZero() {
			t.Errorf("Met = %+v, %v, want who is too old", m, ok)
		}
		if got := l.count(slog.LevelInfo, "too old"); got != 1 {
			t.Errorf("said %d times who is too old, want once", got)
		}
		stranger := w.Add(p2p.Options{})
		w.Connect(a, stranger)
		w.wait(5 * time.Minute)
		if m, _ := sa.Met(stranger.Key()); !strings.Contains(m.Trouble, "does not serve hello") {
			t.Errorf("Met = %+v, want that it serves no hello", m)
		}
		if got := l.count(slog.LevelInfo, "cannot be understood"); got != 1 {
			t.Errorf("said %d times who cannot be understood, want only the one of another major", got)
		}
		if sa.Stats().Out["foreign"] == 0 {
			t.Errorf("stats = %v, want foreign peers counted", sa.Stats())
		}
	})
}

func TestNewRefuses(t *testing.T) {
	run(t, func(w *world) {
		h := w.Add(p2p.Options{Key: p2ptest.Key(7)})
		good := signer(p2ptest.Key(7))
		for _, tt := range []struct {
			name string
			o    hello.Options
		}{
			{"no host", hello.Options{Signer: good}},
			{"no signer", hello.Options{Host: h}},
			{"another key", hello.Options{Host: h, Signer: signer(p2ptest.Key(8))}},
			{"another network", hello.Options{Host: h, Signer: attest.NewSigner(p2ptest.Key(7), attest.NetworkID("main"))}},
			{"long agent", hello.Options{Host: h, Signer: good, Agent: strings.Repeat("a", 65)}},
			{"agent of other letters", hello.Options{Host: h, Signer: good, Agent: "lacuna/ü"}},
		} {
			if s, err := hello.New(tt.o); err == nil {
				s.Close()
				t.Errorf("%s: no error", tt.name)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	run(t, func(w *world) {
		reg := prometheus.NewRegistry()
		key := p2ptest.Key(1_000_000)
		a := w.apart(p2p.Options{Key: key})
		b, _ := w.peer(1, p2p.Options{}, hello.Options{})
		for range 2 { // a later service may use the same registerer
			_, stop := w.service(a, key, hello.Options{Registerer: reg})
			w.Connect(a, b)
			w.wait(5 * time.Second)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]float64)
			for _, f := range families {
				for _, m := range f.Metric {
					name := f.GetName()
					for _, l := range m.Label {
						name += " " + l.GetValue()
					}
					got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
			for _, name := range []string{"lacuna_hello_greetings_total out answered", "lacuna_hello_forgotten_total", "lacuna_hello_clock_offset_seconds"} {
				v, ok := got[name]
				if !ok || (strings.Contains(name, "greetings") && v == 0) {
					t.Errorf("metric %s = %v, %v; all: %v", name, v, ok, got)
				}
			}
			stop()
			a.Disconnect(b.Key())
			w.wait(time.Second)
		}
	})
}

// name returns a key that nobody has the other half of.
func name(i int) attest.Key {
	var k attest.Key
	copy(k[:], fmt.Sprintf("key %d", i))
	return k
}
