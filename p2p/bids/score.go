package bids

import (
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
)

// HubScore is what [Options.Score] should return, at least, for a hub that the owner or an invite named: from there on a
// peer believes whom the hub names in its place when it is full. No behaviour on a topic earns that much.
const HubScore = 100

// Thresholds of a neighbour's score: below gossipBelow it gets no news of messages, below publishBelow no messages of our
// own, and below ignoreBelow nothing that it sends is read. Below zero it is not in the mesh.
const (
	gossipBelow  = -100
	publishBelow = -200
	ignoreBelow  = -400
)

// A neighbour's faults on the publish protocol: that many at once, and one more in faultPause, before faultScore is taken
// off its score and its requests are left unread. It is about what the same faults in gossip cost.
const (
	faultBurst = 5
	faultPause = 20 * time.Second
	faultScore = 500
)

// topicCap is the most that a neighbour can earn by what it does on topics.
const topicCap = 20

// thresholds returns the library's thresholds. Whom a stranger names is tried only if the owner trusts the stranger; where
// nobody has said whom it trusts, if the stranger has been of use. On a test network everybody may name others, or a fresh
// crowd around one hub would not find itself.
func thresholds(testnet, scored bool) *pubsub.PeerScoreThresholds {
	acceptPX := 1.0
	switch {
	case testnet:
		acceptPX = 0
	case scored:
		acceptPX = HubScore
	}
	return &pubsub.PeerScoreThresholds{
		GossipThreshold: gossipBelow, PublishThreshold: publishBelow, GraylistThreshold: ignoreBelow,
		AcceptPXThreshold: acceptPX, OpportunisticGraftThreshold: 1,
	}
}

// peerScore punishes what cannot be an accident. Nobody is punished for silence, since topics of bids are sparse, and
// nobody for an address: a threshold that spares a rack behind one NAT is above the size of the whole mesh, and so keeps
// nobody out of it (p2p bounds the connections per address).
func (g *Gossip) peerScore() *pubsub.PeerScoreParams {
	return &pubsub.PeerScoreParams{
		Topics:        make(map[string]*pubsub.TopicScoreParams),
		TopicScoreCap: topicCap,
		// What the owner knows of the peer, and its faults on the publish protocol.
		AppSpecificScore: g.appScore, AppSpecificWeight: 1,
		// Broken promises and graft floods.
		BehaviourPenaltyWeight: -10, BehaviourPenaltyThreshold: 6, BehaviourPenaltyDecay: 0.9,
		DecayInterval: time.Second, DecayToZero: 0.01, RetainScore: time.Hour, SeenMsgTTL: seenTTL,
	}
}

// topicScore is the same for every topic. Five messages that can only be the forwarder's fault within about a minute
// make 25 × -20 = -500, which is past ignoreBelow.
func topicScore() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{
		TopicWeight: 1, SkipAtomicValidation: true,
		TimeInMeshWeight: 0.01, TimeInMeshQuantum: time.Second, TimeInMeshCap: 100,
		FirstMessageDeliveriesWeight: 0.1, FirstMessageDeliveriesDecay: 0.99, FirstMessageDeliveriesCap: 50,
		InvalidMessageDeliveriesWeight: -20, InvalidMessageDeliveriesDecay: 0.99,
	}
}
