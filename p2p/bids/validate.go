package bids

import (
	"log/slog"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// reason says why a bid was dropped.
type reason string

// The reasons. The first three can only be the fault of the peer that passed the message on, which should have checked;
// it is scored down. Of the others an honest peer may have known less, or have another clock.
const (
	reasonSize      reason = "size"
	reasonMalformed reason = "malformed"
	reasonSignature reason = "signature"
	reasonExpired   reason = "expired"
	reasonFuture    reason = "future"
	reasonReplayed  reason = "replayed" // another text under the name of an announcement that was passed on
	reasonRate      reason = "rate"     // the renter announces too often
	reasonCrowd     reason = "crowd"    // renters without evidence announce too much together
	reasonFull      reason = "full"     // more announcements than memory for them
	reasonFlood     reason = "flood"    // unread: too much from that neighbour had to be dropped
	reasonQueue     reason = "queue"    // the reader lags behind
)

// Reasons of the publish protocol alone. The first is the sender's fault.
const (
	reasonStalled reason = "stalled" // a stream on which no request came in time
	reasonBlamed  reason = "blamed"  // unread: the sender has committed too many faults
)

// provable reports whether the forwarder must have seen the fault.
func (r reason) provable() bool {
	return r == reasonSize || r == reasonMalformed || r == reasonSignature
}

// checked is what the validator hands to the subscription.
type checked struct {
	envelope attest.Envelope
	bid      market.Bid
}

// handed is a bid that was checked before the library got it to publish.
type handed struct {
	checked
	from peer.ID // who handed it in; this peer's own id for its own bids
	mesh bool    // send it to the mesh alone
}

// validate is called by the library for each message whose id it does not remember. The library remembers the id before
// it calls: a message that is dropped here comes back from no other neighbour. So nothing is dropped here for who passed
// it on, only for what it is.
func (g *Gossip) validate(from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	if h, ok := m.ValidatorData.(handed); ok {
		if h.mesh {
			m.ReceivedFrom = h.from // what is not its own, the library sends to the mesh only
		}
		return pubsub.ValidationAccept
	}
	now := time.Now()
	c, why := g.guard.check(m.GetData(), now)
	if why == "" {
		m.ValidatorData = handed{checked: c, from: from}
		return pubsub.ValidationAccept
	}
	g.drop(why, from)
	if why.provable() {
		return pubsub.ValidationReject
	}
	g.waste.spend(from, now)
	return pubsub.ValidationIgnore
}

// inspect is called by the library before it looks at what a neighbour sent. Here, before ids are remembered, messages can
// be dropped for who brings them, and honest bids among them still come by others.
func (g *Gossip) inspect(from peer.ID, rpc *pubsub.RPC) error {
	if len(rpc.Publish) > 0 && g.waste.broke(from, time.Now()) {
		for range rpc.Publish {
			g.drop(reasonFlood, from)
		}
		rpc.Publish = nil
	}
	return nil
}

func (g *Gossip) drop(why reason, from peer.ID) {
	g.metrics.drop(why)
	if g.log.Enabled(g.ctx, slog.LevelDebug) { // naming the peer costs more than counting
		key, _ := p2p.KeyOf(from) // zero for a peer without an Ed25519 key
		g.log.Debug("bid dropped", "reason", string(why), "peer", key)
	}
}

// appScore is the part of a neighbour's score that is not about gossip.
func (g *Gossip) appScore(id peer.ID) float64 {
	s := 0.0
	if g.faults.broke(id, time.Now()) {
		s = -faultScore
	}
	if g.score == nil {
		return s
	}
	key, err := p2p.KeyOf(id)
	if err != nil {
		return s
	}
	return s + g.score(key)
}
