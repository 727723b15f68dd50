package bids_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// hubbed returns a network of a light client (host 0), two hubs (hosts 1 and 2) and n providers, each connected to both
// hubs, with the channels of the providers.
func hubbed(t *testing.T, n int) (*network, []<-chan bids.Heard) {
	t.Helper()
	w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
	w.add(p2p.Light, bids.Options{})
	var heard []<-chan bids.Heard
	for hub := 1; hub <= 2; hub++ {
		if _, err := w.add(p2p.Hub, bids.Options{}).Relay(nv24...); err != nil {
			t.Fatal(err)
		}
	}
	for i := 3; i < 3+n; i++ {
		w.add(p2p.Testnet, bids.Options{})
		heard = append(heard, w.subscribe(i, nv24...))
		w.Connect(w.Host(i), w.Host(1))
		w.Connect(w.Host(i), w.Host(2))
	}
	time.Sleep(5 * time.Second)
	return w, heard
}

// meet connects the light client to hubs and lets it learn what they serve.
func (w *network) meet(hubs ...int) {
	for _, hub := range hubs {
		w.Connect(w.Host(0), w.Host(hub))
	}
	time.Sleep(time.Second)
}

func published(w *network) (n [2]uint64) {
	return [2]uint64{w.gossip[1].Stats().Published, w.gossip[2].Stats().Published}
}

// TestHubsPublish has a light client announce through two hubs, and counts who hears it and how long it takes.
func TestHubsPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const providers = 20
		w, heard := hubbed(t, providers)
		defer w.close()
		w.meet(1, 2)
		start := time.Now()
		n, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, 1)), []string{"nv-24g", "nv-32g"}, []string{"eu", "any"})
		if err != nil || n != providers {
			t.Errorf("Publish = %d, %v, want %d", n, err, providers)
		}
		if d := time.Since(start); d > 55*time.Millisecond {
			t.Errorf("Publish took %v, want one round trip of 50 ms", d)
		}
		time.Sleep(2 * time.Second)
		for i, c := range heard {
			if len(c) != 1 {
				t.Errorf("provider %d heard %d bids, want 1", i, len(c))
			}
		}
		if got := published(w); got != [2]uint64{1, 1} {
			t.Errorf("hubs published %v", got)
		}
		if n, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, 2)), []string{"amd-24g"}, nil); !errors.Is(err, bids.ErrNobody) || n != 0 {
			t.Errorf("Publish on a topic of nobody = %d, %v, want ErrNobody", n, err)
		}
	})
}

// TestFewNeighbours has a peer in gossip that knows one neighbour only have it publish, too, and one with many not.
func TestFewNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 7)
		defer w.close()
		for i := range 7 {
			w.subscribe(i, nv24...)
		}
		w.Connect(w.Host(0), w.Host(1)) // the only neighbour of host 0
		for i := 2; i < 7; i++ {
			w.Connect(w.Host(1), w.Host(i))
		}
		time.Sleep(3 * time.Second)
		n, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, 1)), []string{"nv-24g"}, nil)
		if err != nil || n != 6 { // host 1, which listens itself, and its five neighbours
			t.Errorf("Publish with one neighbour = %d, %v, want 6", n, err)
		}
		if got := w.gossip[1].Stats().Published; got != 1 {
			t.Errorf("the neighbour published %d bids, want 1", got)
		}
		n, err = w.gossip[1].Publish(t.Context(), sign(t, 1, announce(1, 1)), []string{"nv-24g"}, nil)
		if err != nil || n != 6 {
			t.Errorf("Publish with six neighbours = %d, %v, want 6", n, err)
		}
		for i, g := range w.gossip {
			if got := g.Stats().Published; i != 1 && got != 0 {
				t.Errorf("host %d published %d bids for a peer that has neighbours", i, got)
			}
		}
	})
}

