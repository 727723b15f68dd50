package find

import (
	"context"
	"errors"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// servePut keeps an ask that its provider brings. Nobody can bring another's, so nobody can bring an older one back.
func (f *Finder) servePut(_ context.Context, s *p2p.Stream) {
	var r putRequest
	if err := s.RecvMax(&r, market.MaxAskBytes+64); err != nil {
		f.refuse(s, "malformed", err)
		return
	}
	if r.Ask.Signer != s.Peer() { // before the signature, which costs more
		f.refuse(s, "foreign", errors.New("ask of another peer"))
		return
	}
	now := time.Now()
	a, err := openAsk(f.network, r.Ask, now)
	if err != nil {
		f.refuse(s, "invalid", err)
		return
	}
	switch err := f.store.add(a, r.Ask, p2p.AddrRange(s.RemoteAddr(), p2p.SiteV4, p2p.SiteV6), now); {
	case errors.Is(err, errOlder):
		f.metrics.stored.WithLabelValues("older").Inc()
		_ = s.Send(putAnswer{})
	case err != nil:
		f.metrics.stored.WithLabelValues("full").Inc()
		_ = s.Send(putAnswer{})
	default:
		f.metrics.stored.WithLabelValues("kept").Inc()
		_ = s.Send(putAnswer{Kept: true})
	}
}

// serveGet answers with asks that are kept here.
func (f *Finder) serveGet(_ context.Context, s *p2p.Stream) {
	var r getRequest
	if err := s.RecvMax(&r, maxRequest); err != nil {
		f.refuse(s, "malformed", err)
		return
	}
	f.metrics.served.WithLabelValues("get").Inc()
	asks := f.local(r, time.Now())
	for len(asks) > 0 {
		n := min(len(asks), perFrame)
		var p page
		for _, k := range asks[:n] {
			p.Asks = append(p.Asks, k.envelope)
		}
		if err := s.Send(p); err != nil {
			return // the asker has enough, or is gone
		}
		asks = asks[n:]
	}
}

// local answers a request from the store.
func (f *Finder) local(r getRequest, now time.Time) []kept {
	if r.Provider != nil {
		k, ok := f.store.get(*r.Provider, now)
		if !ok || !r.wants(r.Have)(&k) {
			return nil
		}
		return []kept{k}
	}
	return f.store.find(int(r.Limit), r.query(), now, r.wants(r.Have))
}

func (f *Finder) refuse(s *p2p.Stream, reason string, err error) {
	f.metrics.stored.WithLabelValues(reason).Inc()
	f.log.Debug("request refused", "peer", s.Peer(), "reason", reason, "err", err)
	s.Reset()
}
