package bids

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// CanSubscribe reports whether peers of the network may subscribe to that name.
func CanSubscribe(network, name string) bool {
	return topicFilter{prefix: prefix(network)}.CanSubscribe(name)
}

// Guard checks messages as a peer does that has seen none.
type Guard struct{ g *guard }

// NewGuard returns a guard of a peer that is no hub. known may be nil.
func NewGuard(network attest.Digest, perMinute int, known func(attest.Key) bool) Guard {
	return Guard{newGuard(network, perMinute, roles[false], known)}
}

// Check returns why a message is dropped, and whether its forwarder is to blame.
func (g Guard) Check(data []byte, now time.Time) (why string, blame bool) {
	_, r := g.g.check(data, now)
	return string(r), r.provable()
}

// Raw sends any bytes on a topic, past this peer's own checks.
func (g *Gossip) Raw(ctx context.Context, t Topic, data []byte) error {
	joined, err := g.pubsub.Join(t.name(g.host.Network()))
	if err != nil {
		return err
	}
	defer joined.Close()
	return joined.Publish(ctx, data)
}

// Inspect has f told the scores of all neighbours each second.
func (o *Options) Inspect(f func(map[peer.ID]float64)) { o.inspect = f }

// Attacker is a peer that takes part in gossip and checks nothing.
type Attacker struct {
	host   *p2p.Host
	pubsub *pubsub.PubSub
	cancel context.CancelFunc
	mu     sync.Mutex
	topics map[Topic]*pubsub.Topic
}

// NewAttacker makes an attacker of a host.
func NewAttacker(h *p2p.Host) (*Attacker, error) {
	ctx, cancel := context.WithCancel(context.Background())
	ps, err := pubsub.NewGossipSub(ctx, h.Libp2p(), pubsub.WithMessageSignaturePolicy(pubsub.StrictNoSign), pubsub.WithNoAuthor(),
		pubsub.WithMessageIdFn(messageID), pubsub.WithFloodPublish(true), pubsub.WithPeerOutboundQueueSize(queue), pubsub.WithValidateQueueSize(queue))
	return &Attacker{host: h, pubsub: ps, topics: make(map[Topic]*pubsub.Topic), cancel: cancel}, err
}

// Send sends any bytes to all neighbours that listen on the topic.
func (a *Attacker) Send(t Topic, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.topics[t] == nil {
		joined, err := a.pubsub.Join(t.name(a.host.Network()))
		if err != nil {
			return err
		}
		if _, err := joined.Relay(); err != nil { // to be taken into the mesh
			return err
		}
		a.topics[t] = joined
	}
	return a.topics[t].Publish(context.Background(), data)
}

// Close ends the attack.
func (a *Attacker) Close() { a.cancel() }

// Score returns the part of a neighbour's score that is not about gossip.
func (g *Gossip) Score(of attest.Key) float64 { return g.appScore(p2p.PeerID(of)) }

// PublishProtocol is the publish protocol at the default rate.
func PublishProtocol() p2p.Protocol { return publishing(ratePerMinute) }

// Request and Answer are the frames of the publish protocol.
type (
	Request = request
	Answer  = answer
)

// Thresholds of scores.
const (
	GossipBelow, PublishBelow, IgnoreBelow = gossipBelow, publishBelow, ignoreBelow
)

// Flood notes n announcements that live a minute. It returns how many found room, and whether one does afterwards.
func Flood(n int, now time.Time) (taken int, later bool) {
	s := newSeen(roles[false].memory)
	note := func(i int, now time.Time) bool {
		first, _, room := s.note(announcement{seq: uint64(i)}, attest.Digest{}, now.Add(time.Minute), now)
		return first && room
	}
	for i := range n {
		if note(i, now) {
			taken++
		}
	}
	return taken, note(n, now.Add(2*time.Minute))
}

// Announce publishes a signed bid of anybody, by gossip alone.
func (g *Gossip) Announce(ctx context.Context, t Topic, data []byte) error {
	joined, err := g.join(t)
	if err != nil {
		return err
	}
	c, _, why := g.guard.open(data)
	if why != "" {
		return errors.New(string(why))
	}
	return joined.Publish(ctx, data, pubsub.WithValidatorData(handed{checked: c, from: g.host.Libp2p().ID()}))
}

// Crowd bounds the bids of renters without evidence.
type Crowd struct{ c *crowd }

// NewCrowd returns a crowd that may announce that many bids a second.
func NewCrowd(perSecond float64) Crowd { return Crowd{newCrowd(perSecond)} }

// Admit reports whether a bid of that renter may pass.
func (c Crowd) Admit(renter attest.Key, now time.Time) bool { return c.c.admit(renter, now) }

// FillVerified puts n bids into the memory of verified ones, and returns how many it holds and whether it knows the last
// and the first.
func FillVerified(n int) (kept int, newest, oldest bool) {
	v := newVerified()
	for i := range n {
		v.put(attest.Digest{byte(i), byte(i >> 8), 1}, checked{})
	}
	_, newest = v.get(attest.Digest{byte(n - 1), byte((n - 1) >> 8), 1})
	_, oldest = v.get(attest.Digest{0, 0, 1})
	return len(v.bids), newest, oldest
}

// FillBudgets has n peers use up a budget of one, and returns how many it holds and whether it knows the last.
func FillBudgets(n int, now time.Time) (kept int, last bool) {
	b := newBudgets(0.1, 1)
	for i := range n {
		b.spend(peer.ID(strconv.Itoa(i)), now)
	}
	return len(b.left), b.broke(peer.ID(strconv.Itoa(n-1)), now)
}