func TestDeadHubs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, heard := hubbed(t, 5)
		defer w.close()
		w.meet(1, 2)
		publish := func(request byte, class string) (int, time.Duration, error) {
			start := time.Now()
			n, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, request)), []string{class}, nil)
			return n, time.Since(start), err
		}
		w.Mute(w.Host(1), true)
		if n, d, err := publish(1, "nv-24g"); err != nil || n != 5 || d > time.Second {
			t.Errorf("Publish with one dead hub = %d, %v after %v, want 5", n, err, d)
		}
		time.Sleep(2 * time.Second)
		for i, c := range heard {
			if len(c) != 1 {
				t.Errorf("provider %d heard %d bids by the living hub, want 1", i, len(c))
			}
		}
		w.Mute(w.Host(2), true)
		if n, d, err := publish(2, "nv-32g"); !errors.Is(err, bids.ErrNobody) || n != 0 || d > time.Second {
			t.Errorf("Publish with dead hubs = %d, %v after %v, want ErrNobody within 1 s", n, err, d)
		}
		w.Mute(w.Host(1), false)
		w.Mute(w.Host(2), false)
	})
}

// TestLyingHub has one of two hubs keep a bid to itself and claim the world.
func TestLyingHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, heard := hubbed(t, 5)
		defer w.close()
		w.Host(1).Handle(bids.PublishProtocol(), func(_ context.Context, s *p2p.Stream) {
			var q bids.Request
			if err := s.Recv(&q); err != nil {
				t.Error(err)
			}
			if err := s.Send(bids.Answer{Code: 1, Peers: 100_000}); err != nil {
				t.Error(err)
			}
		})
		w.meet(1, 2)
		n, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, 1)), []string{"nv-24g"}, nil)
		if err != nil || n != 100_000 {
			t.Errorf("Publish = %d, %v", n, err)
		}
		time.Sleep(2 * time.Second)
		for i, c := range heard {
			if len(c) != 1 {
				t.Errorf("provider %d heard %d bids, want 1 by the honest hub", i, len(c))
			}
		}
	})
}

// ask sends a request to hub 1 as it is, and returns what comes back.
func (w *network) ask(q any) (bids.Answer, error) {
	var a bids.Answer
	s, err := w.Host(0).Open(w.t.Context(), w.Host(1).Key(), nil, bids.PublishProtocol())
	if err != nil {
		return a, err
	}
	defer s.Close()
	if raw, ok := q.([]byte); ok {
		_, err = s.Write(raw)
	} else {
		err = s.Send(q)
	}
	if err == nil {
		_ = s.CloseWrite()
		err = s.Recv(&a)
	}
	return a, err
}

