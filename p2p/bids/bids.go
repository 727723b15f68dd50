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
// Every peer that passes a bid on has checked it before: signature, form, times, replay, and its renter's rate. What is
// dropped is counted by reason ([Stats]). Offers never travel this way: they are direct and private.
//
// The main type is [Gossip]. It is used by node, and is safe for concurrent use.
//
// History: 2026-11-30 topics and messages version 1.
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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

var (
	// ErrNobody means that no connected peer listens on a topic of the bid.
	ErrNobody = errors.New("nobody listens")
	// ErrLight means that a light client was asked to carry bids of others.
	ErrLight = errors.New("a light client carries no bids of others")
)

const (
	// publishWait is how long Publish waits for a first listener: a peer tells its topics right after the handshake, so
	// two round trips between continents.
	publishWait  = 300 * time.Millisecond
	publishCheck = 20 * time.Millisecond
)

// Options set up a [Gossip].
type Options struct {
	Host      *p2p.Host
	PerMinute int // bids a minute that one renter may announce, and as many at once; 0 = 30

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported
}

// Gossip is this peer's part in spreading bids.
type Gossip struct {
	host    *p2p.Host
	pubsub  *pubsub.PubSub
	log     *slog.Logger
	metrics *metrics
	guard   *guard
	ctx     context.Context // ends with Close; pubsub runs under it
	cancel  context.CancelFunc
	readers sync.WaitGroup

	mu     sync.Mutex
	closed bool
	topics map[Topic]*pubsub.Topic
}

// New starts gossip on the host. [Gossip.Close] must come before the host's.
func New(o Options) (*Gossip, error) {
	if o.Host == nil {
		return nil, errors.New("start gossip: no host")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.PerMinute <= 0 {
		o.PerMinute = perMinute
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("start gossip: %w", err)
	}
	g := &Gossip{
		host: o.Host, log: o.Logger, metrics: m, topics: make(map[Topic]*pubsub.Topic),
		guard: newGuard(o.Host.NetworkID(), o.PerMinute),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.pubsub, err = pubsub.NewGossipSub(g.ctx, o.Host.Libp2p(), options(o.Host)...); err != nil {
		g.cancel()
		m.unregister()
		return nil, fmt.Errorf("start gossip: %w", err)
	}
	return g, nil
}

// Close stops gossip and closes the channels of [Gossip.Subscribe].
func (g *Gossip) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
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
		return g.validate(t, from, m)
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
	From     attest.Key // the neighbour that passed it on, seldom the renter
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
	once := newSeen()
	var wg sync.WaitGroup
	for i, s := range subs {
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
	defer s.Cancel()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return
		}
		h, ok := m.ValidatorData.(checked)
		if !ok || m.ReceivedFrom == g.host.Libp2p().ID() {
			continue
		}
		from, err := p2p.KeyOf(m.ReceivedFrom)
		if err != nil || !once.add(announcement{renter: h.bid.Renter, request: h.bid.Request, seq: h.bid.Seq}, until(h.bid), time.Now()) {
			continue
		}
		select {
		case out <- Heard{Envelope: h.envelope, Bid: h.bid, From: from, Topic: t}:
			g.metrics.hear()
		default:
			g.drop(reasonQueue, from)
		}
	}
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

// Publish announces a bid of this peer on the topics of classes and places; no places mean market.AnyPlace. It returns
// how many peers known here listen on them, which is not yet that one of them answers. If there is none, it waits
// up to 300 ms for one, since a peer that has just connected is still telling its topics, and then returns [ErrNobody].
// A bid is announced again by signing it with a higher sequence.
func (g *Gossip) Publish(ctx context.Context, bid attest.Envelope, classes, places []string) (heard int, err error) {
	b, err := attest.MarshalEnvelope(bid)
	if err != nil {
		return 0, fmt.Errorf("publish bid: %w", err)
	}
	if len(b) > market.MaxBidBytes {
		return 0, fmt.Errorf("publish bid: %d bytes, at most %d", len(b), market.MaxBidBytes)
	}
	if _, err := market.OpenBid(bid, g.host.NetworkID(), time.Now()); err != nil {
		return 0, fmt.Errorf("publish bid: %w", err)
	}
	var topics []*pubsub.Topic
	for _, t := range topicsOf(classes, places) {
		joined, err := g.join(t)
		if err != nil {
			return 0, fmt.Errorf("publish bid: topic %s: %w", t, err)
		}
		topics = append(topics, joined)
	}
	heard, err = awaitListeners(ctx, topics)
	if err != nil {
		return 0, fmt.Errorf("publish bid: %w", err)
	}
	for _, t := range topics {
		if len(t.ListPeers()) == 0 {
			continue
		}
		if err := t.Publish(ctx, b); err != nil {
			return 0, fmt.Errorf("publish bid on %s: %w", t, err)
		}
	}
	return heard, nil
}

// awaitListeners waits a bounded time for a peer on one of the topics and returns how many there are.
func awaitListeners(ctx context.Context, topics []*pubsub.Topic) (int, error) {
	deadline := time.NewTimer(publishWait)
	defer deadline.Stop()
	check := time.NewTicker(publishCheck)
	defer check.Stop()
	for {
		peers := make(map[peer.ID]bool)
		for _, t := range topics {
			for _, id := range t.ListPeers() {
				peers[id] = true
			}
		}
		if len(peers) > 0 {
			return len(peers), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-deadline.C:
			return 0, ErrNobody
		case <-check.C:
		}
	}
}
