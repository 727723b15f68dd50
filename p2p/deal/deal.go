// Package deal carries what two peers say to each other before and after a lease: offer, decline, award, accept,
// outcome. Client and server stand side by side.
//
// [New] registers the services that its [Options] have a function for; [Service.SendBid], [Service.SendAnswer],
// [Service.SendAward] and [Service.SendOutcome] are the other ends. Each exchange is one stream with one request frame
// and one answer frame, at most 5 s from dial to answer, and there is always an answer:
//
//	bid      renter → provider   {1: bid}                         → {1: offer or decline, absent = no answer}
//	answer   provider → renter   {1: offer or decline}            → {1: code}
//	award    renter → provider   {1: award, 2: terms}             → {1: accept or decline}
//	outcome  either → other      {1: outcome, 2: receipts ≤ 64}   → {1: code, 2: voucher, 3: outcome}
//
// The package holds each envelope to the sizes and domains of its place, and an accept to the bytes of its award. It
// verifies no signature and does not demand that the peer who sends an envelope is its signer: both ports and callers
// get the key of the sender and decide. It keeps nothing and repeats nothing. Input that is malformed is dropped with
// its stream and counted.
//
// It is used by node. All of it is safe for concurrent use.
//
// History: 2026-11-30 version 1 of all four.
package deal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// Timeout bounds each exchange, from dial to answer. An award holds its devices no longer, so that a later answer would
// be of no use.
const Timeout = market.HoldTime

// The protocols. Rates are per peer: a renter announces a demand again at most each few seconds, and a provider answers
// each announcement once. MaxIn of answers is what one auction in a large crowd brings at once; outcomes are few, and a
// message with receipts takes up to 10 MB while it is decoded.
var (
	BidProtocol     = p2p.Protocol{Name: "bid", Major: 1, Timeout: Timeout, MaxIn: 256, MaxPerPeer: 16, PerMinute: 120}
	AnswerProtocol  = p2p.Protocol{Name: "answer", Major: 1, Timeout: Timeout, MaxIn: 512, MaxPerPeer: 16, PerMinute: 240}
	AwardProtocol   = p2p.Protocol{Name: "award", Major: 1, Timeout: Timeout, MaxIn: 128, MaxPerPeer: 16, PerMinute: 120}
	OutcomeProtocol = p2p.Protocol{Name: "outcome", Major: 1, Timeout: Timeout, MaxIn: 32, MaxPerPeer: 4, PerMinute: 240}
)

// ErrUnanswered means that the peer was reached and gave no valid answer: it refused the stream, went away, or took too
// long. Whether it received and acted on the request is unknown.
var ErrUnanswered = errors.New("no answer")

// Options set up a [Service]. A port that is nil is not served, and peers are told so. Ports are called from many
// goroutines; their context ends after [Timeout] or when the host closes, and what they return later is lost.
type Options struct {
	Host *p2p.Host

	// Bid answers a bid with an offer or a decline; ok is false for no answer.
	Bid func(ctx context.Context, from attest.Key, bid attest.Envelope) (answer attest.Envelope, ok bool)
	// Answer takes in an offer or a decline.
	Answer func(ctx context.Context, from attest.Key, answer attest.Envelope) Code
	// Award answers an award with an accept over the same payload, or with a decline about it. An error is for faults
	// of this side: it is logged, and the peer gets no answer.
	Award func(ctx context.Context, from attest.Key, award attest.Envelope, terms []byte) (attest.Envelope, error)
	// Outcome takes in how a lease ended for the other side, with receipts that this side may lack, and returns what
	// this side has to say. The same outcome may come many times, with more receipts.
	Outcome func(ctx context.Context, from attest.Key, e Ending) Settlement

	Logger     *slog.Logger          // nil discards; input of peers is never logged above debug
	Registerer prometheus.Registerer // nil: counters are kept but not exported
}

// Service serves and sends. Use [New].
type Service struct {
	host    *p2p.Host
	log     *slog.Logger
	metrics *metrics
	serving []p2p.Protocol
}

