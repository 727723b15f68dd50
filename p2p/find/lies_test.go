package find_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/find"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// TestLies looks for the ask of one provider while of the 20 peers that keep it all but one lie.
func TestLies(t *testing.T) {
	const provider = 0
	fakes := func(t *testing.T, first, n int, change func(*market.Ask)) []attest.Envelope {
		var out []attest.Envelope
		for i := range n {
			out = append(out, sign(t, first+i, ask(first+i, 1, time.Hour, change)))
		}
		return out
	}
	send := func(s *p2p.Stream, asks []attest.Envelope) {
		for part := range slices.Chunk(asks, 12) {
			if s.Send(find.Page{Asks: part}) != nil {
				return
			}
		}
	}
	type lie func(ctx context.Context, s *p2p.Stream, r find.GetRequest)
	for _, tt := range []struct {
		name   string
		lie    func(t *testing.T) lie
		result string // of the questions to liars
		within time.Duration
	}{
		{"nothing", func(*testing.T) lie { return func(context.Context, *p2p.Stream, find.GetRequest) {} }, "answered", 3 * time.Second},
		{"garbage", func(*testing.T) lie {
			return func(_ context.Context, s *p2p.Stream, _ find.GetRequest) { _, _ = s.Write([]byte("\x07garbage")) }
		}, "lied", 3 * time.Second},
		{"a frame too large", func(*testing.T) lie {
			return func(_ context.Context, s *p2p.Stream, _ find.GetRequest) {
				_, _ = s.Write(append([]byte{0xff, 0xff, 3}, make([]byte, 65535)...))
			}
		}, "lied", 3 * time.Second},
		{"asks of another class", func(t *testing.T) lie {
			asks := fakes(t, 1000, 12, func(a *market.Ask) { a.Lots[0].Class = "nv-80g" })
			return func(_ context.Context, s *p2p.Stream, _ find.GetRequest) { send(s, asks) }
		}, "lied", 3 * time.Second},
		{"forged asks", func(t *testing.T) lie {
			e := sign(t, 1000, ask(1000, 1, time.Hour, nil))
			e.Signer = signer(1001).Key()
			return func(_ context.Context, s *p2p.Stream, _ find.GetRequest) { send(s, []attest.Envelope{e}) }
		}, "lied", 3 * time.Second},
		{"more than was asked for", func(t *testing.T) lie {
			asks := fakes(t, 1000, 300, nil)
			return func(_ context.Context, s *p2p.Stream, _ find.GetRequest) { send(s, asks) }
		}, "lied", 5 * time.Second},
		{"expired asks without end", func(t *testing.T) lie {
			asks := fakes(t, 1000, 12, func(a *market.Ask) { a.IssuedAt -= 7_200_000; a.ExpiresAt -= 7_200_000 })
			return func(ctx context.Context, s *p2p.Stream, _ find.GetRequest) {
				for ctx.Err() == nil && s.Send(find.Page{Asks: asks}) == nil {
				}
			}
		}, "lied", 5 * time.Second},
		{"an ask that was replaced", func(t *testing.T) lie {
			e := sign(t, provider, ask(provider, 1, time.Hour, nil))
			time.Sleep(20 * time.Minute)
			return func(_ context.Context, s *p2p.Stream, _ find.GetRequest) { send(s, []attest.Envelope{e}) }
		}, "lied", 3 * time.Second}, // all but the first were told that it is known
		{"silence", func(*testing.T) lie {
			return func(ctx context.Context, s *p2p.Stream, _ find.GetRequest) { _, _ = s.Read(make([]byte, 1)) }
		}, "unanswered", 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t, 27, true)
				defer w.close(t)
				servers := w.finders[:26]
				for _, f := range w.finders {
					f.Know(servers)
				}
				tell := tt.lie(t)
				a := ask(provider, 2, time.Hour, nil)
				honest := find.Nearest(servers, "nv-24g", "any")[13] // in the middle, and so not among the first to be asked
				find.Keep([]*find.Finder{honest}, a, sign(t, provider, a))
				for i, f := range servers {
					if f != honest {
						w.Host(i).Handle(find.GetProtocol, func(ctx context.Context, s *p2p.Stream) {
							var r find.GetRequest
							if err := s.Recv(&r); err == nil {
								tell(ctx, s, r)
							}
						})
					}
				}
				start := time.Now()
				var seqs []uint64
				for x := range w.finders[26].Lookup(t.Context(), find.Query{Classes: []string{"nv-24g"}}) {
					if x.Ask.Provider == signer(provider).Key() {
						seqs = append(seqs, x.Ask.Seq)
					}
				}
				if diff := cmp.Diff([]uint64{2}, seqs); diff != "" {
					t.Errorf("sequences of the honest provider (-want +got):\n%s", diff)
				}
				if d := time.Since(start); d > tt.within {
					t.Errorf("the look-up took %v, want at most %v", d, tt.within)
				}
				if n := w.count(t, "lacuna_find_questions_total", tt.result); n < 10 {
					t.Errorf("%d questions counted as %s, want those to 19 liars", n, tt.result)
				}
				if tt.result != "lied" {
					return
				}
				asked := w.count(t, "lacuna_find_questions_total", "lied")
				for range w.finders[26].Lookup(t.Context(), find.Query{Classes: []string{"nv-24g"}}) {
				}
				if n := w.count(t, "lacuna_find_questions_total", "lied") - asked; n > 3 {
					t.Errorf("%d liars were asked again at once", n)
				}
			})
		})
	}
}

