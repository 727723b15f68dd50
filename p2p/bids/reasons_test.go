package bids_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// TestReasons has a neighbour send each kind of message that is dropped, and holds how it is counted and what it costs.
func TestReasons(t *testing.T) {
	good := func(t *testing.T, key int, n uint64) []byte {
		data, _ := signedBy(t, crowdKey(key), n)
		return data
	}
	changed := func(t *testing.T, change func(*market.Bid)) []byte {
		b := announce(0, 1)
		b.Renter = attest.NewSigner(crowdKey(1), testNetwork).Key()
		change(&b)
		payload, err := attest.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		return encode(t, attest.NewSigner(crowdKey(1), testNetwork).SignBytes(market.BidDomain, payload))
	}
	for _, tt := range []struct {
		name  string
		send  func(t *testing.T) [][]byte
		heard int
		drops map[string]uint64
		score float64 // of the neighbour, at most
	}{
		{"oversized", func(*testing.T) [][]byte { return [][]byte{make([]byte, market.MaxBidBytes+1)} }, 0, map[string]uint64{"size": 1}, -18},
		{"truncated", func(t *testing.T) [][]byte { return [][]byte{good(t, 1, 1)[:200]} }, 0, map[string]uint64{"malformed": 1}, -18},
		{"longer than it says", func(t *testing.T) [][]byte { return [][]byte{append(good(t, 1, 1), 0)} }, 0, map[string]uint64{"malformed": 1}, -18},
		{"not canonical", func(t *testing.T) [][]byte {
			data := good(t, 1, 1) // a map of four; the same with its length in a byte of its own
			return [][]byte{slices.Concat([]byte{0xb8, 4}, data[1:])}
		}, 0, map[string]uint64{"malformed": 1}, -18},
		{"no such value", func(t *testing.T) [][]byte {
			return [][]byte{changed(t, func(b *market.Bid) { b.Count = 0 })}
		}, 0, map[string]uint64{"malformed": 1}, -18},
		{"forged", func(t *testing.T) [][]byte {
			data := good(t, 1, 1)
			data[len(data)-1] ^= 1 // the signature comes last
			return [][]byte{data}
		}, 0, map[string]uint64{"signature": 1}, -18},
		{"for another renter", func(t *testing.T) [][]byte {
			return [][]byte{changed(t, func(b *market.Bid) { b.Renter[0] ^= 1 })}
		}, 0, map[string]uint64{"signature": 1}, -18},
		{"expired", func(t *testing.T) [][]byte { return [][]byte{shiftedBy(t, crowdKey(1), 1, -3*time.Minute)} }, 0, map[string]uint64{"expired": 1}, 0.1},
		{"from the future", func(t *testing.T) [][]byte { return [][]byte{shiftedBy(t, crowdKey(1), 1, 3*time.Minute)} }, 0, map[string]uint64{"future": 1}, 0.1},
		{"the same again", func(t *testing.T) [][]byte { return [][]byte{good(t, 1, 1), good(t, 1, 1)} }, 1, map[string]uint64{}, 0.2},
		{"a twin", func(t *testing.T) [][]byte {
			return [][]byte{changed(t, func(*market.Bid) {}), changed(t, func(b *market.Bid) { b.Count = 2 })}
		}, 1, map[string]uint64{"replayed": 1}, 0.2},
		{"too many of one renter", func(t *testing.T) (out [][]byte) {
			for i := range uint64(31) {
				out = append(out, good(t, 1, i))
			}
			return out
		}, 30, map[string]uint64{"rate": 1}, 4},
		{"more of one renter than is read", func(t *testing.T) (out [][]byte) {
			for i := range uint64(600) {
				out = append(out, good(t, 1, i))
			}
			return out
		}, 30, map[string]uint64{"rate": 556, "flood": 14}, 4},
		{"more than the reader takes", func(t *testing.T) (out [][]byte) {
			for i := range 40 {
				for n := range uint64(30) {
					out = append(out, good(t, known+i, n))
				}
			}
			return out
		}, 1024, map[string]uint64{"queue": 1200 - 1024}, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, s, c := judged(t, bids.Options{Score: func(k attest.Key) float64 {
					for i := range 40 {
						if k == knownKeys[i] {
							return 1
						}
					}
					return 0
				}})
				defer w.close()
				defer a.Close()
				for _, data := range tt.send(t) {
					if err := a.Send(nv24[0], data); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Millisecond)
				}
				time.Sleep(1500 * time.Millisecond)
				got := w.gossip[0].Stats().Dropped
				// Which messages come in one packet, and so with which the budget is empty, differs a little.
				if off := int(tt.drops["flood"]) - int(got["flood"]); off > -14 && off < 14 {
					got["rate"], got["flood"] = got["rate"]-uint64(off), got["flood"]+uint64(off)
					maps.DeleteFunc(got, func(_ string, n uint64) bool { return n == 0 })
				}
				if diff := cmp.Diff(tt.drops, got); diff != "" {
					t.Errorf("dropped (-want +got):\n%s", diff)
				}
				if len(c) != tt.heard {
					t.Errorf("heard %d, want %d", len(c), tt.heard)
				}
				if got := s.of(w.Host(1)); got > tt.score || tt.score > 0 && got < 0 {
					t.Errorf("score %v, want at most %v", got, tt.score)
				}
			})
		})
	}
}

