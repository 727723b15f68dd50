package find_test

import (
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

// TestMode holds that only peers which others can dial directly are in routing tables.
func TestMode(t *testing.T) {
	for _, tt := range []struct {
		name   string
		host   p2p.Options
		mode   find.Mode
		serves bool
	}{
		{"reachable provider", p2p.Options{Profile: p2p.Provider, Reach: market.ReachDirect}, find.Auto, true},
		{"provider behind a relay", p2p.Options{Profile: p2p.Provider, Reach: market.ReachRelayed}, find.Auto, false},
		{"provider behind a punched hole", p2p.Options{Profile: p2p.Provider, Reach: market.ReachPunched}, find.Auto, false},
		{"unreachable provider", p2p.Options{Profile: p2p.Provider, Reach: market.ReachNone}, find.Auto, false},
		{"hub", p2p.Options{Profile: p2p.Hub, Reach: market.ReachNone}, find.Auto, true},
		{"light client", p2p.Options{Profile: p2p.Light, Reach: market.ReachDirect}, find.Auto, false},
		{"told to serve", p2p.Options{Profile: p2p.Provider, Reach: market.ReachNone}, find.Server, true},
		{"told not to serve", p2p.Options{Profile: p2p.Hub, Reach: market.ReachDirect}, find.Client, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{Name: "open"})}
				defer w.close(t)
				hub := w.Add(p2p.Options{Profile: p2p.Hub, Reach: market.ReachDirect})
				h := w.Add(tt.host)
				w.start(t, 0, find.Auto)
				w.start(t, 1, tt.mode)
				w.Connect(h, hub)
				time.Sleep(10 * time.Second)
				if got := w.finders[0].Size() == 1; got != tt.serves {
					t.Errorf("in the hub's routing table: %v, want %v", got, tt.serves)
				}
				if n := w.finders[1].Size(); n != 1 {
					t.Errorf("its own routing table holds %d peers, want the hub", n)
				}
			})
		})
	}
}

// TestVictims holds that a provider cannot make those who find its ask knock at doors in their own network.
func TestVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{Name: "open"})}
		defer w.close(t)
		for i := range 2 {
			w.Add(p2p.Options{Profile: p2p.Hub, Reach: market.ReachDirect})
			w.start(t, i, find.Auto)
		}
		w.Connect(w.Host(0), w.Host(1))
		const public = "/ip4/8.8.4.4/udp/4711/quic-v1"
		a := ask(7, 1, time.Hour, func(a *market.Ask) {
			a.Addrs = []string{
				"/ip4/127.0.0.1/tcp/22", "/ip4/192.168.1.1/tcp/80", "/ip4/10.0.0.1/udp/53/quic-v1", "/ip4/169.254.169.254/tcp/80",
				"/ip6/::1/tcp/22", "/ip6/fd00::1/tcp/22", public,
			}
		})
		e, err := attest.NewSigner(p2ptest.Key(7), attest.NetworkID("open")).Sign(market.AskDomain, a)
		if err != nil {
			t.Fatal(err)
		}
		find.Keep(w.finders[:1], a, e)
		found := 0
		for range w.finders[1].Lookup(t.Context(), find.Query{}) {
			found++
		}
		var kept []string
		for _, m := range w.Host(1).Libp2p().Peerstore().Addrs(p2p.PeerID(a.Provider)) {
			kept = append(kept, m.String())
		}
		if diff := cmp.Diff([]string{public}, kept); found != 1 || diff != "" {
			t.Errorf("found %d; addresses that may be dialled (-want +got):\n%s", found, diff)
		}
	})
}
