package hello_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
)

// Two peers join through a light client, which connects nobody to anybody by itself.
func TestJoinThroughLightPeer(t *testing.T) {
	run(t, func(w *world) {
		first, _ := w.peer(0, p2p.Options{Profile: p2p.Light}, hello.Options{})
		a, sa := w.peer(1, p2p.Options{}, hello.Options{})
		w.Connect(a, first)
		w.wait(10 * time.Second)
		if got := sa.Known(); len(got) != 0 {
			t.Errorf("Known = %v, want nobody: the light peer knows nobody", got)
		}
		b, sb := w.peer(2, p2p.Options{}, hello.Options{})
		light, _ := w.peer(3, p2p.Options{Profile: p2p.Light}, hello.Options{})
		w.Connect(light, first)
		w.Connect(b, first)
		w.wait(80 * time.Second)
		for _, tt := range []struct {
			name string
			s    *hello.Service
			want *p2p.Host
		}{{"first comer", sa, b}, {"second comer", sb, a}} {
			got := tt.s.Known()
			if len(got) != 1 || got[0].Key != tt.want.Key() || len(got[0].Addrs) != 1 || got[0].Addrs[0] != tt.want.Addrs()[0] {
				t.Fatalf("%s: Known = %v, want %s at %v", tt.name, got, tt.want.Key(), tt.want.Addrs())
			}
		}
		p := sb.Known()[0]
		if err := b.Connect(w.ctx, p.Key, p.Addrs); err != nil {
			t.Fatal(err)
		}
		if got := sb.Known(); len(got) != 0 {
			t.Errorf("Known = %v, want no peer that is connected", got)
		}
	})
}

func TestToldIsBounded(t *testing.T) {
	run(t, func(w *world) {
		h, s := w.peer(0, p2p.Options{}, hello.Options{})
		own, err := ma.NewMultiaddr(h.Addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			liar := w.Add(p2p.Options{})
			liar.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
				a := hello.Answer{Clock: 1}
				for j := range 8 {
					key := name(100*i + j)
					if j == 0 {
						key = h.Key() // it tells the peer about itself
					}
					a.Peers = append(a.Peers, hello.Told{Key: key, Addrs: [][]byte{own.Bytes()}})
				}
				answerWith(s, a)
			})
			w.Connect(h, liar)
			w.wait(time.Second)
		}
		w.wait(3 * time.Minute)
		got := s.Known()
		if len(got) != 7*7 {
			t.Errorf("%d peers known, want the 7 of 7 liars: with 8 connections it no longer asks", len(got))
		}
		for _, p := range got {
			if p.Key == h.Key() {
				t.Error("Known names the peer itself")
			}
		}
	})
}

func TestKnownSharesPlaces(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var h hello.Hints
	list := func(source, n int, addr string) []p2p.InvitePeer {
		var out []p2p.InvitePeer
		for i := range n {
			out = append(out, p2p.InvitePeer{Key: name(1000*source + i), Addrs: []string{addr}})
		}
		return out
	}
	honest := name(-1)
	h.Put(honest, []p2p.InvitePeer{{Key: name(7), Addrs: []string{"/ip4/1.2.3.4/tcp/1"}}}, now)
	for i := range 30 {
		h.Put(name(-2-i), append(list(i, 7, "/ip4/9.9.9.9/tcp/9"), p2p.InvitePeer{Key: name(7), Addrs: []string{"/ip4/9.9.9.9/tcp/9"}}), now)
	}
	got := h.Known()
	if len(got) != hello.MaxKnown {
		t.Errorf("%d known, want %d", len(got), hello.MaxKnown)
	}
	at := -1
	for i, p := range got {
		if p.Key == name(7) {
			at = i
			if want := []string{"/ip4/1.2.3.4/tcp/1", "/ip4/9.9.9.9/tcp/9"}; fmt.Sprint(p.Addrs) != fmt.Sprint(want) {
				t.Errorf("addresses %v, want %v", p.Addrs, want)
			}
		}
	}
	if at < 0 || at > 30 {
		t.Errorf("what the honest source told stands at %d, want among the first of each source", at)
	}
	for i := range 40 { // one source may speak as often as it likes
		h.Put(name(-2), list(500+i, 8, "/ip4/9.9.9.9/tcp/9"), now)
	}
	kept := false
	for _, p := range h.Known() {
		kept = kept || p.Key == name(7)
	}
	if !kept {
		t.Error("one source has pushed out another's word")
	}
}

