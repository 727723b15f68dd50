package p2p

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Reach is whether and how others can reach this peer, and how that was found out.
type Reach struct {
	Verdict   market.Reach
	Since     time.Time    // when the verdict became what it is; zero while unknown
	CheckedAt time.Time    // when it was last confirmed; zero = never
	Witnesses []attest.Key // peers that found it, newest first, at most 8; empty where it is by definition
	Worked    []string     // own addresses that others have dialled
	Failed    []string     // own addresses that others could not dial
	Relays    []attest.Key // peers that hold a place for this one
	UDP       Wire         // whether UDP gets out of here
	TCP       Wire
}

// Wire is whether a kind of packet leaves this peer's network.
type Wire string

// What is known of a kind of packet; "" is nothing yet.
const (
	WireOpen    Wire = "open"
	WireBlocked Wire = "blocked"
)

// Reach returns the verdict of now.
func (h *Host) Reach() Reach {
	if h.reach == nil {
		return Reach{Verdict: market.ReachDirect}
	}
	return h.reach.now()
}

// Hub reports whether this peer serves those who cannot be dialled, which may change with [Host.Reach]: by its profile, or
// because others can dial it and its owner lets it ([RelayPolicy].Serve). A light peer never does.
func (h *Host) Hub() bool {
	return h.profile == Hub || h.profile != Light && h.mayServe && h.Reach().Verdict == market.ReachDirect
}

// ReachChanged returns a channel that is closed when the verdict changes next.
func (h *Host) ReachChanged() <-chan struct{} {
	if h.reach == nil {
		return make(chan struct{}) // a test network has one verdict for good
	}
	return h.reach.changed()
}

// Recheck forgets what was found and looks again, as after a change of networks or a sleep. The last verdict stands
// until there is a new one.
func (h *Host) Recheck() {
	if h.reach != nil {
		h.reach.recheck()
	}
}