// TestLyingHub holds that the only peer that a newcomer knows, which fills every answer with asks of its own making, does not
// decide what it finds.
func TestLyingHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		w := newNetwork(t, n, true)
		defer w.close(t)
		servers := w.finders[:n-1]
		for i, f := range servers {
			f.Know(servers)
			a := ask(i, 1, time.Hour, nil)
			find.Keep(servers, a, sign(t, i, a))
		}
		var fakes []attest.Envelope
		for i := range 300 {
			fakes = append(fakes, sign(t, 1000+i, ask(1000+i, 1, time.Hour, nil)))
		}
		w.Host(0).Handle(find.GetProtocol, func(_ context.Context, s *p2p.Stream) {
			var r find.GetRequest
			if s.Recv(&r) != nil {
				return
			}
			var p find.Page
			for _, e := range fakes {
				if len(p.Asks) < int(min(r.Limit, 12)) && (r.Parts == 0 || uint64(e.Signer[0])%r.Parts == r.Part) {
					p.Asks = append(p.Asks, e)
				}
			}
			_ = s.Send(p)
		})
		w.Connect(w.Host(n-1), w.Host(0))
		honest := 0
		for x := range w.finders[n-1].Lookup(t.Context(), find.Query{Classes: []string{"nv-24g"}, Limit: 8}) {
			if slices.ContainsFunc(w.Hosts(), func(h *p2p.Host) bool { return h.Key() == x.Ask.Provider }) {
				honest++
			}
		}
		if honest < 5 {
			t.Errorf("%d of 8 asks are honest, want at least 5", honest)
		}
	})
}

// TestPut shows what storing peers accept, whoever sends it.
func TestPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2, false)
		defer w.close(t)
		w.ConnectAll(1)
		past := sign(t, 1, ask(1, 1, time.Hour, nil))
		time.Sleep(2 * time.Hour)
		ahead := ask(1, 1, time.Hour, nil)
		ahead.IssuedAt += 600_000
		forged := sign(t, 1, ask(1, 1, time.Hour, nil))
		forged.Payload = slices.Clone(forged.Payload)
		forged.Payload[len(forged.Payload)-1] ^= 1
		elsewhere, err := attest.NewSigner(p2ptest.Key(1), attest.NetworkID("main")).Sign(market.AskDomain, ask(1, 1, time.Hour, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name   string
			e      attest.Envelope
			result string
		}{
			{"own", sign(t, 1, ask(1, 5, time.Hour, nil)), "kept"},
			{"the same again", sign(t, 1, ask(1, 5, time.Hour, nil)), "kept"},
			{"newer", sign(t, 1, ask(1, 6, time.Hour, nil)), "kept"},
			{"older", sign(t, 1, ask(1, 5, time.Hour, nil)), "older"},
			{"of another peer", sign(t, 2, ask(2, 1, time.Hour, nil)), "foreign"},
			{"for another provider", sign(t, 1, ask(2, 1, time.Hour, nil)), "invalid"},
			{"forged", forged, "invalid"},
			{"of another network", elsewhere, "invalid"},
			{"expired", past, "invalid"},
			{"from the future", sign(t, 1, ahead), "invalid"},
			{"oversized", signer(1).SignBytes(market.AskDomain, make([]byte, market.MaxAskBytes+100)), "malformed"},
			{"empty", attest.Envelope{}, "foreign"},
		} {
			before := w.count(t, "lacuna_find_puts_total", tt.result)
			s, err := w.Host(1).Open(t.Context(), w.Host(0).Key(), nil, find.PutProtocol)
			if err != nil {
				t.Fatal(err)
			}
			var a find.PutAnswer
			_ = s.Send(find.PutRequest{Ask: tt.e})
			_ = s.Recv(&a) // fails where the stream is reset
			s.Reset()
			if a.Kept != (tt.result == "kept") || w.count(t, "lacuna_find_puts_total", tt.result) != before+1 {
				t.Errorf("%s: kept %v, want %s", tt.name, a.Kept, tt.result)
			}
			time.Sleep(10 * time.Second) // within the rate
		}
		if diff := cmp.Diff([]string{"1#6"}, w.lookup(t, 0, find.Query{})); diff != "" {
			t.Errorf("kept in the end (-want +got):\n%s", diff)
		}
	})
}

func FuzzMessages(f *testing.F) {
	key := signer(1).Key()
	e, err := signer(1).Sign(market.AskDomain, ask(1, 1, time.Hour, nil))
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range []any{
		find.PutRequest{Ask: e}, find.PutAnswer{Kept: true}, find.Page{Asks: []attest.Envelope{e, e}},
		find.GetRequest{Provider: &key, Limit: 1}, find.GetRequest{Classes: []string{"nv-24g"}, Places: []string{"eu"}, Limit: 256, Have: make([]byte, 16), Part: 1, Parts: 3},
	} {
		b, err := attest.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r find.GetRequest
		if attest.Unmarshal(b, &r) == nil && (r.Limit < 1 || r.Limit > find.MaxPage || len(r.Have)%8 != 0 || r.Parts > 16) {
			t.Errorf("accepted %+v", r)
		}
		var p find.Page
		if attest.Unmarshal(b, &p) == nil && (len(p.Asks) == 0 || len(p.Asks) > 12) {
			t.Errorf("accepted a page of %d", len(p.Asks))
		}
		var put find.PutRequest
		if attest.Unmarshal(b, &put) == nil && put.Ask.Domain == "" {
			t.Error("accepted an ask without a domain")
		}
	})
}