// TestHubRefuses sends a hub what it must not publish, and sees each counted, and the sender pay for what only it can
// be blamed for.
func TestHubRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, heard := hubbed(t, 2)
		defer w.close()
		w.meet(1)
		light := w.Host(0).Key()
		ask := func(e attest.Envelope) bids.Request {
			return bids.Request{Bid: e, Classes: []string{"nv-24g"}, Places: []string{"any"}}
		}
		frame := func(v any) []byte {
			b, err := p2p.EncodeFrame(v)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		shifted := func(request byte, by time.Duration) any {
			b := announce(0, request)
			ms := by.Milliseconds()
			b.IssuedAt, b.AnnounceUntil, b.ValidUntil = b.IssuedAt+ms, b.AnnounceUntil+ms, b.ValidUntil+ms
			return ask(sign(t, 0, b))
		}
		good := func(request byte) bids.Request { return ask(sign(t, 0, announce(0, request))) }
		changed := func(request byte, f func(*bids.Request)) any {
			q := good(request)
			f(&q)
			return frame(q)
		}
		for _, tt := range []struct {
			name   string
			send   func() any
			code   uint8 // 0 = no answer
			why    string
			blamed bool
		}{
			{"good, then again", func() any { return good(1) }, 1, "", false},
			{"future", func() any { return shifted(2, 3*time.Minute) }, 3, "future", false},
			{"expired", func() any { return shifted(3, -3*time.Minute) }, 3, "expired", false},
			{"twin", func() any {
				if _, err := w.ask(good(4)); err != nil {
					t.Error(err)
				}
				b := announce(0, 4)
				b.Count = 2
				return ask(sign(t, 0, b))
			}, 2, "replayed", false},
			{"forged", func() any {
				e := sign(t, 0, announce(0, 5))
				e.Sig[0] ^= 1
				return ask(e)
			}, 2, "signature", true},
			{"another object", func() any {
				return ask(attest.NewSigner(p2ptest.Key(0), testNetwork).SignBytes("lacuna/other/1", []byte{1}))
			}, 2, "signature", true},
			{"class twice", func() any {
				return changed(6, func(q *bids.Request) { q.Classes = append(q.Classes, q.Classes...) })
			}, 0, "malformed", true},
			{"too many places", func() any {
				return changed(7, func(q *bids.Request) { q.Places = strings.Fields("eu na sa as af oc an any eu") })
			}, 0, "malformed", true},
			{"unknown place", func() any {
				return changed(8, func(q *bids.Request) { q.Places = []string{"mars"} })
			}, 0, "malformed", true},
			{"truncated", func() any { return frame(good(9))[:100] }, 0, "malformed", true},
			{"oversized", func() any { return []byte{0xff, 0xff, 0x7f, 0} }, 0, "malformed", true},
			{"no frame", func() any { return []byte("hello, hub") }, 0, "malformed", true},
			{"not canonical", func() any { return []byte{2, 0x18, 0x01} }, 0, "malformed", true},
			{"nothing", func() any { return []byte{} }, 0, "malformed", true},
		} {
			send := tt.send()
			before := w.gossip[1].Stats().Dropped
			a, err := w.ask(send)
			if uint8(a.Code) != tt.code || (err == nil) != (tt.code != 0) {
				t.Errorf("%s: answer %d, %v; want %d", tt.name, a.Code, err, tt.code)
			}
			want := map[string]uint64{}
			for why, n := range before {
				want[why] = n
			}
			if tt.why != "" {
				want[tt.why]++
			}
			if diff := cmp.Diff(want, w.gossip[1].Stats().Dropped); diff != "" {
				t.Errorf("%s: dropped (-want +got):\n%s", tt.name, diff)
			}
			for range 5 {
				if _, err := w.ask(send); err != nil && tt.code != 0 && !tt.blamed {
					t.Errorf("%s, repeated: %v", tt.name, err)
				}
			}
			if got := w.gossip[1].Score(light) < bids.IgnoreBelow; got != tt.blamed {
				t.Errorf("%s six times: sender is ignored = %v, want %v", tt.name, got, tt.blamed)
			}
			time.Sleep(3 * time.Minute) // forgiven, and the limits are full again
		}
		if got := w.gossip[1].Stats().Dropped["blamed"]; got != 10 {
			t.Errorf("%d requests were left unread, want the sixth of each kind", got)
		}
		for i, c := range heard {
			if len(c) != 2 {
				t.Errorf("provider %d heard %d bids, want 2", i, len(c))
			}
		}
	})
}

// TestHubChargesTheRenter sends bids of one renter through different peers.
func TestHubChargesTheRenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
		defer w.close()
		w.add(p2p.Light, bids.Options{})
		w.add(p2p.Hub, bids.Options{PerMinute: 3})
		w.subscribe(1, nv24...)
		w.meet(1)
		renter := 7
		for i := byte(1); i <= 4; i++ {
			a, err := w.ask(bids.Request{Bid: sign(t, renter, announce(renter, i)), Classes: []string{"nv-24g"}, Places: []string{"any"}})
			want := bids.Answer{Code: 1, Peers: 1}
			if i == 4 {
				want = bids.Answer{Code: 4}
			}
			if err != nil || a != want {
				t.Errorf("bid %d: answer %+v, %v; want %+v", i, a, err, want)
			}
		}
		if _, err := w.gossip[0].Publish(t.Context(), sign(t, renter, announce(renter, 9)), []string{"amd-24g"}, nil); !errors.Is(err, bids.ErrNobody) {
			t.Errorf("Publish that the hub refuses = %v, want ErrNobody", err)
		}
	})
}

