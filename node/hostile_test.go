package node_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/work"
)

const networkName = "test-node"

// raw is a peer that speaks the protocols by hand, so that it can lie.
type raw struct {
	t      *testing.T
	signer attest.Signer
	host   *p2p.Host
	deal   *deal.Service
	files  *blob.Store
	blobs  *blob.Service
}

// newRaw starts a peer with these ports. Whoever asks may have all its files.
func newRaw(t *testing.T, o deal.Options) *raw {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{t: t, signer: attest.NewSigner(key, attest.NetworkID(networkName))}
	r.host, err = p2p.New(p2p.Options{Key: key, Network: networkName, Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.host.Close() })
	if r.files, err = blob.OpenStore(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	all := func(attest.Key, attest.Digest) bool { return true }
	if r.blobs, err = blob.New(blob.Options{Host: r.host, Store: r.files, Allow: all}); err != nil {
		t.Fatal(err)
	}
	o.Host = r.host
	if r.deal, err = deal.New(o); err != nil {
		t.Fatal(err)
	}
	return r
}

func newSigner(t *testing.T) attest.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return attest.NewSigner(key, attest.NetworkID(networkName))
}

func (r *raw) connect(p *nodetest.Peer) {
	r.t.Helper()
	if err := r.host.Connect(within(r.t, patience), p.Node.Key(), p.Node.Addrs()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) sign(d attest.Domain, v any) attest.Envelope {
	e, err := r.signer.Sign(d, v)
	if err != nil {
		r.t.Error(err)
	}
	return e
}

func (r *raw) put(b []byte) market.File {
	d, n, err := r.files.Put(context.Background(), bytes.NewReader(b))
	if err != nil {
		r.t.Error(err)
	}
	return market.File{Digest: d, Bytes: n}
}

func random16() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return b
}

// rawLease is a lease of a raw renter.
type rawLease struct {
	*raw
	p     *nodetest.Peer
	id    attest.Digest
	lease market.Lease
	award attest.Envelope
	terms []byte

	s        *work.Session
	tail     receipt.Tail
	voucher  *market.Voucher // last one made
	result   *work.Result
	outcome  *market.Outcome
	receipts []attest.Envelope
	log      []byte
}

// offer gets an offer to a bid for one device, or the decline.
func (r *raw) offer(p *nodetest.Peer, interval time.Duration) (o market.Offer, e attest.Envelope, d *market.Decline) {
	r.t.Helper()
	now := time.Now()
	bid := r.sign(market.BidDomain, market.Bid{Version: 1, Renter: r.signer.Key(), Request: random16(), Seq: 1, IssuedAt: now.UnixMilli(),
		AnnounceUntil: now.Add(10 * time.Second).UnixMilli(), ValidUntil: now.Add(time.Minute).UnixMilli(), Workload: market.WASM, Count: 1,
		Class: "any", DurationMS: 60_000, StartWithinMS: 1000, Tier: market.Silver, DeclineBP: 10_000, Simulated: true,
		IntervalMS: uint64(interval.Milliseconds()), ReplyTo: r.host.Addrs()})
	var ok bool
	var err error
	for range 5 { // on a slow machine a dial may take longer than its time
		if e, ok, err = r.deal.SendBid(within(r.t, patience), p.Node.Key(), p.Node.Addrs(), bid); err == nil {
			break
		}
	}
	if err != nil || !ok {
		r.t.Fatalf("SendBid = %v, %v", ok, err)
	}
	if e.Domain == market.DeclineDomain {
		decline, err := market.OpenDecline(e, r.signer.Network(), bid.ID())
		if err != nil {
			r.t.Fatal(err)
		}
		return o, e, &decline
	}
	if o, err = market.OpenOffer(e, r.signer.Network(), bid.ID(), now); err != nil {
		r.t.Fatal(err)
	}
	return o, e, nil
}

// draft returns a lease on an offer that runs the guest with these arguments.
func (r *raw) draft(p *nodetest.Peer, interval, survive time.Duration, args ...string) *rawLease {
	r.t.Helper()
	o, e, d := r.offer(p, interval)
	if d != nil {
		r.t.Fatalf("declined: %v", d.Failures)
	}
	module, err := buildGuest()
	if err != nil {
		r.t.Fatal(err)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		r.t.Fatal(err)
	}
	f := r.put(code)
	terms, err := attest.Marshal(market.Terms{Version: 1, Salt: random16(), Module: f.Digest, ModuleBytes: f.Bytes, Args: args, MemBytes: 64 << 20,
		LogBytes: 1 << 20, DiskBytes: 1 << 20, Engine: node.Engine, Outputs: []string{"/out"}})
	if err != nil {
		r.t.Fatal(err)
	}
	return &rawLease{raw: r, p: p, terms: terms, lease: market.Lease{Version: 1, Network: r.signer.Network(), Renter: r.signer.Key(),
		Provider: o.Provider, Bid: o.Bid, Offer: e.ID(), Work: attest.Sum(terms), Devices: []market.DeviceID{o.Devices[0].ID},
		Class: market.Deterministic, Price: o.Price, IntervalMS: o.IntervalMS, SurviveMS: uint64(survive.Milliseconds()), Budget: market.USD,
		IssuedAt: time.Now().UnixMilli(), RenterMark: random16(), OfferMark: o.Nonce, Tier: o.Tier, DurationMS: 600_000, Simulated: o.Simulated}}
}

