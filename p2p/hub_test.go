package p2p_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// TestHub holds who is a hub, and that nobody else relays.
func TestHub(t *testing.T) {
	for _, tt := range []struct {
		name    string
		profile p2p.Profile
		reach   market.Reach
		allowed bool
		hub     bool
		relays  bool
	}{
		{"provider in the open", p2p.Provider, market.ReachDirect, true, true, true},
		{"provider whose owner says no", p2p.Provider, market.ReachDirect, false, false, false},
		{"provider behind a relay", p2p.Provider, market.ReachRelayed, true, false, false},
		{"provider behind a punched hole", p2p.Provider, market.ReachPunched, true, false, false},
		{"light peer in the open", p2p.Light, market.ReachDirect, true, false, false},
		{"hub by profile", p2p.Hub, market.ReachDirect, true, true, true},
		{"hub by profile that nobody can dial", p2p.Hub, market.ReachNone, true, true, false},
		{"peer of a test network", p2p.Testnet, market.ReachUnknown, true, true, false},
		{"light peer of a test network", p2p.Light, market.ReachUnknown, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p2ptest.New(t, 0, p2ptest.Options{})
				defer w.Close()
				h := w.Add(p2p.Options{Profile: tt.profile, Reach: tt.reach, Relay: p2p.RelayPolicy{Serve: tt.allowed}})
				other := w.Add(p2p.Options{})
				w.Connect(other, h)
				synctest.Wait()
				if tt.reach != market.ReachUnknown {
					await(t, h, func(r p2p.Reach) bool { return r.Verdict == tt.reach })
				}
				synctest.Wait()
				if got := h.Hub(); got != tt.hub {
					t.Errorf("Hub() = %v, want %v", got, tt.hub)
				}
				if got := slices.Contains(h.Libp2p().Mux().Protocols(), proto.ProtoIDv2Hop); got != tt.relays {
					t.Errorf("relays = %v, want %v", got, tt.relays)
				}
			})
		})
	}
}
