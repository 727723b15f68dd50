package peers_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/peers"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// run keeps a host connected until the test's function ends. No computer changes its addresses in a bubble.
func run(t *testing.T, o peers.Options) (k *peers.Keeper, stop func()) {
	t.Helper()
	if o.Addrs == nil {
		o.Addrs = func() ([]string, error) { return []string{"192.0.2.1"}, nil }
	}
	k, err := peers.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return k, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func invite(hosts ...*p2p.Host) []p2p.InvitePeer {
	var out []p2p.InvitePeer
	for _, h := range hosts {
		out = append(out, p2p.InvitePeer{Key: h.Key(), Addrs: h.Addrs()})
	}
	return out
}

// attempts counts the dials without success that a keeper logs.
type attempts struct {
	mu sync.Mutex
	at []time.Time
}

func (a *attempts) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (a *attempts) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.Contains(string(b), "known peer is not reached") {
		a.at = append(a.at, time.Now())
	}
	return len(b), nil
}

func (a *attempts) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

func TestAPeerThatIsAwayForHoursIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 2, p2ptest.Options{})
		defer w.Close()
		a, b := w.Host(0), w.Host(1)
		w.Mute(b, true)
		var tries attempts
		k, stop := run(t, peers.Options{Host: a, Bootstrap: invite(b), Logger: tries.logger()})
		defer stop()
		<-k.Joined()
		time.Sleep(3 * time.Hour)
		// 2 s doubling to 2 min, and 10 s or so for each try: about 84 in three hours.
		if n := tries.count(); n < 60 || n > 110 {
			t.Errorf("%d tries in 3 hours, want about 84", n)
		}
		if f := k.LastFailure(); f.Peer != b.Key() || f.Reason == "" || time.Since(f.At) > 3*time.Minute {
			t.Errorf("the last failure is %+v, want a reason of the last minutes", f)
		}
		w.Mute(b, false)
		time.Sleep(2*time.Minute + 24*time.Second + 15*time.Second)
		if !a.Connected(b.Key()) {
			t.Error("the peer is back, but not connected within the longest interval")
		}
		if f := k.LastFailure(); f != (peers.Failure{}) {
			t.Errorf("after a success the last failure is %+v", f)
		}
	})
}

func TestANetworkWhoseFirstPeerLeavesHoldsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 5, p2ptest.Options{})
		defer w.Close()
		first := w.Host(0)
		var stops []func()
		for _, h := range w.Hosts()[1:] {
			// Each peer tells those that are connected to it of the others.
			told := func() []p2p.InvitePeer {
				if !h.Connected(first.Key()) {
					return nil
				}
				return invite(w.Hosts()[1:]...)
			}
			_, stop := run(t, peers.Options{Host: h, Bootstrap: invite(first), Learned: told})
			stops = append(stops, stop)
		}
		time.Sleep(20 * time.Second)
		w.Mute(first, true)
		time.Sleep(2 * time.Minute)
		for i, h := range w.Hosts()[1:] {
			if n := len(h.Peers()); n != 3 {
				t.Errorf("peer %d is connected to %d others, want 3", i+1, n)
			}
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestEnoughIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 30, p2ptest.Options{})
		defer w.Close()
		_, stop := run(t, peers.Options{Host: w.Host(0), Bootstrap: invite(w.Hosts()[1:]...)})
		defer stop()
		time.Sleep(10 * time.Minute)
		if n := len(w.Host(0).Peers()); n < 4 || n > 8 {
			t.Errorf("%d connections, want 4 to 8", n)
		}
	})
}

func TestPeersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 4, p2ptest.Options{})
		defer w.Close()
		a := w.Host(0)
		var kept []home.KnownPeer
		o := peers.Options{Host: a, Bootstrap: invite(w.Host(1)), Save: func(list []home.KnownPeer) error { kept = list; return nil }}
		k, stop := run(t, o)
		<-k.Joined()
		k.Add(invite(w.Host(2)))
		w.Connect(w.Host(3), a) // it dials
		time.Sleep(time.Minute)
		stop()
		if len(kept) != 3 {
			t.Fatalf("%d peers are kept, want 3", len(kept))
		}
		for _, p := range kept {
			if inbound := p.Peer == w.Host(3).Key(); p.DialedAt.IsZero() != inbound || p.SeenAt.IsZero() {
				t.Errorf("%s: dialled at %v, seen at %v", p.Peer.Short(), p.DialedAt, p.SeenAt)
			}
		}
		for _, h := range w.Hosts()[1:] {
			a.Disconnect(h.Key())
		}
		w.Mute(w.Host(1), true) // all that the owner named is gone
		_, stop = run(t, peers.Options{Host: a, Bootstrap: o.Bootstrap, Load: func() ([]home.KnownPeer, error) { return kept, nil }})
		defer stop()
		time.Sleep(time.Minute)
		if !a.Connected(w.Host(2).Key()) || !a.Connected(w.Host(3).Key()) {
			t.Error("peers known from before are not connected")
		}
	})
}

func TestAChangeOfNetworksIsSurvivedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 3, p2ptest.Options{})
		defer w.Close()
		a, old, other := w.Host(0), w.Host(1), w.Host(2)
		w.Mute(other, true)
		var mu sync.Mutex
		addrs, changes := []string{"192.0.2.1"}, 0
		_, stop := run(t, peers.Options{Host: a, Bootstrap: invite(old, other),
			Addrs:   func() ([]string, error) { mu.Lock(); defer mu.Unlock(); return slices.Clone(addrs), nil },
			Changed: func(context.Context) { mu.Lock(); defer mu.Unlock(); changes++ }})
		defer stop()
		time.Sleep(30 * time.Minute) // the other peer now has its longest interval
		if !a.Connected(old.Key()) || a.Connected(other.Key()) {
			t.Fatal("before the change, want exactly the first peer connected")
		}
		mu.Lock()
		addrs = []string{"198.51.100.1"}
		mu.Unlock()
		w.Mute(old, true)
		w.Mute(other, false)
		// The change is seen within 5 s, dead connections show within 3 s, a dial takes less than 1 s.
		time.Sleep(10 * time.Second)
		if a.Connected(old.Key()) || !a.Connected(other.Key()) {
			t.Errorf("10 s after the change: old %v, other %v; want the other peer only", a.Connected(old.Key()), a.Connected(other.Key()))
		}
		mu.Lock()
		defer mu.Unlock()
		if changes != 1 {
			t.Errorf("told of %d changes, want 1", changes)
		}
	})
}