// sendAward signs the lease and returns the provider's answer.
func (l *rawLease) sendAward() attest.Envelope {
	l.t.Helper()
	l.award = l.sign(market.AwardDomain, l.lease)
	l.id = l.award.ID()
	l.tail = receipt.Tail{Lease: l.id}
	answer, err := l.deal.SendAward(within(l.t, patience), l.p.Node.Key(), nil, l.award, l.terms)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer
}

// refusal returns the one reason of a refused award.
func (l *rawLease) refusal(answer attest.Envelope) market.Reason {
	l.t.Helper()
	d, err := market.OpenDecline(answer, l.signer.Network(), l.id)
	if err != nil || len(d.Failures) != 1 {
		l.t.Fatalf("answer %s: %v, %v", answer.Domain, d.Failures, err)
	}
	return d.Failures[0].Reason
}

// begin makes the lease and starts it.
func (l *rawLease) begin() {
	l.t.Helper()
	if answer := l.sendAward(); answer.Domain != market.AcceptDomain {
		l.t.Fatalf("award refused: %s", l.refusal(answer))
	}
	l.open()
}

// open opens the work stream, for the first time or again.
func (l *rawLease) open() {
	l.t.Helper()
	s, err := work.Open(l.t.Context(), l.host, l.p.Node.Key(), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.Abort)
	l.s = s
	l.send(work.Frame{Start: &work.Start{Lease: l.id, Challenge: random16(), Resume: l.tail.Seq > 0, Receipt: l.tail.Seq, LogOffset: uint64(len(l.log))}})
}

func (l *rawLease) send(f work.Frame) {
	l.t.Helper()
	if err := l.s.Send(f); err != nil {
		l.t.Fatal(err)
	}
}

// read takes frames until f returns false or the stream ends. It checks the chain on the way.
func (l *rawLease) read(f func(work.Frame) bool) error {
	l.t.Helper()
	for {
		fr, err := l.s.Recv()
		if err != nil {
			return err
		}
		switch {
		case fr.Receipt != nil:
			r, err := attest.Open[receipt.Receipt](*fr.Receipt, l.signer.Network(), receipt.Domain)
			if err != nil {
				l.t.Fatal(err)
			}
			if l.tail, err = l.tail.Accept(r, fr.Receipt.ID()); err != nil {
				l.t.Fatal(err)
			}
			l.receipts = append(l.receipts, *fr.Receipt)
		case fr.Log != nil:
			l.log = append(l.log, fr.Log.Data...)
		case fr.Result != nil:
			l.result = fr.Result
		case fr.Outcome != nil:
			o, err := market.OpenOutcome(*fr.Outcome, l.signer.Network(), l.id, l.lease)
			if err != nil {
				l.t.Fatal(err)
			}
			l.outcome = &o
		}
		if !f(fr) {
			return nil
		}
	}
}

// readTo reads up to that receipt.
func (l *rawLease) readTo(seq uint64) {
	l.t.Helper()
	if err := l.read(func(work.Frame) bool { return l.tail.Seq < seq }); err != nil {
		l.t.Fatalf("stream ended before receipt %d: %v", seq, err)
	}
}

// readToEnd reads up to the outcome and returns it.
func (l *rawLease) readToEnd() market.Outcome {
	l.t.Helper()
	if err := l.read(func(work.Frame) bool { return l.outcome == nil }); err != nil {
		l.t.Fatalf("stream ended before the outcome: %v", err)
	}
	return *l.outcome
}

// next returns the voucher for all that was read, unsigned.
func (l *rawLease) next() market.Voucher {
	l.t.Helper()
	v, err := market.NewVoucher(l.lease, l.tail, l.voucher, time.Now().UnixMilli(), random16())
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

func (l *rawLease) vouch(v market.Voucher) attest.Envelope { return l.sign(market.VoucherDomain, v) }

// pay sends the voucher for all that was read.
func (l *rawLease) pay() attest.Envelope {
	l.t.Helper()
	v := l.next()
	e := l.vouch(v)
	l.voucher = &v
	l.send(work.Frame{Voucher: &e})
	return e
}

func (l *rawLease) due() market.MicroUSD {
	d, err := market.Due(l.lease.Price, l.tail.Last.Cum)
	if err != nil {
		l.t.Error(err)
	}
	return d
}

// vouched asks the provider what it has of the lease until f is content.
func (l *rawLease) provider(f func(acknowledged uint64, vouched market.MicroUSD) bool) {
	l.t.Helper()
	eventually(l.t, func() error {
		v, err := l.p.Client.Lease(l.t.Context(), l.id.Hex())
		if err == nil && !f(v.Acknowledged, v.Vouched) {
			err = errors.New("provider has other vouchers than it should: " + v.Vouched.String())
		}
		return err
	})
}
