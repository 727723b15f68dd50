package hello_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

func TestTwin(t *testing.T) {
	run(t, func(w *world) {
		key := p2ptest.Key(42)
		var hubs []*p2p.Host
		for i := range 3 {
			h, _ := w.peer(i, p2p.Options{Profile: p2p.Hub}, hello.Options{})
			hubs = append(hubs, h)
		}
		var la, lb log
		a := w.apart(p2p.Options{Key: key})
		sa, _ := w.service(a, key, hello.Options{Logger: la.logger()})
		w.Connect(a, hubs[0])
		w.Connect(a, hubs[1])
		w.wait(20 * time.Minute)
		if v, ok := sa.Twin(); ok {
			t.Fatalf("Twin = %+v of a process that is alone", v)
		}

		b := w.apart(p2p.Options{Key: key})
		started := time.Now()
		sb, stop := w.service(b, key, hello.Options{Logger: lb.logger()})
		w.Connect(b, hubs[1])
		w.Connect(b, hubs[2])
		var sawA, sawB time.Duration
		for sawA == 0 || sawB == 0 {
			w.wait(time.Second)
			if _, ok := sa.Twin(); ok && sawA == 0 {
				sawA = time.Since(started)
			}
			if _, ok := sb.Twin(); ok && sawB == 0 {
				sawB = time.Since(started)
			}
			if time.Since(started) > 2*time.Minute {
				t.Fatalf("after 2 min the first daemon saw the second after %v and the second the first after %v (0 = never)", sawA, sawB)
			}
		}
		t.Logf("the first saw the second after %v, the second the first after %v", sawA, sawB)
		va, _ := sa.Twin()
		vb, _ := sb.Twin()
		if a, b := sa.TwinBoots(), sb.TwinBoots(); !slices.Equal(a, []hello.BootID{sb.Boot()}) || !slices.Equal(b, []hello.BootID{sa.Boot()}) {
			t.Errorf("twins are %v and %v, want %v and %v", a, b, sb.Boot(), sa.Boot())
		}
		if va.Addr != b.Addrs()[0] || vb.Addr != a.Addrs()[0] {
			t.Errorf("twins at %q and %q, want %q and %q", va.Addr, vb.Addr, b.Addrs()[0], a.Addrs()[0])
		}
		w.wait(10 * time.Minute)
		for name, l := range map[string]*log{"first": &la, "second": &lb} {
			if got := l.count(slog.LevelWarn, "another process uses the key"); got != 1 {
				t.Errorf("the %s daemon warned %d times, want once", name, got)
			}
		}

		stop()
		for _, h := range hubs {
			b.Disconnect(h.Key())
		}
		w.wait(12 * time.Minute)
		if v, ok := sa.Twin(); ok {
			t.Errorf("Twin = %+v 12 min after it has stopped", v)
		}
	})
}

func TestRestartIsNoTwin(t *testing.T) {
	run(t, func(w *world) {
		key := p2ptest.Key(42)
		hub, _ := w.peer(0, p2p.Options{}, hello.Options{})
		h := w.apart(p2p.Options{Key: key})
		for range 4 { // each run meets the statements of the one before
			var l log
			s, stop := w.service(h, key, hello.Options{Logger: l.logger()})
			w.Connect(h, hub)
			for range 70 {
				w.wait(time.Second)
				if v, ok := s.Twin(); ok {
					t.Fatalf("Twin = %+v, which is the run before", v)
				}
			}
			if got := l.count(slog.LevelWarn, ""); got != 0 {
				t.Errorf("%d warnings", got)
			}
			stop()
			h.Disconnect(hub.Key())
		}
	})
}

