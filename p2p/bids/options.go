package bids

import (
	"crypto/sha256"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"

	"github.com/lacuna-network/lacuna/p2p"
)

// Numbers of gossip. RATIONALE.md derives them.
const (
	// queue is the length of every queue. With the library's 32, 300 messages at once lost 4 of 5 without an error.
	queue = 1024
	// maxMessage bounds one RPC; a bid is at most 1 KiB, and control messages travel along.
	maxMessage = 16 << 10
	// seenTTL is how long a message's id is remembered: longer than a bid may be passed on, with the clocks' tolerance
	// on both sides.
	seenTTL = 6 * time.Minute
	// ratePerMinute is the default rate of one renter: an auction announces its bid a few times, and fleets run several.
	ratePerMinute = 30
)

// role holds the numbers that differ between a hub and the others.
type role struct {
	d, low, high, out, score int     // degrees of the mesh
	strangers                float64 // bids a second of all renters without evidence together, at the default rate of one
	memory                   int     // announcements remembered
}

// roles are indexed by whether the peer is a hub. Bids are shorter than 1 KiB, and with 4 neighbours all of 100 peers were
// reached with half the copies of 6 (measured 2026-11-30); a hub stands between many and has the bandwidth.
var roles = map[bool]role{
	false: {d: 5, low: 4, high: 8, out: 1, score: 3, strangers: 50, memory: 1 << 15},
	true:  {d: 8, low: 6, high: 12, out: 3, score: 4, strangers: 200, memory: 1 << 17},
}

func roleOf(h *p2p.Host) role { return roles[h.Profile() == p2p.Hub] }

// options returns the library's options.
func (g *Gossip) options(inspect pubsub.PeerScoreInspectFn) []pubsub.Option {
	h, r := g.host, roleOf(g.host)
	hub := h.Profile() == p2p.Hub
	params := pubsub.DefaultGossipSubParams()
	params.D, params.Dlo, params.Dhi, params.Dout, params.Dscore = r.d, r.low, r.high, r.out, r.score
	params.HistoryLength, params.HistoryGossip = 6, 3
	params.PrunePeers = 8 // peers told on leaving a full hub, for it is by them that a crowd finds itself
	options := []pubsub.Option{
		// One signature a bid, our own: it halves the work of a message. Without authors the library's message id
		// would be the same for all, so it needs another.
		pubsub.WithMessageSignaturePolicy(pubsub.StrictNoSign), pubsub.WithNoAuthor(), pubsub.WithMessageIdFn(messageID),
		// A mesh takes seconds to form; without flooding, what is published before is lost for good, without an error.
		pubsub.WithFloodPublish(true),
		pubsub.WithGossipSubParams(params), pubsub.WithPeerExchange(hub),
		pubsub.WithPeerOutboundQueueSize(queue), pubsub.WithValidateQueueSize(queue), pubsub.WithMaxMessageSize(maxMessage),
		pubsub.WithSeenMessagesTTL(seenTTL), pubsub.WithSubscriptionFilter(topicFilter{prefix: prefix(h.Network())}),
		pubsub.WithAppSpecificRpcInspector(g.inspect),
		pubsub.WithPeerScore(g.peerScore(), thresholds(h.Testnet(), g.score != nil)),
	}
	if inspect != nil {
		options = append(options, pubsub.WithPeerScoreInspect(inspect, time.Second))
	}
	if !h.Testnet() {
		// For when checks cannot keep up: the library then refuses messages of those first whose messages were worth
		// least, before it remembers their ids.
		options = append(options, pubsub.WithPeerGater(pubsub.DefaultPeerGaterParams()))
	}
	return options
}

func messageID(m *pb.Message) string {
	h := sha256.New()
	h.Write([]byte(m.GetTopic()))
	h.Write(m.GetData())
	return string(h.Sum(nil)[:20])
}