// TestSlowStreams holds streams open without a request, and sees others served all the while.
func TestSlowStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := hubbed(t, 3)
		defer w.close()
		w.meet(1)
		slow := w.Host(3) // a provider, in gossip with the hub
		frame, err := p2p.EncodeFrame(bids.Request{Bid: sign(t, 0, announce(0, 1)), Classes: []string{"nv-24g"}, Places: []string{"any"}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			s, err := slow.Open(t.Context(), w.Host(1).Key(), nil, bids.PublishProtocol())
			if err != nil {
				t.Fatal(err)
			}
			go func() { // a byte now and then, or nothing at all
				for j := 0; i%2 == 0 && j < len(frame); j++ {
					if _, err := s.Write(frame[j : j+1]); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
				_, _ = s.Write(nil)
			}()
			if i%2 == 1 {
				if _, err := s.Write([]byte{0x80}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
		if s, err := slow.Open(t.Context(), w.Host(1).Key(), nil, bids.PublishProtocol()); err == nil {
			if err := s.Recv(new(bids.Answer)); err == nil {
				t.Error("a fifth stream of one peer is served")
			}
		}
		if n, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, 2)), []string{"nv-24g"}, nil); err != nil || n != 3 {
			t.Errorf("Publish beside slow streams = %d, %v", n, err)
		}
		time.Sleep(1200 * time.Millisecond)
		if got := w.gossip[1].Stats().Dropped["stalled"]; got != 4 {
			t.Errorf("%d streams ended for stalling after 1.3 s, want 4", got)
		}
		if s := w.gossip[1].Score(slow.Key()); s != 0 {
			t.Errorf("score after four = %v, want 0", s)
		}
		s, err := slow.Open(t.Context(), w.Host(1).Key(), nil, bids.PublishProtocol())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{0x80}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1200 * time.Millisecond)
		if s := w.gossip[1].Score(slow.Key()); s != -500 {
			t.Errorf("score after five = %v, want -500", s)
		}
	})
}

// TestWhoServes has only hubs publish for others.
func TestWhoServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			profile p2p.Profile
			reach   market.Reach
			allowed bool
			serves  bool
		}{
			{p2p.Hub, market.ReachUnknown, false, true},
			{p2p.Hub, market.ReachRelayed, false, true},
			{p2p.Testnet, market.ReachUnknown, true, true},
			{p2p.Provider, market.ReachDirect, true, true},
			{p2p.Provider, market.ReachDirect, false, false},
			{p2p.Provider, market.ReachPunched, true, false},
			{p2p.Provider, market.ReachRelayed, true, false},
			{p2p.Light, market.ReachDirect, true, false},
		} {
			w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
			g, err := bids.New(bids.Options{Host: w.Add(p2p.Options{Profile: tt.profile, Reach: tt.reach, Relay: p2p.RelayPolicy{Serve: tt.allowed}})})
			if err != nil {
				t.Fatal(err)
			}
			w.gossip = append(w.gossip, g)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- g.Run(ctx) }()
			synctest.Wait()
			serves := false
			for _, p := range w.Host(0).Libp2p().Mux().Protocols() {
				serves = serves || string(p) == "/lacuna/test/publish/1"
			}
			if serves != tt.serves {
				t.Errorf("%s, reach %v: serves publish = %v, want %v", tt.profile, tt.reach, serves, tt.serves)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			w.close()
		}
	})
}

// TestWire holds the bytes of version 1.
func TestWire(t *testing.T) {
	q := bids.Request{Bid: attest.Envelope{Domain: "d", Payload: []byte{1}}, Classes: []string{"nv-24g"}, Places: []string{"any"}}
	for _, tt := range []struct {
		name string
		v    any
		want string
	}{
		{"request", q, "a301a40161640241010358" + "20" + hex.EncodeToString(make([]byte, 32)) + "0458" + "40" + hex.EncodeToString(make([]byte, 64)) +
			"0281666e762d323467" + "038163616e79"},
		{"answer", bids.Answer{Code: 1, Peers: 300}, "a20101021" + "9012c"},
		{"refusal", bids.Answer{Code: 4}, "a10104"},
	} {
		b, err := attest.Marshal(tt.v)
		if err != nil || hex.EncodeToString(b) != tt.want {
			t.Errorf("%s = %x, %v; want %s", tt.name, b, err, tt.want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	b, err := attest.Marshal(bids.Request{Bid: attest.Envelope{Domain: "d", Payload: []byte{1}}, Classes: []string{"nv-24g"}, Places: []string{"any"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var q bids.Request
		if attest.Unmarshal(data, &q) != nil {
			return
		}
		if again, err := attest.Marshal(q); err != nil || !bytes.Equal(again, data) {
			t.Errorf("encodes as %x, %v", again, err)
		}
		if len(q.Classes)*len(q.Places) > 256 {
			t.Errorf("%d classes at %d places", len(q.Classes), len(q.Places))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0xa1, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var a bids.Answer
		if attest.Unmarshal(data, &a) == nil && (a.Peers > 1<<20 || a.Peers > 0 && a.Code != 1) {
			t.Errorf("took %+v", a)
		}
	})
}
