// Package bids spreads bids by gossip.
//
// There is a topic per class of device and place,
//
//	/lacuna/<network>/bids/1/<class>/<place>
//
// where a class is one of gpu.Classes and a place a continent or "any". A message is the envelope of one bid, at most
// [market.MaxBidBytes], and nothing else: the sender's name and a second signature are left out, and its id is
// SHA-256(topic ‖ message)[:20]. A provider subscribes to the topics of its devices ([TopicsFor]); a bid for 16 GB or
// more is published to that class and those above; a hub relays all topics of its places. A light client subscribes to
// nothing and publishes through those it is connected to.
//
// Every peer that passes a bid on has checked it before: signature, form, times, replay, its renter's rate, and that of
// all renters without evidence together. What is dropped is counted by reason ([Stats]). Offers never travel this way:
// they are direct and private.
//
// A peer with no or few neighbours in gossip has two hubs publish its bid, over the protocol publish/1, which also works
// on connections that carry signalling only. It is one stream with one request and one answer, at most 2 s:
//
//	{1: bid, 2: classes, 3: places} → {1: code, 2: peers that listen}
//
// The hub treats the bid as one that came by gossip. RATIONALE.md derives all numbers.
//
// The main type is [Gossip]. It is used by node, and is safe for concurrent use.
//
// History: 2026-11-30 topics and messages version 1, publish version 1.
package bids

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

var (
	// ErrNobody means that no peer is known to listen on a topic of the bid.
	ErrNobody = errors.New("nobody on this topic")
	// ErrLight means that a light client was asked to carry bids of others.
	ErrLight = errors.New("a light client carries no bids of others")
)

// Options set up a [Gossip].
type Options struct {
	Host      *p2p.Host
	PerMinute int // bids a minute that one renter may announce, and as many at once; 0 = 30

	// Score says what the owner thinks of a peer: 0 = nothing known, above 0 = there is evidence for it, so that its bids
	// do not share the room of the unknown, [HubScore] = it may name other peers, -100 to -400 = it is cut off step by
	// step. Gossip calls it many times for each message, from many goroutines: it must answer from memory and must not
	// call back. nil = nothing is known of anybody.
	Score func(attest.Key) float64

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported

	inspect pubsub.PeerScoreInspectFn // for tests: is told all scores each second
}

// Gossip is this peer's part in spreading bids.
type Gossip struct {
	host       *p2p.Host
	pubsub     *pubsub.PubSub
	log        *slog.Logger
	metrics    *metrics
	score      func(attest.Key) float64
	guard      *guard
	waste      *budgets // of neighbours whose messages are dropped though nobody is to blame
	faults     *budgets // of askers of the publish protocol
	protocol   p2p.Protocol
	protocolID protocol.ID
	ctx        context.Context // ends with Close; pubsub runs under it
	cancel     context.CancelFunc
	readers    sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	topics    map[Topic]*pubsub.Topic
	listening map[Topic]int // subscriptions that are read
}

// New starts gossip on the host, and publishes for others if they can reach it; [Gossip.Run] keeps to that later on.
// [Gossip.Close] must come before the host's.
func New(o Options) (*Gossip, error) {
	if o.Host == nil {
		return nil, errors.New("start gossip: no host")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.PerMinute <= 0 {
		o.PerMinute = ratePerMinute
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("start gossip: %w", err)
	}
	var known func(attest.Key) bool
	if o.Score != nil {
		known = func(k attest.Key) bool { return o.Score(k) > 0 }
	}
	r := roleOf(o.Host)
	strangers := r.strangers * float64(o.PerMinute) / ratePerMinute
	g := &Gossip{
		host: o.Host, log: o.Logger, metrics: m, score: o.Score,
		guard: newGuard(o.Host.NetworkID(), o.PerMinute, r, known),
		waste: newBudgets(strangers, crowdBurst*strangers), faults: newBudgets(1/faultPause.Seconds(), faultBurst),
		protocol: publishing(o.PerMinute), topics: make(map[Topic]*pubsub.Topic), listening: make(map[Topic]int),
	}
	g.protocolID = protocol.ID(fmt.Sprintf("/lacuna/%s/%s/%d", o.Host.Network(), g.protocol.Name, g.protocol.Major))
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.pubsub, err = pubsub.NewGossipSub(g.ctx, o.Host.Libp2p(), g.options(o.inspect)...); err != nil {
		g.cancel()
		m.unregister()
		return nil, fmt.Errorf("start gossip: %w", err)
	}
	g.follow()
	return g, nil
}

// Close stops gossip and closes the channels of [Gossip.Subscribe].
func (g *Gossip) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.host.Unhandle(g.protocol)
	g.cancel()
	g.readers.Wait()
	g.metrics.unregister()
	return nil
}

