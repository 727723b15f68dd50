package hello

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// statement signs what this peer says of itself now.
func (s *Service) statement() (attest.Envelope, error) {
	now := time.Now()
	v := self{
		Boot: s.boot, Clock: now.UnixMilli(), Reach: s.host.Reach().Verdict, Place: s.place(), Agent: s.agent,
		Light: s.host.Profile() == p2p.Light,
	}
	s.mu.Lock()
	s.seq++
	v.Seq, v.Twins = s.seq, s.twins.boots(now)
	s.mu.Unlock()
	return s.signer.Sign(Domain, v)
}

// greet says hello to a connected peer and takes in the answer.
func (s *Service) greet(ctx context.Context, key attest.Key) {
	if !s.begin(key) {
		s.greeted(key)
		return
	}
	result, again, err := s.exchange(ctx, key)
	s.greeted(key)
	if ctx.Err() != nil {
		return
	}
	s.metrics.out(result)
	switch {
	case result == foreign:
		s.trouble(key, err)
	case result == failed:
		s.log.Error("no hello could be made", "err", err)
	case err != nil:
		s.log.Debug("hello without a valid answer", "peer", key, "result", string(result), "err", err)
	}
	if again {
		s.enqueue(key, true)
	}
}

// begin notes the greeting and reports whether there is somebody to greet.
func (s *Service) begin(key attest.Key) bool {
	if s.host.Path(key) == p2p.PathNone {
		return false
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.peers.get(key, now, s.host.Connected); v != nil {
		v.greeted = now
	}
	return true
}

// trouble notes why a peer was not understood, and logs it when that is news.
func (s *Service) trouble(key attest.Key, err error) {
	s.mu.Lock()
	v := s.peers.m[key]
	news := v != nil && v.met.Trouble != err.Error()
	if news {
		v.met.Trouble = err.Error()
	}
	s.mu.Unlock()
	if news {
		level := slog.LevelDebug // who dials back for others, or looks out, does so under an identity that serves nothing
		if errors.Is(err, p2p.ErrMajor) {
			level = slog.LevelInfo
		}
		s.log.Log(context.Background(), level, "peer cannot be understood", "peer", key, "err", err)
	}
}

func (s *Service) exchange(ctx context.Context, key attest.Key) (r result, again bool, err error) {
	e, err := s.statement()
	if err != nil {
		return failed, false, err
	}
	q := request{Self: e, Few: len(s.host.Libp2p().Network().Peers()) < few}
	s.mu.Lock()
	q.Want = s.watch.pick(key)
	s.mu.Unlock()
	if err := q.Validate(); err != nil {
		return failed, false, err
	}
	stream, err := s.host.Open(ctx, key, nil, Protocol)
	switch {
	case errors.Is(err, p2p.ErrProtocol):
		return foreign, false, err
	case err != nil:
		return broken, false, err
	}
	// Reset frees a wait when ctx ends; after Close it does nothing.
	defer context.AfterFunc(ctx, stream.Reset)()
	var a answer
	sent := time.Now()
	if err = stream.Send(q); err == nil {
		_ = stream.CloseWrite() // fails where the peer has answered and left already; the answer decides
		err = stream.RecvMax(&a, maxAnswer)
	}
	trip := time.Since(sent)
	if err != nil {
		stream.Reset()
		if errors.Is(err, p2p.ErrFrame) {
			return malformed, false, err
		}
		return broken, false, err
	}
	_ = stream.Close() // what could go wrong no longer matters: the answer is here
	again, err = s.heardTwin(key, a.Twin)
	if err != nil {
		return signature, false, err
	}
	s.heard(key, stream.RemoteAddr(), q, a, sent, trip)
	return answered, again, nil
}

// heard takes in a valid answer.
func (s *Service) heard(key attest.Key, addr string, q request, a answer, sent time.Time, trip time.Duration) {
	if q.Few {
		s.heardPeers(key, addr, a.Peers)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.heard(a.Seen, Sighting{Observer: key, Range: rangeOf(addr), Place: a.Place, At: now})
	v := s.peers.get(key, now, s.host.Connected)
	if v == nil {
		s.metrics.forgotten.Inc()
		return
	}
	v.meet(now, a.Agent, a.Reach, a.Place, a.Light)
	v.met.Offset, v.met.RoundTrip = offsetOf(a.Clock, sent, trip), max(trip, 1)
	if trip <= voteMaxTrip {
		v.vote = vote{offset: v.met.Offset, from: rangeOf(addr), at: now}
	}
}

// meet notes what the peer says of itself, in either direction.
func (v *peerState) meet(now time.Time, agent string, reach market.Reach, place market.Place, light bool) {
	m := &v.met
	m.At, m.Agent, m.Reach, m.Place, m.Light, m.Trouble = now, agent, reach, place, light, ""
}
