package p2p_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/find"
	"github.com/lacuna-network/lacuna/p2p/hello"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// served is one protocol that a peer serves.
type served struct {
	p2p.Protocol
	// honest does with the victim, from a new host, what the protocol is for.
	honest func(v *victim, h *p2p.Host) error
	// uncounted is set where what is malformed is counted by the caller of the package, which is not here.
	uncounted bool
}

// servedProtocols is every protocol there is; TestProtocolsAreKnown holds that. That of p2p/bids is not exported.
func servedProtocols() []served {
	return []served{
		{Protocol: hello.Protocol, honest: sayHello},
		{Protocol: blob.Protocol, honest: fetchBlob},
		{Protocol: work.Protocol, honest: beginWork, uncounted: true},
		{Protocol: deal.BidProtocol, honest: func(v *victim, h *p2p.Host) error {
			return v.deal(h, func(d *deal.Service) error {
				_, ok, err := d.SendBid(v.ctx, v.Key(), nil, v.sign(h, market.BidDomain, markettest.Bid(h.Key())))
				return need(ok, err)
			})
		}},
		{Protocol: deal.AnswerProtocol, honest: func(v *victim, h *p2p.Host) error {
			return v.deal(h, func(d *deal.Service) error {
				code, err := d.SendAnswer(v.ctx, v.Key(), nil, v.sign(h, market.OfferDomain, markettest.Offer(h.Key(), attest.Sum(nil))))
				return need(code == deal.OK, err)
			})
		}},
		{Protocol: deal.AwardProtocol, honest: func(v *victim, h *p2p.Host) error {
			return v.deal(h, func(d *deal.Service) error {
				_, err := d.SendAward(v.ctx, v.Key(), nil, v.sign(h, market.AwardDomain, "a lease"), []byte("terms"))
				return err
			})
		}},
		{Protocol: deal.OutcomeProtocol, honest: func(v *victim, h *p2p.Host) error {
			return v.deal(h, func(d *deal.Service) error {
				s, err := d.SendOutcome(v.ctx, v.Key(), nil, deal.Ending{Outcome: v.sign(h, market.OutcomeRenterDomain, "an outcome")})
				return need(s.Code == deal.OK, err)
			})
		}},
		{Protocol: find.PutProtocol, honest: putAsk},
		{Protocol: find.GetProtocol, honest: getAsk},
		{Protocol: p2p.Protocol{Name: "publish", Major: 1, Timeout: 2 * time.Second, MaxIn: 256, MaxPerPeer: 4, PerMinute: 60}, honest: publishBid},
	}
}

func need(ok bool, err error) error {
	if err == nil && !ok {
		err = errors.New("not served as asked")
	}
	return err
}

// victim is a peer that serves all protocols.
type victim struct {
	*p2p.Host
	t       *testing.T
	ctx     context.Context
	net     *p2ptest.Network
	reg     *prometheus.Registry
	file    attest.Digest // that it serves
	closers []func()
	dir     string
}

const hostileClass = "nv-24g"

func newVictim(t *testing.T, dir string) *victim {
	v := &victim{t: t, ctx: t.Context(), net: p2ptest.New(t, 0, p2ptest.Options{Latency: hostileRTT / 2}), reg: prometheus.NewRegistry(), dir: dir}
	v.Host = v.net.Add(p2p.Options{Profile: p2p.Hub, Registerer: v.reg})
	v.closers = append(v.closers, v.net.Close)
	key := p2ptest.Key(0)
	h, err := hello.New(hello.Options{Host: v.Host, Signer: attest.NewSigner(key, v.NetworkID()), Registerer: v.reg})
	v.must(err)
	v.closers = append(v.closers, h.Close)
	f, err := find.New(find.Options{Host: v.Host, Mode: find.Server, Registerer: v.reg})
	v.must(err)
	v.closers = append(v.closers, func() { v.must(f.Close()) })
	_ = f.Publish(v.ctx, v.ask(v.Host)) // it is alone, and has its own ask all the same
	b, err := bids.New(bids.Options{Host: v.Host, Registerer: v.reg})
	v.must(err)
	v.closers = append(v.closers, func() { v.must(b.Close()) })
	_, err = b.Subscribe(v.ctx, bids.TopicsFor(hostileClass, market.Place{})...)
	v.must(err)
	store, err := blob.OpenStore(filepath.Join(dir, "victim"))
	v.must(err)
	v.file, _, err = store.Put(v.ctx, strings.NewReader("a file"))
	v.must(err)
	s, err := blob.New(blob.Options{Host: v.Host, Store: store, Registerer: v.reg, Allow: func(attest.Key, attest.Digest) bool { return true }})
	v.must(err)
	v.closers = append(v.closers, s.Close)
	v.serveWork()
	v.serveDeals(attest.NewSigner(key, v.NetworkID()))
	return v
}

