package bids

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/p2p"
)

const (
	// hubTimeout bounds a stream of the publish protocol.
	hubTimeout = 2 * time.Second
	// hubPatience is how long a hub waits for the request, which a client sends along with the opening of the stream.
	hubPatience = time.Second
)

// publishing returns the publish protocol. One exchange per announcement and hub, with room for as many again.
func publishing(perMinute int) p2p.Protocol {
	return p2p.Protocol{Name: "publish", Major: 1, Timeout: hubTimeout, MaxIn: 256, MaxPerPeer: 4, PerMinute: 2 * perMinute}
}

// request asks a hub to publish a bid on the topics of classes and places.
type request struct {
	Bid     attest.Envelope `cbor:"1,keyasint"`
	Classes []string        `cbor:"2,keyasint"`
	Places  []string        `cbor:"3,keyasint"`
}

// Validate reports a request that no peer would make.
func (q request) Validate() error {
	if err := q.Bid.Validate(); err != nil {
		return err
	}
	if len(q.Classes) == 0 || len(q.Classes) > len(gpu.Classes()) || len(q.Places) == 0 || len(q.Places) > maxPlaces {
		return errors.New("publish: number of classes or places out of range")
	}
	if n := len(topicsOf(q.Classes, q.Places)); n != len(q.Classes)*len(q.Places) {
		return errors.New("publish: a class or place twice")
	}
	for _, t := range topicsOf(q.Classes, q.Places) {
		if err := t.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// code is a hub's answer.
type code uint8

// The codes.
const (
	published code = iota + 1
	invalid        // the bid does not hold
	stale          // expired or from the future, by the hub's clock
	limited        // the renter, or all renters without evidence, announce too much
)

var codeNames = [...]string{published: "published", invalid: "invalid", stale: "expired or from the future", limited: "too many"}

// String returns what the code says.
func (c code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

func codeOf(why reason) code {
	switch {
	case why == "":
		return published
	case why.provable() || why == reasonReplayed:
		return invalid
	case why == reasonExpired || why == reasonFuture:
		return stale
	}
	return limited
}

// answer is a hub's answer. Peers are those it knows to listen on one of the topics, itself among them, the asker not.
type answer struct {
	Code  code   `cbor:"1,keyasint"`
	Peers uint64 `cbor:"2,keyasint,omitempty"`
}

// Validate reports an answer that no hub would give.
func (a answer) Validate() error {
	if a.Code < published || a.Code > limited || a.Peers > maxPeers || a.Code != published && a.Peers != 0 {
		return fmt.Errorf("publish: answer %d with %d peers", a.Code, a.Peers)
	}
	return nil
}

// maxPeers is more than the connections of any hub.
const maxPeers = 1 << 20

// Run has this peer publish for others as long as it is a hub ([p2p.Host.Hub]), until ctx ends. Without Run it stays as it
// was at [New].
func (g *Gossip) Run(ctx context.Context) error {
	for {
		changed := g.host.ReachChanged()
		g.follow()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// follow begins or ends the service.
func (g *Gossip) follow() {
	if !g.host.Hub() {
		g.host.Unhandle(g.protocol)
		return
	}
	g.host.Handle(g.protocol, g.serve)
}

// serve answers one request.
func (g *Gossip) serve(ctx context.Context, s *p2p.Stream) {
	from := p2p.PeerID(s.Peer())
	if g.faults.broke(from, time.Now()) {
		g.drop(reasonBlamed, from)
		s.Reset()
		return
	}
	_ = s.SetReadDeadline(time.Now().Add(hubPatience))
	var q request
	if err := s.Recv(&q); err != nil {
		switch {
		case errors.Is(err, p2p.ErrFrame), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			g.blame(reasonMalformed, from)
		case errors.Is(err, os.ErrDeadlineExceeded):
			g.blame(reasonStalled, from)
		} // else the stream was reset, or the connection is gone
		s.Reset()
		return
	}
	peers, why := g.publishFor(ctx, from, q)
	switch {
	case why == "":
		g.metrics.publish()
	case why.provable():
		g.blame(why, from)
	default:
		g.drop(why, from)
	}
	if err := s.Send(answer{Code: codeOf(why), Peers: uint64(peers)}); err != nil {
		s.Reset()
	}
}

// blame drops what can only be the sender's fault.
func (g *Gossip) blame(why reason, from peer.ID) {
	g.drop(why, from)
	g.faults.spend(from, time.Now())
}

// publishFor checks a bid as if it had come by gossip, publishes it, and returns how many peers listen. A bid that came by
// another way already is published all the same: the library passes each message on once.
func (g *Gossip) publishFor(ctx context.Context, from peer.ID, q request) (int, reason) {
	b, err := attest.MarshalEnvelope(q.Bid)
	if err != nil {
		return 0, reasonMalformed
	}
	c, why := g.guard.check(b, time.Now())
	if why != "" {
		return 0, why
	}
	listeners, self := make(map[peer.ID]bool), false
	for _, t := range topicsOf(q.Classes, q.Places) {
		joined, err := g.join(t)
		if err != nil {
			return 0, reasonFull // gossip is closing
		}
		ids := slices.DeleteFunc(joined.ListPeers(), func(id peer.ID) bool { return id == from })
		for _, id := range ids {
			listeners[id] = true
		}
		mine := g.listens(t)
		self = self || mine
		if len(ids) == 0 && !mine {
			continue // the library would remember the message, and not send it when somebody listens
		}
		// A small topic is flooded, since its mesh may not have formed. In a large one that would let a client of 1 KiB
		// make a hub send a thousand times as much.
		h := handed{checked: c, from: from, mesh: len(ids) > roleOf(g.host).high}
		if err := joined.Publish(ctx, b, pubsub.WithValidatorData(h)); err != nil {
			return 0, reasonFull
		}
	}
	if self {
		return len(listeners) + 1, ""
	}
	return len(listeners), ""
}