// New registers the ports of o with the host. It starts no goroutine.
func New(o Options) (*Service, error) {
	if o.Host == nil {
		return nil, errors.New("start deals: no host")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("start deals: %w", err)
	}
	s := &Service{host: o.Host, log: o.Logger, metrics: m}
	if o.Bid != nil {
		serve(s, BidProtocol, func(ctx context.Context, from attest.Key, q bidRequest) (bidAnswer, error) {
			if e, ok := o.Bid(ctx, from, q.Bid); ok {
				return bidAnswer{Answer: &e}, nil
			}
			return bidAnswer{}, nil
		})
	}
	if o.Answer != nil {
		serve(s, AnswerProtocol, func(ctx context.Context, from attest.Key, q answerRequest) (ack, error) {
			return ack{Code: o.Answer(ctx, from, q.Answer)}, nil
		})
	}
	if o.Award != nil {
		serve(s, AwardProtocol, func(ctx context.Context, from attest.Key, q awardRequest) (awardAnswer, error) {
			e, err := o.Award(ctx, from, q.Award, q.Terms)
			return awardAnswer{Answer: e}, err
		})
	}
	if o.Outcome != nil {
		serve(s, OutcomeProtocol, func(ctx context.Context, from attest.Key, q Ending) (Settlement, error) {
			return o.Outcome(ctx, from, q), nil
		})
	}
	return s, nil
}

// Close ends the services for new streams. Exchanges that are under way end by themselves, at the latest with the host.
func (s *Service) Close() {
	for _, p := range s.serving {
		s.host.Unhandle(p)
	}
	s.metrics.unregister()
}

// serve registers f for the requests of p. Answers are checked as the other side will check them, so that a fault of
// our own shows on this side.
func serve[Q any, A attest.Validator](s *Service, p p2p.Protocol, f func(ctx context.Context, from attest.Key, q Q) (A, error)) {
	s.serving = append(s.serving, p)
	s.host.Handle(p, func(ctx context.Context, stream *p2p.Stream) {
		ctx, cancel := context.WithTimeout(ctx, p.Timeout)
		defer cancel()
		result, err := exchange(ctx, stream, f)
		s.metrics.count(p.Name, result)
		switch {
		case result == failed && ctx.Err() == nil: // else it is late, or the host closes
			s.log.Error("request was not answered", "protocol", p.Name, "peer", stream.Peer(), "err", err)
		case err != nil:
			s.log.Debug("request dropped", "protocol", p.Name, "peer", stream.Peer(), "err", err)
		}
		if err != nil {
			stream.Reset()
		}
	})
}

// exchange reads a request, asks f and writes the answer.
func exchange[Q any, A attest.Validator](ctx context.Context, stream *p2p.Stream, f func(ctx context.Context, from attest.Key, q Q) (A, error)) (result, error) {
	var q Q
	if err := stream.Recv(&q); err != nil {
		if errors.Is(err, p2p.ErrFrame) {
			return malformed, err
		}
		return broken, err
	}
	a, err := f(ctx, stream.Peer(), q)
	if err == nil {
		err = a.Validate()
	}
	if err != nil {
		return failed, err
	}
	if err := stream.Send(a); err != nil {
		return broken, err
	}
	return answered, nil
}

// ask sends q and reads the answer into a.
func (s *Service) ask(ctx context.Context, peer attest.Key, addrs []string, p p2p.Protocol, q attest.Validator, a any) error {
	if err := q.Validate(); err != nil {
		return fmt.Errorf("send %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	stream, err := s.host.Open(ctx, peer, addrs, p)
	if err != nil {
		return err
	}
	// Reset frees a wait when ctx ends; after Close it does nothing.
	defer context.AfterFunc(ctx, stream.Reset)()
	if err = stream.Send(q); err == nil {
		_ = stream.CloseWrite() // fails where the peer has answered and left already; the answer decides
		err = stream.Recv(a)
	}
	switch {
	case err == nil:
		// What could go wrong with closing no longer matters: the answer is here.
		_ = stream.Close()
		return nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = context.DeadlineExceeded
	case errors.Is(err, io.EOF):
		err = errors.New("peer closed the stream")
	}
	stream.Reset()
	return fmt.Errorf("send %s to %s: %w: %w", p.Name, peer.Short(), ErrUnanswered, err)
}