// known is the number of the first renter with evidence.
const known = 5000

var knownKeys = func() (keys [40]attest.Key) {
	for i := range keys {
		keys[i] = attest.NewSigner(crowdKey(known+i), testNetwork).Key()
	}
	return keys
}()

// TestCrowd holds who is served when renters without evidence announce more than all of them may.
func TestCrowd(t *testing.T) {
	now := time.Now()
	c := bids.NewCrowd(10) // 100 at once
	serve := func(key, times int, at time.Duration) (n int) {
		for range times {
			if c.Admit(attest.NewSigner(crowdKey(key), testNetwork).Key(), now.Add(at)) {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		name        string
		key, times  int
		after       time.Duration
		want        int
		eachAnother bool
	}{
		{"one key takes half", 1, 200, 0, 51, false},
		{"another then gets two", 2, 200, 0, 2, false},
		{"and again nothing", 2, 200, 0, 0, false},
		{"new keys get the rest", 100, 100, 0, 47, true},
		{"nobody", 900, 10, 0, 0, true},
		{"nobody but newcomers after a second", 2, 10, time.Second, 0, false},
		{"newcomers after a second", 300, 100, time.Second, 10, true},
		{"all is as before after a minute", 1, 200, time.Minute, 51, false},
	} {
		got := 0
		if tt.eachAnother {
			for i := range tt.times {
				got += serve(tt.key+i, 1, tt.after)
			}
		} else {
			got = serve(tt.key, tt.times, tt.after)
		}
		if got != tt.want {
			t.Errorf("%s: %d of %d are served, want %d", tt.name, got, tt.times, tt.want)
		}
	}
}

// TestKnownRenters has the keys with evidence served while all others are shut out.
func TestKnownRenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		friend := attest.NewSigner(crowdKey(999_999), testNetwork).Key()
		g := bids.NewGuard(testNetwork, 30, func(k attest.Key) bool { return k == friend })
		dropped := make(map[string]int)
		for i := range 6000 {
			data, _ := signedBy(t, crowdKey(i), 1)
			why, _ := g.Check(data, time.Now())
			dropped[why]++
		}
		// 500 at once; then the memory of rates is full of keys that nobody has seen before.
		if dropped[""] != 500 || dropped["crowd"] < 3000 || dropped["crowd"]+dropped["rate"] != 5500 {
			t.Errorf("of 6000 fresh keys at once: %v", dropped)
		}
		for i := range uint64(31) {
			data, _ := signedBy(t, crowdKey(999_999), i)
			want := ""
			if i == 30 {
				want = "rate"
			}
			if why, _ := g.Check(data, time.Now()); why != want {
				t.Errorf("bid %d of a renter with evidence is dropped as %q, want %q", i, why, want)
			}
		}
	})
}

func TestBoundedMemories(t *testing.T) {
	if n, newest, oldest := bids.FillVerified(3000); n != 1024 || !newest || oldest {
		t.Errorf("3000 verified bids: %d kept, the newest %v, the oldest %v; want 1024 with the newest", n, newest, oldest)
	}
	if n, last := bids.FillBudgets(10_000, time.Now()); n > 4096 || !last {
		t.Errorf("10,000 wasteful peers: %d kept, the last one is known: %v", n, last)
	}
}

// TestOpen opens bids that came straight from their renters.
func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1)
		defer w.close()
		b := announce(1, 1)
		e, forged := sign(t, 1, b), sign(t, 1, b)
		forged.Sig[0] ^= 1
		for range 2 { // verified, then remembered
			got, err := w.gossip[0].Open(e, time.Now())
			if diff := cmp.Diff(b, got); err != nil || diff != "" {
				t.Errorf("Open = %v (-want +got):\n%s", err, diff)
			}
		}
		if _, err := w.gossip[0].Open(forged, time.Now()); !errors.Is(err, attest.ErrSignature) {
			t.Errorf("Open of a forged bid = %v", err)
		}
		if _, err := w.gossip[0].Open(e, time.Now().Add(5*time.Minute)); !errors.Is(err, market.ErrExpired) {
			t.Errorf("Open of an old bid = %v", err)
		}
	})
}