// join returns the library's topic, joined once. A light client joins in the way that tells nobody.
func (g *Gossip) join(t Topic) (*pubsub.Topic, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.New("gossip is closed")
	}
	if joined := g.topics[t]; joined != nil {
		return joined, nil
	}
	name := t.name(g.host.Network())
	var how []pubsub.TopicOpt
	if g.light() {
		how = append(how, pubsub.FanoutOnly())
	}
	// Registered before joining, so that no message slips by unchecked. Inline, since the check takes 0.1 ms and the
	// library would otherwise drop messages when its count of checks in flight is reached.
	check := func(_ context.Context, from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
		return g.validate(from, m)
	}
	if err := g.pubsub.RegisterTopicValidator(name, check, pubsub.WithValidatorInline(true)); err != nil {
		return nil, err
	}
	joined, err := g.pubsub.Join(name, how...)
	if err == nil {
		err = joined.SetScoreParams(topicScore())
	}
	if err != nil {
		return nil, errors.Join(err, g.pubsub.UnregisterTopicValidator(name))
	}
	g.topics[t] = joined
	return joined, nil
}

func (g *Gossip) light() bool { return g.host.Profile() == p2p.Light }

// Heard is a bid that came in, checked.
type Heard struct {
	Envelope attest.Envelope
	Bid      market.Bid
	From     attest.Key // the peer that passed it on, seldom the renter
	Topic    Topic
}

// Subscribe delivers the bids on the topics, each announcement once however many topics carry it, and none of this
// peer's own. The channel is closed when ctx ends or gossip closes. It holds 1,024 bids; when its reader lags behind
// that far, newer bids are dropped and counted.
func (g *Gossip) Subscribe(ctx context.Context, topics ...Topic) (<-chan Heard, error) {
	if g.light() {
		return nil, fmt.Errorf("subscribe to bids: %w", ErrLight)
	}
	var subs []*pubsub.Subscription
	fail := func(err error) (<-chan Heard, error) {
		for _, s := range subs {
			s.Cancel()
		}
		return nil, fmt.Errorf("subscribe to bids: %w", err)
	}
	for _, t := range topics {
		joined, err := g.join(t)
		if err != nil {
			return fail(fmt.Errorf("topic %s: %w", t, err))
		}
		s, err := joined.Subscribe(pubsub.WithBufferSize(queue))
		if err != nil {
			return fail(fmt.Errorf("topic %s: %w", t, err))
		}
		subs = append(subs, s)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fail(errors.New("gossip is closed"))
	}
	out := make(chan Heard, queue)
	once := newSeen(roleOf(g.host).memory)
	var wg sync.WaitGroup
	for i, s := range subs {
		g.listening[topics[i]]++
		wg.Go(func() { g.read(ctx, s, topics[i], once, out) })
	}
	g.readers.Go(func() { // ends when the readers above do
		wg.Wait()
		close(out)
	})
	return out, nil
}

// read passes on what one subscription brings until ctx or gossip ends.
func (g *Gossip) read(ctx context.Context, s *pubsub.Subscription, t Topic, once *seen, out chan<- Heard) {
	defer func() {
		s.Cancel()
		g.mu.Lock()
		g.listening[t]--
		g.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return
		}
		h, ok := m.ValidatorData.(handed)
		if !ok || h.from == g.host.Libp2p().ID() {
			continue
		}
		from, err := p2p.KeyOf(h.from)
		if err != nil {
			continue
		}
		if first, _, _ := once.note(announcementOf(h.bid), attest.Digest{}, until(h.bid), time.Now()); !first {
			continue
		}
		select {
		case out <- Heard{Envelope: h.envelope, Bid: h.bid, From: from, Topic: t}:
			g.metrics.hear()
		default:
			g.drop(reasonQueue, h.from)
		}
	}
}

// listens reports whether somebody reads the bids of the topic here.
func (g *Gossip) listens(t Topic) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listening[t] > 0
}

// Relay passes on the bids of the topics without reading them, as a hub does, until stop is called.
func (g *Gossip) Relay(topics ...Topic) (stop func(), err error) {
	if g.light() {
		return nil, fmt.Errorf("relay bids: %w", ErrLight)
	}
	var cancels []pubsub.RelayCancelFunc
	stop = func() {
		for _, c := range cancels {
			c()
		}
	}
	for _, t := range topics {
		joined, err := g.join(t)
		if err == nil {
			var c pubsub.RelayCancelFunc
			if c, err = joined.Relay(); err == nil {
				cancels = append(cancels, c)
				continue
			}
		}
		stop()
		return nil, fmt.Errorf("relay bids: topic %s: %w", t, err)
	}
	return stop, nil
}

// Open verifies and decodes a bid that came straight from its renter, or finds it among those verified before, whichever
// way they came. It returns the errors of [market.OpenBid].
func (g *Gossip) Open(bid attest.Envelope, now time.Time) (market.Bid, error) {
	b, err := attest.MarshalEnvelope(bid)
	if err != nil {
		return market.Bid{}, err
	}
	c, _, why := g.guard.open(b)
	if why != "" {
		return market.OpenBid(bid, g.host.NetworkID(), now) // the error in its words
	}
	return c.bid, c.bid.Fresh(now)
}
