package node_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// liar is a raw provider. It offers one simulated RTX 4090 to every bid and plays its script on each work stream.
type liar struct {
	*raw
	price  market.MicroUSD
	answer func(l *liar, bid attest.Digest, b market.Bid) (attest.Envelope, bool) // nil = offer
	accept func(l *liar, award attest.Envelope) attest.Envelope                   // nil = the right one
	script func(s *told)

	mu     sync.Mutex
	leases map[attest.Digest]market.Lease
	awards int
}

// newLiar starts the provider and connects it to the renter.
func newLiar(t *testing.T, r *nodetest.Peer, l *liar) *liar {
	t.Helper()
	if l.price == 0 {
		l.price = market.USD
	}
	l.leases = map[attest.Digest]market.Lease{}
	l.raw = newRaw(t, deal.Options{
		Bid: func(_ context.Context, _ attest.Key, e attest.Envelope) (attest.Envelope, bool) {
			b, err := attest.Decode[market.Bid](e)
			if err != nil {
				t.Errorf("bid: %v", err)
				return attest.Envelope{}, false
			}
			if l.answer != nil {
				return l.answer(l, e.ID(), b)
			}
			return l.sign(market.OfferDomain, l.offerTo(e.ID(), b)), true
		},
		Award: func(_ context.Context, _ attest.Key, award attest.Envelope, _ []byte) (attest.Envelope, error) {
			lease, err := attest.Decode[market.Lease](award)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.leases[award.ID()] = lease
			l.awards++
			if l.accept != nil {
				return l.accept(l, award), nil
			}
			return l.signer.SignBytes(market.AcceptDomain, award.Payload), err
		},
		Outcome: func(context.Context, attest.Key, deal.Ending) deal.Settlement { return deal.Settlement{Code: deal.OK} },
	})
	work.Serve(l.host, l.serve)
	l.connect(r)
	return l
}

func (l *liar) offerTo(bid attest.Digest, b market.Bid) market.Offer {
	return market.Offer{Version: 1, Bid: bid, Provider: l.signer.Key(), Price: l.price, IntervalMS: b.IntervalMS,
		FirmUntil: time.Now().Add(time.Minute).UnixMilli(), Nonce: random16(), Tier: b.Tier, Simulated: true,
		Devices: []market.OfferedDevice{{ID: market.NewDeviceID(l.signer.Key(), "x"), Model: "RTX 4090", Name: "NVIDIA GeForce RTX 4090", MemBytes: 24 << 30}}}
}

// told is one work stream of a liar.
type told struct {
	*liar
	s         *work.Session
	id        attest.Digest
	lease     market.Lease
	challenge receipt.Challenge
	tail      receipt.Tail
	at        int64 // end of the last receipt, Unix ms
	vouchers  chan attest.Envelope
	gone      chan struct{} // closed when the renter has ended the stream
}

func (l *liar) serve(_ context.Context, s *work.Session) {
	f, err := s.Recv()
	if err != nil || f.Start == nil {
		return
	}
	l.mu.Lock()
	lease := l.leases[f.Start.Lease]
	l.mu.Unlock()
	d := &told{liar: l, s: s, id: f.Start.Lease, lease: lease, challenge: f.Start.Challenge, tail: receipt.Tail{Lease: f.Start.Lease},
		at: time.Now().UnixMilli(), vouchers: make(chan attest.Envelope, 16), gone: make(chan struct{})}
	go func() {
		defer close(d.gone)
		for {
			f, err := s.Recv()
			if err != nil {
				return
			}
			if f.Voucher != nil {
				d.vouchers <- *f.Voucher
			}
		}
	}()
	l.script(d)
	<-d.gone // the renter decides when it has seen enough
}

func (d *told) send(f work.Frame) {
	if err := d.s.Send(f); err != nil {
		return // the renter has ended the stream already
	}
}

func (d *told) ready() { d.send(work.Frame{Ready: &work.Ready{StartedAt: time.Now().UnixMilli()}}) }

// receipt returns the honest receipt that comes next, over that time.
func (d *told) receipt(ms uint64, s receipt.State) receipt.Receipt {
	units := gpu.Usage{gpu.BillableDeviceMS: ms}
	return receipt.Receipt{Version: 1, Lease: d.id, Seq: d.tail.Seq + 1, Prev: d.tail.ID, T0: d.at, T1: d.at + int64(ms),
		MonoMS: d.tail.Last.MonoMS + ms, State: s, Units: units, Cum: d.tail.Last.Cum.Add(units), Challenge: d.challenge, Simulated: true}
}

// state signs and sends a receipt.
func (d *told) state(r receipt.Receipt) attest.Envelope {
	e := d.sign(receipt.Domain, r)
	d.tail = receipt.Tail{Lease: d.id, Seq: r.Seq, ID: e.ID(), Last: r}
	d.at = r.T1
	d.send(work.Frame{Receipt: &e})
	return e
}

// paid waits for the voucher of the last receipt.
func (d *told) paid() (market.Voucher, attest.Digest) {
	for {
		select {
		case e := <-d.vouchers:
			v, err := attest.Decode[market.Voucher](e)
			if err != nil {
				d.t.Error(err)
			}
			d.challenge = v.Challenge
			if v.AckSeq == d.tail.Seq {
				return v, e.ID()
			}
		case <-d.gone:
			return market.Voucher{}, attest.Digest{}
		}
	}
}

// outcome returns the honest outcome after voucher v.
func (d *told) outcome(code market.Code, v market.Voucher, id attest.Digest) market.Outcome {
	due, err := market.Due(d.lease.Price, d.tail.Last.Cum)
	if err != nil {
		d.t.Error(err)
	}
	o := market.Outcome{Version: 1, Lease: d.id, LastSeq: d.tail.Seq, Head: d.tail.ID, Due: due, Vouched: v.Total, Cum: d.tail.Last.Cum,
		EndedAt: time.Now().UnixMilli(), Code: code, Out: d.tail.Last.Out, LastVoucher: id}
	if code == market.CodeDone {
		o.ExitCode = new(uint64)
	}
	return o
}

// finish plays the end of a job with those outputs. The functions change what is sent.
func (d *told) finish(files []market.File, result func(*work.Result), outcome func(*market.Outcome)) {
	out := market.OutputsDigest(files)
	r := d.receipt(100, receipt.Final)
	r.Out = &out
	d.state(r)
	list, err := attest.Marshal(files)
	if err != nil {
		d.t.Error(err)
	}
	manifest := d.put(list)
	manifest.Path = "manifest"
	res := &work.Result{Code: market.CodeDone, ExitCode: new(uint64), Manifest: &manifest}
	if result != nil {
		result(res)
	}
	d.send(work.Frame{Result: res})
	v, id := d.paid()
	o := d.outcome(market.CodeDone, v, id)
	if outcome != nil {
		outcome(&o)
	}
	e := d.sign(market.OutcomeProviderDomain, o)
	d.send(work.Frame{Outcome: &e})
}

// file puts bytes among the liar's blobs under an output's path.
func (d *told) file(path, text string) market.File {
	f := d.put([]byte(text))
	f.Path = path
	return f
}

// below returns the content of a file below a folder, "" if it is not there.
func below(t *testing.T, dir, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
