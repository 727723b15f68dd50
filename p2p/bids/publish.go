package bids

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

const (
	// publishWait is how long Publish waits for a first listener: a peer tells its topics right after the handshake, so
	// two round trips between continents.
	publishWait  = 300 * time.Millisecond
	publishCheck = 20 * time.Millisecond
	// publishTimeout bounds Publish with hubs that do not answer.
	publishTimeout = time.Second
	// A hub's answer takes one round trip. Three and 100 ms leave room for a lost packet.
	hubRTTs, hubSlack, hubUnknown = 3, 100 * time.Millisecond, 500 * time.Millisecond
	// hubsAtOnce publish a bid, lest one of them keeps it to itself; those that fail, or know nobody who listens, are
	// replaced up to hubsMost.
	hubsAtOnce, hubsMost = 2, 4
)

// Publish announces a bid of this peer on the topics of classes and places; no places mean market.AnyPlace. It sends the
// bid to the neighbours that listen, and a light client, or a peer with few such neighbours, also has two hubs publish it,
// the nearest that it is connected to. It returns how many peers listen: those known here or, if that is more, those that
// one of the hubs knows. It is not yet that one of them answers, and a hub may lie about it.
//
// With no listener it waits up to 300 ms for one, since a peer that has just connected is still telling its topics; hubs
// that do not answer make that 1 s. Then it returns [ErrNobody]. A bid is announced again by signing it with a higher
// sequence.
func (g *Gossip) Publish(ctx context.Context, bid attest.Envelope, classes, places []string) (heard int, err error) {
	p, err := g.prepare(bid, classes, places)
	if err != nil {
		return 0, fmt.Errorf("publish bid: %w", err)
	}
	err = p.run(ctx)
	heard = p.heard()
	switch {
	case err != nil:
		return heard, fmt.Errorf("publish bid: %w", err)
	case heard > 0:
		return heard, nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("publish bid: %w", ctx.Err())
	case p.refused != 0:
		return 0, fmt.Errorf("publish bid: %w, and a hub refused it as %s", ErrNobody, p.refused)
	}
	return 0, fmt.Errorf("publish bid: %w", ErrNobody)
}

// publication is one announcement under way.
type publication struct {
	g       *Gossip
	data    []byte
	own     handed
	request request
	topics  []*pubsub.Topic // not yet sent on

	listeners map[peer.ID]bool // neighbours that listen
	asked     map[attest.Key]bool
	answers   chan hubAnswer
	running   int              // hubs that have not answered
	accepted  int              // hubs that have published it to somebody
	answered  map[peer.ID]bool // hubs that have published it, or would have
	best      int              // listeners that one of them knows
	refused   code
}

type hubAnswer struct {
	hub attest.Key
	answer
	err error
}

// prepare checks what is to be announced.
func (g *Gossip) prepare(bid attest.Envelope, classes, places []string) (*publication, error) {
	b, err := attest.MarshalEnvelope(bid)
	if err != nil {
		return nil, err
	}
	if len(b) > market.MaxBidBytes {
		return nil, fmt.Errorf("%d bytes, at most %d", len(b), market.MaxBidBytes)
	}
	opened, err := market.OpenBid(bid, g.host.NetworkID(), time.Now())
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		places = []string{market.AnyPlace}
	}
	p := &publication{
		g: g, data: b, own: handed{checked: checked{envelope: bid, bid: opened}, from: g.host.Libp2p().ID()},
		request:   request{Bid: bid, Classes: distinct(classes), Places: distinct(places)},
		listeners: make(map[peer.ID]bool), asked: make(map[attest.Key]bool), answered: make(map[peer.ID]bool),
		answers: make(chan hubAnswer, hubsMost),
	}
	for _, t := range topicsOf(classes, places) {
		joined, err := g.join(t)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", t, err)
		}
		p.topics = append(p.topics, joined)
	}
	return p, nil
}

func distinct(s []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(s)))
}

// run sends the bid until it is known who listens.
func (p *publication) run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	gone := time.NewTimer(publishWait)
	defer gone.Stop()
	check := time.NewTicker(publishCheck)
	defer check.Stop()
	for waiting := true; ; {
		if err := p.spread(ctx); err != nil {
			return err
		}
		p.ask(ctx, &asking)
		if p.running == 0 && (!waiting || p.heard() > 0) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-p.answers:
			p.take(a)
		case <-gone.C:
			waiting = false
		case <-check.C:
		}
	}
}

