package hello_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// statement signs a statement as host seed would.
func statement(tb testing.TB, seed int, s hello.Self) attest.Envelope {
	tb.Helper()
	e, err := signer(p2ptest.Key(1_000_000+seed)).Sign(hello.Domain, s)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func frame(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := p2p.EncodeFrame(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func lengthOf(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func TestHostileRequests(t *testing.T) {
	const seed = 5 // of the peer that misbehaves
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	said := func(seq uint64) hello.Self {
		return hello.Self{Boot: hello.BootID{1}, Seq: seq, Clock: now.UnixMilli()}
	}
	good := func(seq uint64) []byte { return frame(t, hello.Request{Self: statement(t, seed, said(seq))}) }
	raw := func(payload any) []byte { // signs what Sign would refuse
		b, err := attest.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		return frame(t, hello.Request{Self: signer(p2ptest.Key(1_000_000+seed)).SignBytes(hello.Domain, b)})
	}
	long := good(1)
	long[len(long)-1]++ // the last byte of the signature
	otherNetwork, err := attest.NewSigner(p2ptest.Key(1_000_000+seed), attest.NetworkID("main")).Sign(hello.Domain, said(1))
	if err != nil {
		t.Fatal(err)
	}
	otherDomain, err := signer(p2ptest.Key(1_000_000+seed)).Sign(market.AskDomain, said(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		sends [][]byte // one stream each
		want  map[string]uint64
	}{
		{"good", [][]byte{good(1), good(2)}, map[string]uint64{"answered": 2}},
		{"empty", [][]byte{{}}, map[string]uint64{"broken": 1}},
		{"empty frame", [][]byte{{0}}, map[string]uint64{"malformed": 1}},
		{"oversized", [][]byte{append(lengthOf(hello.MaxRequest+1), make([]byte, hello.MaxRequest+1)...)}, map[string]uint64{"malformed": 1}},
		{"announced only", [][]byte{lengthOf(60 << 10)}, map[string]uint64{"malformed": 1}},
		{"endless length", [][]byte{bytes.Repeat([]byte{0xff}, 64)}, map[string]uint64{"malformed": 1}},
		{"truncated", [][]byte{good(1)[:60]}, map[string]uint64{"broken": 1}},
		{"not canonical", [][]byte{append(lengthOf(len(good(1))-2+1), append([]byte{0xb8, 1}, good(1)[3:]...)...)}, map[string]uint64{"malformed": 1}},
		{"noise", [][]byte{append([]byte{8}, "8 bytes!"...)}, map[string]uint64{"malformed": 1}},
		{"replayed", [][]byte{good(1), good(1)}, map[string]uint64{"answered": 1, "replayed": 1}},
		{"older", [][]byte{good(9), good(8)}, map[string]uint64{"answered": 1, "replayed": 1}},
		{"of somebody else", [][]byte{frame(t, hello.Request{Self: statement(t, seed+1, said(1))})}, map[string]uint64{"signature": 1}},
		{"of another network", [][]byte{frame(t, hello.Request{Self: otherNetwork})}, map[string]uint64{"signature": 1}},
		{"in another role", [][]byte{frame(t, hello.Request{Self: otherDomain})}, map[string]uint64{"malformed": 1}},
		{"changed", [][]byte{long}, map[string]uint64{"signature": 1}},
		{"future-dated", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Clock: now.AddDate(50, 0, 0).UnixMilli()})}, map[string]uint64{"answered": 1}},
		{"beyond all times", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Clock: 1 << 60})}, map[string]uint64{"malformed": 1}},
		{"before all times", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Clock: -1})}, map[string]uint64{"malformed": 1}},
		{"no boot", [][]byte{raw(hello.Self{Seq: 1})}, map[string]uint64{"malformed": 1}},
		{"three twins", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Twins: []hello.BootID{{2}, {3}, {4}}})}, map[string]uint64{"malformed": 1}},
		{"long agent", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Agent: string(make([]byte, 65))})}, map[string]uint64{"malformed": 1}},
		{"control characters", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Agent: "\x1b[31m"})}, map[string]uint64{"malformed": 1}},
		{"no such place", [][]byte{raw(hello.Self{Boot: hello.BootID{1}, Seq: 1, Place: market.Place{Continent: "xx"}})}, map[string]uint64{"malformed": 1}},
		{"nine wishes", [][]byte{frame(t, hello.Request{Self: statement(t, seed, said(1)), Want: make([]attest.Key, 9)})}, map[string]uint64{"malformed": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(w *world) {
				victim, s := w.peer(0, p2p.Options{}, hello.Options{})
				bad := w.apart(p2p.Options{Key: p2ptest.Key(1_000_000 + seed)})
				w.Connect(bad, victim)
				for _, b := range tt.sends {
					stream, err := bad.Open(w.ctx, victim.Key(), nil, hello.Protocol)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := stream.Write(b); err != nil {
						t.Fatal(err)
					}
					_ = stream.CloseWrite()
					_, _ = io.Copy(io.Discard, stream)
					stream.Reset()
				}
				w.wait(time.Second)
				if diff := cmp.Diff(tt.want, s.Stats().In); diff != "" {
					t.Errorf("in (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestStalledStreams(t *testing.T) {
	run(t, func(w *world) {
		victim, s := w.peer(0, p2p.Options{}, hello.Options{})
		friend, sf := w.peer(1, p2p.Options{}, hello.Options{})
		stalled := 0
		for range 6 { // slow peers that hold all streams they get, and never answer either
			bad := w.Add(p2p.Options{})
			bad.Handle(hello.Protocol, func(ctx context.Context, s *p2p.Stream) { <-ctx.Done() })
			w.Connect(bad, victim)
			for range 8 {
				stream, err := bad.Open(w.ctx, victim.Key(), nil, hello.Protocol)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = stream.Write([]byte{0x80}) // half a length
				stalled++
			}
		}
		w.Connect(friend, victim)
		w.wait(2 * time.Second)
		if _, ok := sf.Met(victim.Key()); !ok {
			t.Error("an honest peer gets no answer while others stall")
		}
		w.wait(10 * time.Second)
		if got := s.Stats().In["broken"]; got != 6*4 {
			t.Errorf("%d of %d stalled streams were taken and ended, want 4 of each peer", got, stalled)
		}
		if got := s.Stats().Out["broken"]; got < 6 {
			t.Errorf("%d greetings ended without an answer, want those of 6 peers that stall", got)
		}
		if _, ok := s.Met(friend.Key()); !ok {
			t.Error("peers that stall keep this one from greeting others")
		}
	})
}

func TestRateLimit(t *testing.T) {
	const seed = 5
	run(t, func(w *world) {
		victim, s := w.peer(0, p2p.Options{}, hello.Options{})
		bad := w.apart(p2p.Options{Key: p2ptest.Key(1_000_000 + seed)})
		w.Connect(bad, victim)
		for i := range 100 {
			stream, err := bad.Open(w.ctx, victim.Key(), nil, hello.Protocol)
			if err != nil {
				continue
			}
			_ = stream.Send(hello.Request{Self: statement(t, seed, hello.Self{Boot: hello.BootID{1}, Seq: uint64(i + 1)})})
			var a hello.Answer
			_ = stream.Recv(&a)
			stream.Reset()
		}
		if got := s.Stats().In["answered"]; got < 30 || got > 40 {
			t.Errorf("%d of 100 greetings within 10 s were answered, want the 30 of a minute", got)
		}
	})
}

func TestHostileAnswers(t *testing.T) {
	clock := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli()
	addr := []byte{4, 1, 2, 3, 4, 6, 0x12, 0x67} // /ip4/1.2.3.4/tcp/4711
	many := func(n int) []hello.Told {
		out := make([]hello.Told, n)
		for i := range out {
			out[i] = hello.Told{Key: name(i), Addrs: [][]byte{addr}}
		}
		return out
	}
	own := statement(t, 0, hello.Self{Boot: hello.BootID{9}, Seq: 1, Clock: clock})
	foreign := statement(t, 1, hello.Self{Boot: hello.BootID{9}, Seq: 1, Clock: clock})
	changed := own
	changed.Sig[0]++
	for _, tt := range []struct {
		name string
		send []byte
		want string
	}{
		{"good", frame(t, hello.Answer{Clock: clock, Peers: many(8), Twin: &hello.Shown{Self: own}}), "answered"},
		{"oversized", append(lengthOf(hello.MaxAnswer+1), make([]byte, hello.MaxAnswer+1)...), "malformed"},
		{"truncated", frame(t, hello.Answer{Clock: clock, Peers: many(8)})[:40], "broken"},
		{"nothing", nil, "broken"},
		{"nine peers", frame(t, hello.Answer{Clock: clock, Peers: many(9)}), "malformed"},
		{"no addresses", frame(t, hello.Answer{Clock: clock, Peers: []hello.Told{{Key: name(1)}}}), "malformed"},
		{"address that is none", frame(t, hello.Answer{Clock: clock, Peers: []hello.Told{{Key: name(1), Addrs: [][]byte{{1, 2, 3}}}}}), "malformed"},
		{"clock beyond all times", frame(t, hello.Answer{Clock: 1 << 62}), "malformed"},
		{"round trip of nothing", frame(t, hello.Answer{Clock: clock, Seen: []hello.Seen{{Key: name(1)}}}), "malformed"},
		{"round trip of an hour", frame(t, hello.Answer{Clock: clock, Seen: []hello.Seen{{Key: name(1), RTT: 3_600_000}}}), "malformed"},
		{"no such verdict", frame(t, hello.Answer{Clock: clock, Reach: 9}), "malformed"},
		{"twin of another key", frame(t, hello.Answer{Clock: clock, Twin: &hello.Shown{Self: foreign}}), "signature"},
		{"forged twin", frame(t, hello.Answer{Clock: clock, Twin: &hello.Shown{Self: changed}}), "signature"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(w *world) {
				h, s := w.peer(0, p2p.Options{}, hello.Options{})
				bad := w.Add(p2p.Options{})
				bad.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
					var q hello.Request
					if err := s.Recv(&q); err != nil && !errors.Is(err, io.EOF) {
						t.Errorf("request: %v", err)
					}
					_, _ = s.Write(tt.send)
				})
				w.Connect(h, bad)
				w.wait(8 * time.Second)
				out := s.Stats().Out
				if out[tt.want] == 0 || len(maps.Collect(maps.All(out))) != 1 {
					t.Errorf("out = %v, want only %s", out, tt.want)
				}
				if _, ok := s.Met(bad.Key()); ok != (tt.want == "answered") {
					t.Errorf("Met = %v after an answer that is %s", ok, tt.want)
				}
				if _, ok := s.Twin(); ok {
					t.Error("a twin out of a statement that names nobody")
				}
			})
		})
	}
}

func TestThousandsOfKeys(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	connected := func(k attest.Key) bool { return k == name(0) }
	var p hello.Peers
	for i := range 3 * hello.MaxPeers {
		p.Touch(name(i), now.Add(time.Duration(i)*time.Millisecond), connected)
		if p.Len() > hello.MaxPeers {
			t.Fatalf("%d peers remembered, at most %d", p.Len(), hello.MaxPeers)
		}
	}
	now = now.Add(time.Minute)
	if !p.Touch(name(-1), now, connected) {
		t.Error("no room for a new peer after a flood of keys that have left")
	}
	if n := p.Len(); !p.Touch(name(0), now, connected) || p.Len() != n {
		t.Error("the flood pushed out the peer that is connected")
	}
	p.Sweep(now.Add(11*time.Minute), connected)
	if p.Len() != 1 {
		t.Errorf("%d peers remembered after 11 min, want the connected one", p.Len())
	}
}
