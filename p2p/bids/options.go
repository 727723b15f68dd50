package bids

import (
	"crypto/sha256"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/p2p"
)

// Numbers of gossip.
const (
	// queue is the length of every queue. With the library's 32, 300 messages at once lost 4 of 5 without an error.
	queue = 1024
	// maxMessage bounds one RPC; a bid is at most 1 KiB, and control messages travel along.
	maxMessage = 16 << 10
	// seenTTL is how long a message's id is remembered: longer than a bid may be passed on, with the clocks' tolerance
	// on both sides.
	seenTTL = 6 * time.Minute
	// perMinute is the default rate of one renter: an auction announces its bid a few times, and fleets run several.
	perMinute = 30
)

// meshes are the degrees of the mesh. Bids are shorter than 1 KiB, and with 4 neighbours all of 100 peers were reached
// with half the copies of 6 (measured 2026-11-30); a hub stands between many and has the bandwidth.
var meshes = map[bool]struct{ d, low, high, out, score int }{
	false: {d: 5, low: 4, high: 8, out: 1, score: 3},
	true:  {d: 8, low: 6, high: 12, out: 3, score: 4},
}

// options returns the library's options.
func options(h *p2p.Host) []pubsub.Option {
	hub := h.Profile() == p2p.Hub
	mesh := meshes[hub]
	params := pubsub.DefaultGossipSubParams()
	params.D, params.Dlo, params.Dhi, params.Dout, params.Dscore = mesh.d, mesh.low, mesh.high, mesh.out, mesh.score
	params.HistoryLength, params.HistoryGossip = 6, 3
	// Peers that a stranger names are tried only if the stranger has delivered bids before. On a test network everybody
	// may name others, or a fresh crowd around one hub would not find itself.
	acceptPX := 1.0
	if h.Testnet() {
		acceptPX = 0
	}
	params.PrunePeers = 8 // peers told on leaving a full hub, for it is by them that a crowd finds itself
	return []pubsub.Option{
		// One signature a bid, our own: it halves the work of a message. Without authors the library's message id
		// would be the same for all, so it needs another.
		pubsub.WithMessageSignaturePolicy(pubsub.StrictNoSign), pubsub.WithNoAuthor(), pubsub.WithMessageIdFn(messageID),
		// A mesh takes seconds to form; without flooding, what is published before is lost for good, without an error.
		pubsub.WithFloodPublish(true),
		pubsub.WithGossipSubParams(params), pubsub.WithPeerExchange(hub),
		pubsub.WithPeerOutboundQueueSize(queue), pubsub.WithValidateQueueSize(queue), pubsub.WithMaxMessageSize(maxMessage),
		pubsub.WithSeenMessagesTTL(seenTTL), pubsub.WithSubscriptionFilter(topicFilter{prefix: prefix(h.Network())}),
		pubsub.WithPeerScore(peerScore(h.Testnet()), &pubsub.PeerScoreThresholds{
			GossipThreshold: -100, PublishThreshold: -200, GraylistThreshold: -400, AcceptPXThreshold: acceptPX, OpportunisticGraftThreshold: 1,
		}),
	}
}

func messageID(m *pb.Message) string {
	h := sha256.New()
	h.Write([]byte(m.GetTopic()))
	h.Write(m.GetData())
	return string(h.Sum(nil)[:20])
}

// peerScore punishes what cannot be an accident. Nobody is punished for silence: topics of bids are sparse.
func peerScore(testnet bool) *pubsub.PeerScoreParams {
	p := &pubsub.PeerScoreParams{
		Topics:           make(map[string]*pubsub.TopicScoreParams),
		TopicScoreCap:    20,
		AppSpecificScore: func(peer.ID) float64 { return 0 },
		// More than 16 neighbours behind one address are suspicious; a rack behind a NAT stays below.
		IPColocationFactorWeight: -5, IPColocationFactorThreshold: 16,
		// Broken promises and graft floods.
		BehaviourPenaltyWeight: -10, BehaviourPenaltyThreshold: 6, BehaviourPenaltyDecay: 0.9,
		DecayInterval: time.Second, DecayToZero: 0.01, RetainScore: time.Hour, SeenMsgTTL: seenTTL,
	}
	if testnet {
		p.IPColocationFactorWeight, p.IPColocationFactorThreshold = 0, 0 // all peers share one address
	}
	return p
}

// topicScore is the same for every topic. Five messages that can only be the forwarder's fault within about a minute
// make 25 × -20 = -500, which is past the graylist.
func topicScore() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{
		TopicWeight: 1, SkipAtomicValidation: true,
		TimeInMeshWeight: 0.01, TimeInMeshQuantum: time.Second, TimeInMeshCap: 100,
		FirstMessageDeliveriesWeight: 0.1, FirstMessageDeliveriesDecay: 0.99, FirstMessageDeliveriesCap: 50,
		InvalidMessageDeliveriesWeight: -20, InvalidMessageDeliveriesDecay: 0.99,
	}
}