// spread sends the bid on the topics that have found listeners.
func (p *publication) spread(ctx context.Context) error {
	for i := 0; i < len(p.topics); {
		t := p.topics[i]
		ids := t.ListPeers()
		if len(ids) == 0 {
			i++ // the library would forget the message, without an error
			continue
		}
		for _, id := range ids {
			p.listeners[id] = true
		}
		if err := t.Publish(ctx, p.data, pubsub.WithValidatorData(p.own)); err != nil {
			return fmt.Errorf("on %s: %w", t, err)
		}
		p.topics = slices.Delete(p.topics, i, i+1)
	}
	return nil
}

// ask has hubs publish the bid, where the own neighbours may be too few.
func (p *publication) ask(ctx context.Context, asking *sync.WaitGroup) {
	if len(p.request.Classes) == 0 || !p.g.light() && len(p.listeners) >= roleOf(p.g.host).low {
		return
	}
	if p.running+p.accepted >= hubsAtOnce || len(p.asked) >= hubsMost {
		return
	}
	for _, hub := range p.g.hubs() {
		if p.running+p.accepted >= hubsAtOnce || len(p.asked) >= hubsMost {
			return
		}
		if p.asked[hub] {
			continue
		}
		p.asked[hub] = true
		p.running++
		asking.Go(func() {
			a, err := p.g.askHub(ctx, hub, p.request)
			p.answers <- hubAnswer{hub: hub, answer: a, err: err}
		})
	}
}

func (p *publication) take(a hubAnswer) {
	p.running--
	switch {
	case a.err != nil:
		p.g.log.Debug("hub did not publish the bid", "peer", a.hub, "err", a.err)
	case a.Code != published:
		p.refused = a.Code
	default:
		p.answered[p2p.PeerID(a.hub)] = true
		if a.Peers > 0 {
			p.accepted++
		}
		p.best = max(p.best, int(a.Peers))
	}
}

// heard is the number of peers that listen, none of them counted twice. Of a hub that has answered, its answer says
// whether it does more than pass bids on.
func (p *publication) heard() int {
	own := 0
	for id := range p.listeners {
		if !p.answered[id] {
			own++
		}
	}
	return max(p.best, own)
}

// hubs returns the connected peers that publish for others, the nearest first, and those of unknown distance last.
func (g *Gossip) hubs() []attest.Key {
	type hub struct {
		key attest.Key
		rtt time.Duration
	}
	var found []hub
	store := g.host.Libp2p().Peerstore()
	for _, id := range g.host.Libp2p().Network().Peers() {
		if spoken, err := store.SupportsProtocols(id, g.protocolID); err != nil || len(spoken) == 0 {
			continue
		}
		key, err := p2p.KeyOf(id)
		if err != nil {
			continue
		}
		rtt, ok := g.host.RTT(key)
		if !ok {
			rtt = publishTimeout
		}
		found = append(found, hub{key: key, rtt: rtt})
	}
	slices.SortStableFunc(found, func(a, b hub) int { return int(a.rtt - b.rtt) })
	keys := make([]attest.Key, len(found))
	for i, f := range found {
		keys[i] = f.key
	}
	return keys
}

// askHub has a hub publish the bid.
func (g *Gossip) askHub(ctx context.Context, hub attest.Key, q request) (answer, error) {
	patience := hubUnknown
	if rtt, ok := g.host.RTT(hub); ok {
		patience = hubRTTs*rtt + hubSlack
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := g.host.Open(ctx, hub, nil, g.protocol)
	if err != nil {
		return answer{}, err
	}
	defer context.AfterFunc(ctx, s.Reset)()
	var a answer
	if err = s.Send(q); err == nil {
		_ = s.CloseWrite() // fails where the hub has answered and left already; the answer decides
		err = s.Recv(&a)
	}
	if err != nil {
		s.Reset()
		return answer{}, errors.Join(err, ctx.Err())
	}
	_ = s.Close() // what could go wrong with closing no longer matters: the answer is here
	return a, nil
}
