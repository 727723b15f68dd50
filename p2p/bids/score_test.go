package bids_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// scores keeps what the library last said.
type scores struct {
	mu   sync.Mutex
	last map[peer.ID]float64
}

func (s *scores) set(m map[peer.ID]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = m
}

func (s *scores) of(h *p2p.Host) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[p2p.PeerID(h.Key())]
}

// judged returns a network of a peer that tells its scores (host 0), an attacker (host 1), and the peer's channel.
func judged(t *testing.T, o bids.Options) (*network, *bids.Attacker, *scores, <-chan bids.Heard) {
	t.Helper()
	w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
	s := &scores{}
	o.Inspect(s.set)
	w.add(p2p.Testnet, o)
	a, err := bids.NewAttacker(w.Add(p2p.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	w.Connect(w.Host(1), w.Host(0))
	c := w.subscribe(0, nv24...)
	time.Sleep(2 * time.Second)
	return w, a, s, c
}

// TestInvalidMessages holds how many messages that can only be their sender's fault lead below which threshold, and for
// how long, as RATIONALE.md has it.
func TestInvalidMessages(t *testing.T) {
	for _, tt := range []struct {
		invalid   int
		below     float64       // the score right after
		ignored   time.Duration // how long nothing is read
		forgotten time.Duration // until the score is 0 or more
	}{
		{1, 0, 0, 460 * time.Second},
		{3, bids.GossipBelow, 0, 570 * time.Second},
		{4, bids.PublishBelow, 0, 600 * time.Second},
		{5, bids.IgnoreBelow, 15 * time.Second, 620 * time.Second},
		{8, bids.IgnoreBelow, 15 * time.Second, 620 * time.Second}, // what comes after the fifth is not read
	} {
		t.Run(fmt.Sprint(tt.invalid), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, s, c := judged(t, bids.Options{})
				defer w.close()
				defer a.Close()
				for i := range tt.invalid {
					if err := a.Send(nv24[0], fmt.Append(nil, "garbage ", i)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(50 * time.Millisecond)
				}
				time.Sleep(1500 * time.Millisecond)
				if got := s.of(w.Host(1)); got >= tt.below || tt.below > bids.IgnoreBelow && got < tt.below-200 {
					t.Errorf("score after %d invalid messages = %v, want a little below %v", tt.invalid, got, tt.below)
				}
				n := uint64(0)
				read := func() bool {
					n++
					data, _ := signedBy(t, crowdKey(1), n)
					if err := a.Send(nv24[0], data); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
					select {
					case <-c:
						return true
					default:
						return false
					}
				}
				if got := read(); got != (tt.ignored == 0) {
					t.Errorf("a good bid is read = %v", got)
				}
				time.Sleep(tt.ignored)
				if !read() {
					t.Errorf("a good bid after %v is not read", tt.ignored)
				}
				time.Sleep(tt.forgotten)
				if got := s.of(w.Host(1)); got < 0 {
					t.Errorf("score after %v = %v, want it forgiven", tt.forgotten, got)
				}
			})
		})
	}
}

// TestSpreadOverTopics has a peer commit the same faults on many topics, where they count one by one.
func TestSpreadOverTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, s, _ := judged(t, bids.Options{})
		defer w.close()
		defer a.Close()
		for i := range 8 {
			if err := a.Send(nv24[i%2], fmt.Append(nil, "garbage ", i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond)
		if got := s.of(w.Host(1)); got >= bids.IgnoreBelow {
			t.Errorf("score after 4 invalid messages on each of two topics = %v, want below %v", got, bids.IgnoreBelow)
		}
	})
}

// TestHonestRelay has a peer pass on, for minutes, what this one must drop though nobody is to blame: by the hundred,
// stale, early, replayed and too many.
func TestHonestRelay(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shift time.Duration // the renter's clock against this one
		key   func(n uint64) int
		why   string
	}{
		{"stale", -3 * time.Minute, func(n uint64) int { return int(n) }, "expired"},
		{"early", 3 * time.Minute, func(n uint64) int { return int(n) }, "future"},
		{"over the rate", 0, func(uint64) int { return 1 }, "rate"},
		{"a crowd", 0, func(n uint64) int { return int(n) }, "crowd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, s, c := judged(t, bids.Options{PerMinute: 1, Score: func(k attest.Key) float64 {
					if k == attest.NewSigner(crowdKey(999_999), testNetwork).Key() {
						return 1
					}
					return 0
				}})
				defer w.close()
				defer a.Close()
				lowest := 0.0
				for n := range uint64(600) {
					if err := a.Send(nv24[0], shiftedBy(t, crowdKey(tt.key(n)), n, tt.shift)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(200 * time.Millisecond)
					lowest = min(lowest, s.of(w.Host(1)))
				}
				if lowest < 0 {
					t.Errorf("the score fell to %v", lowest)
				}
				d := w.gossip[0].Stats().Dropped
				if d[tt.why] < 100 {
					t.Errorf("dropped %v, want most as %q", d, tt.why)
				}
				for len(c) > 0 {
					<-c
				}
				time.Sleep(10 * time.Second)
				if err := a.Send(nv24[0], shiftedBy(t, crowdKey(999_999), 1, 0)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if len(c) != 1 {
					t.Error("a good bid by the same neighbour is not read")
				}
			})
		})
	}
}

// TestOwnScore holds what the owner's opinion does.
func TestOwnScore(t *testing.T) {
	for _, tt := range []struct {
		name  string
		score float64
		read  bool
	}{
		{"nothing known", 0, true}, {"a hub", bids.HubScore, true}, {"disliked", -300, true}, {"cut off", -401, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			attacker := attest.NewSigner(p2ptest.Key(1), testNetwork).Key()
			w, a, s, c := judged(t, bids.Options{Score: func(k attest.Key) float64 {
				if k == attacker {
					return tt.score
				}
				return 0
			}})
			defer w.close()
			defer a.Close()
			data, _ := signedBy(t, crowdKey(1), 1)
			if err := a.Send(nv24[0], data); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
			if got := len(c) == 1; got != tt.read {
				t.Errorf("%s: a bid is read = %v, want %v", tt.name, got, tt.read)
			}
			if got := s.of(w.Host(1)); math.Abs(got-tt.score) > 1 {
				t.Errorf("%s: score %v, want about %v", tt.name, got, tt.score)
			}
		})
	}
}