func TestUseful(t *testing.T) {
	const public, private, looped = "/ip4/8.8.8.8/tcp/1", "/ip4/192.168.7.7/tcp/1", "/ip4/127.0.0.1/tcp/1"
	for _, tt := range []struct {
		addr, other string
		testnet     bool
		want        bool
	}{
		{"/ip4/9.9.9.9/udp/4711/quic-v1", public, false, true},
		{"/ip6/2606:4700::1/tcp/4711", public, false, true},
		{"/dns4/hub.example.org/tcp/443/tls/ws", public, false, true},
		{"/ip4/10.1.2.3/tcp/4711", public, false, false},
		{"/ip4/10.1.2.3/tcp/4711", private, false, true},
		{"/ip4/10.1.2.3/tcp/4711", looped, false, true},
		{"/ip4/10.1.2.3/tcp/4711", "", false, false},
		{"/ip4/100.64.1.1/tcp/4711", public, false, false},
		{"/ip6/fd00::1/tcp/4711", public, false, false},
		{"/ip4/127.0.0.1/tcp/4711", looped, false, false},
		{"/ip4/127.0.0.1/tcp/4711", looped, true, true},
		{"/ip4/169.254.1.1/tcp/4711", private, false, false},
		{"/ip6/fe80::1/tcp/4711", private, false, false},
		{"/ip4/0.0.0.0/tcp/4711", private, false, false},
		{"/ip4/9.9.9.9/tcp/1/p2p/" + name(1).String(), public, false, false},
		{"/ip4/9.9.9.9/tcp/1/p2p/" + name(1).String() + "/p2p-circuit", public, true, false},
	} {
		m, err := ma.NewMultiaddr(tt.addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := hello.Useful(m, tt.other, tt.testnet); got != tt.want {
			t.Errorf("%s told by or to %q, testnet %v: useful = %v, want %v", tt.addr, tt.other, tt.testnet, got, tt.want)
		}
	}
}

func TestSightings(t *testing.T) {
	run(t, func(w *world) {
		a, sa := w.peer(0, p2p.Options{}, hello.Options{})
		target := w.apart(p2p.Options{})
		var observers []attest.Key
		measured := make(map[attest.Key]time.Duration)
		for i := range 3 {
			h, _ := w.peer(1+i, p2p.Options{}, hello.Options{})
			if i > 0 { // the first has never met the target
				w.Connect(h, target)
			}
			w.Connect(a, h)
			observers = append(observers, h.Key())
			w.wait(time.Second)
			measured[h.Key()], _ = h.RTT(target.Key())
		}
		w.wait(5 * time.Second)
		if got := sa.Sightings(target.Key()); got != nil {
			t.Errorf("Sightings = %v of a peer that is not watched", got)
		}
		sa.Watch(target.Key(), a.Key())
		w.wait(5 * time.Second)
		got := sa.Sightings(target.Key())
		if len(got) != 2 {
			t.Fatalf("Sightings = %v, want two observers", got)
		}
		for _, s := range got {
			if s.RTT < measured[s.Observer] || s.RTT%time.Millisecond != 0 || s.RTT < 50*time.Millisecond || s.RTT > 60*time.Millisecond || (s.Observer != observers[1] && s.Observer != observers[2]) {
				t.Errorf("sighting %+v, want about 50 ms, and never less, from one of the two", s)
			}
		}
		if got[0].Range == got[1].Range {
			t.Errorf("both observers are in range %s", got[0].Range)
		}
		before := sa.Stats().Out["answered"]
		for i := range 200 { // as fast as a caller may ask, for 20 s
			sa.Watch(name(i))
			w.wait(100 * time.Millisecond)
		}
		if got := sa.Stats().Out["answered"] - before; got > 3*8 {
			t.Errorf("%d greetings of 3 peers in 20 s, want at most one each in 3 s", got)
		}
		if n := sa.Watched(); n > hello.MaxWatch {
			t.Errorf("%d peers watched, at most %d", n, hello.MaxWatch)
		}
		w.wait(11 * time.Minute)
		if got := sa.Sightings(target.Key()); got != nil {
			t.Errorf("Sightings = %v after 11 min without interest", got)
		}
	})
}

// Only peers that are watched count, and nobody is seen by itself.
func TestUnaskedSightings(t *testing.T) {
	run(t, func(w *world) {
		a, sa := w.peer(0, p2p.Options{}, hello.Options{})
		for range 3 {
			liar := w.apart(p2p.Options{})
			liar.Handle(hello.Protocol, func(_ context.Context, s *p2p.Stream) {
				answerWith(s, hello.Answer{Clock: 1, Seen: []hello.Seen{{Key: name(1), RTT: 1}, {Key: name(2), RTT: 1}}})
			})
			w.Connect(a, liar)
		}
		sa.Watch(name(1))
		w.wait(20 * time.Second)
		if got := len(sa.Sightings(name(1))); got != 3 {
			t.Errorf("%d sightings of the watched peer, want 3", got)
		}
		if got := sa.Sightings(name(2)); got != nil {
			t.Errorf("Sightings = %v of a peer that is not watched", got)
		}
	})
}
