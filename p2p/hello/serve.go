package hello

import (
	"context"
	"errors"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// serve answers one greeting. Whatever is wrong with it ends the stream without a word.
func (s *Service) serve(_ context.Context, stream *p2p.Stream) {
	r, err := s.answer(stream)
	s.metrics.in(r)
	if err != nil {
		stream.Reset()
		s.log.Debug("hello dropped", "peer", stream.Peer(), "result", string(r), "err", err)
	}
}

func (s *Service) answer(stream *p2p.Stream) (result, error) {
	var q request
	if err := stream.RecvMax(&q, maxRequest); err != nil {
		if errors.Is(err, p2p.ErrFrame) {
			return malformed, err
		}
		return broken, err
	}
	if q.Self.Signer != stream.Peer() { // one may show another's statement, but not greet with it
		return signature, attest.ErrSignature
	}
	if err := q.Self.Verify(s.host.NetworkID(), Domain); err != nil {
		return signature, err
	}
	said, err := attest.Decode[self](q.Self)
	if err != nil {
		return malformed, err
	}
	addr := stream.RemoteAddr()
	t, ok := s.take(stream.Peer(), said, q.Self, addr)
	if !ok {
		return replayed, errors.New("statement was said before")
	}
	a := answer{
		Reach: s.host.Reach().Verdict, Place: s.place(), Agent: s.agent, Light: s.host.Profile() == p2p.Light,
		Seen: s.roundTrips(q.Want), Twin: t,
	}
	if q.Few {
		a.Peers = s.tell(stream.Peer(), addr)
	}
	a.Clock = time.Now().UnixMilli()
	if err := a.Validate(); err != nil {
		return failed, err
	}
	if err := stream.Send(a); err != nil {
		return broken, err
	}
	return answered, nil
}

// take takes in a verified statement and returns what to show of a twin. It reports false for a statement that its
// process has gone beyond.
func (s *Service) take(key attest.Key, said self, e attest.Envelope, addr string) (*twin, bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.peers.get(key, now, s.host.Connected)
	if v == nil {
		s.metrics.forgotten.Inc()
		return nil, true
	}
	if !v.hear(said, e, addr, now) {
		return nil, false
	}
	v.meet(now, said.Agent, said.Reach, said.Place, said.Light)
	b, ok := v.other(said.Boot, now)
	if !ok {
		return nil, true
	}
	return &twin{Self: b.self, Addr: addrBytes(b.addr)}, true
}