// A peer that keeps all statements it ever got shows them to a later run, in the best order for a lie.
func TestReplayedRunIsNoTwin(t *testing.T) {
	run(t, func(w *world) {
		key := p2ptest.Key(42)
		h := w.apart(p2p.Options{Key: key})
		var mu sync.Mutex
		var kept []attest.Envelope
		replaying := false
		liar := w.apart(p2p.Options{})
		liar.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
			var q hello.Request
			if s.Recv(&q) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			a := hello.Answer{Clock: time.Now().UnixMilli()}
			if replaying && len(kept) > 0 {
				a.Twin = &hello.Shown{Self: kept[0]}
				kept = kept[1:]
			} else {
				kept = append(kept, q.Self)
			}
			_ = s.Send(a)
		})
		for range 3 {
			_, stop := w.service(h, key, hello.Options{})
			w.Connect(h, liar)
			w.wait(5 * time.Minute)
			stop()
			h.Disconnect(liar.Key())
		}
		mu.Lock()
		replaying = true
		n := len(kept)
		mu.Unlock()
		s, _ := w.service(h, key, hello.Options{})
		w.Connect(h, liar)
		for range 600 {
			w.wait(time.Second)
			if v, ok := s.Twin(); ok {
				t.Fatalf("Twin = %+v, which has ended before", v)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if n < 10 || len(kept) > n-10 {
			t.Errorf("%d of %d statements were shown, want at least 10", n-len(kept), n)
		}
		if got := s.Stats().Out["signature"]; got != 0 {
			t.Errorf("%d statements were refused for their signature, but they are true", got)
		}
	})
}

func TestOldRunsDoNotHideATwin(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	own, twin := hello.BootID{1}, hello.BootID{2}
	said := func(boot hello.BootID, seq uint64, at time.Time, names ...hello.BootID) hello.Self {
		return hello.Self{Boot: boot, Seq: seq, Clock: at.UnixMilli(), Twins: names}
	}
	var twins hello.Twins
	if news, proved := twins.Show(said(own, 1, now), own, now); news || proved {
		t.Error("an own statement is taken for a twin's")
	}
	if news, proved := twins.Show(said(twin, 5, now), own, now); !news || proved {
		t.Errorf("first statement: news %v, proved %v, want news without proof", news, proved)
	}
	third := hello.BootID{3}
	for day := range 20 {
		twins.Show(said(hello.BootID{byte(10 + day)}, 1, now.AddDate(0, 0, -20+day)), own, now)
		if day == 10 { // one more process, which takes the place of an old run
			twins.Show(said(third, 1, now), own, now)
		}
	}
	if got := twins.Boots(now); len(got) != 2 || got[0] != twin || got[1] != third {
		t.Errorf("Boots = %v after 20 old runs, want %v and %v still", got, twin, third)
	}
	if _, proved := twins.Show(said(twin, 5, now, own), own, now); proved {
		t.Error("a sequence that was used before proves something")
	}
	if news, proved := twins.Show(said(twin, 6, now, own), own, now); news || !proved {
		t.Errorf("statement that names this process: news %v, proved %v, want proof", news, proved)
	}
	if _, proved := twins.Show(said(twin, 7, now, own), own, now); proved {
		t.Error("proved twice")
	}
	if got := twins.Boots(now.Add(11 * time.Minute)); got != nil {
		t.Errorf("Boots = %v after 11 min", got)
	}
	if _, proved := twins.Show(said(twin, 8, now, own), own, now.Add(20*time.Minute)); !proved {
		t.Error("a twin that comes back is not said again")
	}
}

func TestProcessesOfOneKey(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var p hello.Peers
	k := name(1)
	for i, tt := range []struct {
		boot byte
		seq  uint64
		new  bool
	}{{1, 1, true}, {1, 1, false}, {2, 1, true}, {1, 3, true}, {1, 2, false}, {3, 1, true}, {2, 1, true}} {
		if got := p.Hear(k, hello.Self{Boot: hello.BootID{tt.boot}, Seq: tt.seq}, now); got != tt.new {
			t.Errorf("statement %d: Hear = %v, want %v", i, got, tt.new)
		}
	}
	// 3 and 2 are the last two that said something new.
	for _, tt := range []struct {
		asker byte
		after time.Duration
		want  byte // 0 = none
	}{{2, 0, 3}, {3, 0, 2}, {1, 0, 2}, {2, 5 * time.Minute, 3}, {2, 5*time.Minute + 1, 0}} {
		got, ok := p.Other(k, hello.BootID{tt.asker}, now.Add(tt.after))
		if ok != (tt.want != 0) || got != (hello.BootID{tt.want}) {
			t.Errorf("process %d is shown %v, %v after %v, want %d", tt.asker, got, ok, tt.after, tt.want)
		}
	}
}