func (v *victim) serveWork() {
	work.Serve(v.Host, func(ctx context.Context, s *work.Session) {
		for {
			if _, err := s.Recv(); err != nil {
				return
			}
			if err := s.Send(work.Frame{Ready: &work.Ready{StartedAt: 1}}); err != nil {
				return
			}
		}
	})
}

func (v *victim) serveDeals(signer attest.Signer) {
	d, err := deal.New(deal.Options{Host: v.Host, Registerer: v.reg,
		Bid: func(context.Context, attest.Key, attest.Envelope) (attest.Envelope, bool) {
			return v.sign(v.Host, market.DeclineDomain, markettest.Decline(v.Key(), attest.Sum(nil))), true
		},
		Answer: func(context.Context, attest.Key, attest.Envelope) deal.Code { return deal.OK },
		Award: func(_ context.Context, _ attest.Key, award attest.Envelope, _ []byte) (attest.Envelope, error) {
			return signer.SignBytes(market.AcceptDomain, award.Payload), nil
		},
		Outcome: func(context.Context, attest.Key, deal.Ending) deal.Settlement { return deal.Settlement{Code: deal.OK} },
	})
	v.must(err)
	v.closers = append(v.closers, d.Close)
}

func (v *victim) close() {
	for _, f := range slices.Backward(v.closers) {
		f()
	}
}

func (v *victim) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// signer returns what signs for the host, whose key is that of its number.
func (v *victim) signer(h *p2p.Host) attest.Signer {
	i := slices.Index(v.net.Hosts(), h)
	return attest.NewSigner(p2ptest.Key(i), v.NetworkID())
}

func (v *victim) sign(h *p2p.Host, d attest.Domain, what any) attest.Envelope {
	e, err := v.signer(h).Sign(d, what)
	if err != nil {
		panic(err) // in a handler, which the host catches
	}
	return e
}

func (v *victim) ask(h *p2p.Host) attest.Envelope {
	a := markettest.Ask(h.Key())
	a.IssuedAt, a.ExpiresAt = time.Now().UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
	return v.sign(h, market.AskDomain, a)
}

func (v *victim) deal(h *p2p.Host, f func(*deal.Service) error) error {
	d, err := deal.New(deal.Options{Host: h})
	if err != nil {
		return err
	}
	defer d.Close()
	return f(d)
}

func sayHello(v *victim, h *p2p.Host) error {
	s, err := hello.New(hello.Options{Host: h, Signer: v.signer(h)})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(v.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	time.Sleep(time.Second)
	synctest.Wait()
	_, ok := s.Met(v.Key())
	cancel()
	return need(ok, <-ended)
}

func fetchBlob(v *victim, h *p2p.Host) error {
	store, err := blob.OpenStore(filepath.Join(v.dir, strconv.Itoa(len(v.net.Hosts()))))
	if err != nil {
		return err
	}
	s, err := blob.New(blob.Options{Host: h, Store: store})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Fetch(v.ctx, v.Key(), nil, v.file, 100, nil)
}

func beginWork(v *victim, h *p2p.Host) error {
	s, err := work.Open(v.ctx, h, v.Key(), nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(work.Frame{Start: &work.Start{Lease: attest.Digest{1}}}); err != nil {
		return err
	}
	f, err := s.Recv()
	return need(f.Ready != nil, err)
}

func putAsk(v *victim, h *p2p.Host) error {
	f, err := find.New(find.Options{Host: h, Mode: find.Client})
	if err != nil {
		return err
	}
	return errors.Join(f.Publish(v.ctx, v.ask(h)), f.Close())
}

func getAsk(v *victim, h *p2p.Host) error {
	f, err := find.New(find.Options{Host: h, Mode: find.Client})
	if err != nil {
		return err
	}
	n := 0
	for range f.Lookup(v.ctx, find.Query{Limit: 1}) {
		n++
	}
	return need(n == 1, f.Close())
}

func publishBid(v *victim, h *p2p.Host) error {
	g, err := bids.New(bids.Options{Host: h})
	if err != nil {
		return err
	}
	b := markettest.Bid(h.Key())
	b.Class, b.Simulated = "nv", false
	b.IssuedAt, b.AnnounceUntil, b.ValidUntil = time.Now().UnixMilli(), time.Now().Add(30*time.Second).UnixMilli(), time.Now().Add(time.Minute).UnixMilli()
	n, err := g.Publish(v.ctx, v.sign(h, market.BidDomain, b), []string{hostileClass}, nil)
	return errors.Join(need(n > 0, err), g.Close())
}
