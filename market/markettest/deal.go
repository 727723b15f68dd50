package markettest

import (
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// Deal is one lease between two peers with all that was signed about it, in the order in which it happens: [NewDeal],
// then [Deal.Run] and [Deal.Pay] as often as wanted, then [Deal.End]. Fields may be read, and replaced to build a deal
// that is wrong.
type Deal struct {
	Renter, Provider attest.Signer
	Bid, Offer       attest.Envelope
	Award, Accept    attest.Envelope
	Terms            market.Terms
	Lease            market.Lease
	ID               attest.Digest // of the lease
	Tail             receipt.Tail  // after the last receipt
	Receipts         []attest.Envelope
	Vouchers         []attest.Envelope
	Last             *market.Voucher // the last voucher, nil before the first
	Outcomes         []attest.Envelope

	tb testing.TB
}

// NewDeal returns a signed lease between the peers of two seeds, without receipts. Change, which may be nil, edits the
// offer before it is signed; the lease follows the offer. It costs 100 micro-USD a second for each device.
func NewDeal(tb testing.TB, renter, provider uint64, change func(*market.Offer)) *Deal {
	tb.Helper()
	d := &Deal{Renter: Signer(renter), Provider: Signer(provider), Terms: Terms(), tb: tb}
	d.Bid = Sign(tb, d.Renter, market.BidDomain, Bid(d.Renter.Key()))
	o := Offer(d.Provider.Key(), d.Bid.ID())
	if change != nil {
		change(&o)
	}
	d.Offer = Sign(tb, d.Provider, market.OfferDomain, o)
	terms, err := attest.Marshal(d.Terms)
	if err != nil {
		tb.Fatal(err)
	}
	d.Lease = market.Lease{Version: 1, Network: d.Renter.Network(), Renter: d.Renter.Key(), Provider: d.Provider.Key(),
		Bid: o.Bid, Offer: d.Offer.ID(), Work: attest.Sum(terms), Class: market.Deterministic, Price: o.Price,
		IntervalMS: o.IntervalMS, SurviveMS: 60_000, Budget: 1 * market.USD, IssuedAt: Start().UnixMilli(),
		RenterMark: Nonce(4), OfferMark: o.Nonce, Tier: o.Tier, DurationMS: 3_600_000, GraceMS: 30_000, Simulated: o.Simulated}
	for _, dev := range o.Devices {
		d.Lease.Devices = append(d.Lease.Devices, dev.ID)
	}
	d.Award = Sign(tb, d.Renter, market.AwardDomain, d.Lease)
	d.Accept = d.Provider.SignBytes(market.AcceptDomain, d.Award.Payload)
	d.ID = d.Award.ID()
	d.Tail = receipt.Tail{Lease: d.ID}
	return d
}

// Next returns the receipt of an interval of that length, not signed yet: all devices were billed, half of the time
// busy, and a fixed power was drawn.
func (d *Deal) Next(length time.Duration, s receipt.State) receipt.Receipt {
	ms, devices := uint64(length.Milliseconds()), uint64(len(d.Lease.Devices))
	t0 := d.Tail.Last.T1
	if d.Tail.Seq == 0 {
		t0 = Start().Add(2 * time.Second).UnixMilli()
	}
	units := gpu.Usage{gpu.BillableDeviceMS: ms * devices, gpu.ActiveMS: ms * devices / 2, gpu.EnergyMJ: 300 * ms * devices}
	r := receipt.Receipt{Version: 1, Lease: d.ID, Seq: d.Tail.Seq + 1, Prev: d.Tail.ID, T0: t0, T1: t0 + int64(ms),
		MonoMS: d.Tail.Last.MonoMS + ms, State: s, Units: units, Cum: d.Tail.Last.Cum.Add(units),
		Tel:       gpu.Telemetry{gpu.UtilAvgBP: 5000, gpu.PowerAvgMW: 300_000},
		Simulated: d.Lease.Simulated}
	if d.Last != nil {
		r.Challenge = d.Last.Challenge
	}
	if s == receipt.Final {
		out := attest.Sum([]byte("output"))
		r.Out = &out
	}
	return r
}

// Run adds the signed receipt of a running interval of that length.
func (d *Deal) Run(length time.Duration) { d.Add(d.Next(length, receipt.Running)) }

// Add signs a receipt and adds it, which must be next on the chain.
func (d *Deal) Add(r receipt.Receipt) {
	d.tb.Helper()
	e := Sign(d.tb, d.Provider, receipt.Domain, r)
	tail, err := d.Tail.Accept(r, e.ID())
	if err != nil {
		d.tb.Fatal(err)
	}
	d.Tail, d.Receipts = tail, append(d.Receipts, e)
}

// Pay adds the voucher that accepts every receipt so far.
func (d *Deal) Pay() {
	d.tb.Helper()
	var challenge receipt.Challenge
	challenge[0], challenge[15] = 'c', byte(len(d.Vouchers)+1)
	v, err := market.NewVoucher(d.Lease, d.Tail, d.Last, d.Tail.Last.T1+50, challenge)
	if err != nil {
		d.tb.Fatal(err)
	}
	d.Vouchers = append(d.Vouchers, Sign(d.tb, d.Renter, market.VoucherDomain, v))
	d.Last = &v
}

// Outcome returns the outcome that both sides would state now.
func (d *Deal) Outcome(code market.Code) market.Outcome {
	d.tb.Helper()
	due, err := market.Due(d.Lease.Price, d.Tail.Last.Cum)
	if err != nil {
		d.tb.Fatal(err)
	}
	o := market.Outcome{Version: 1, Lease: d.ID, LastSeq: d.Tail.Seq, Head: d.Tail.ID, Due: due, Cum: d.Tail.Last.Cum,
		EndedAt: max(d.Tail.Last.T1, d.Lease.IssuedAt) + 100, Code: code, Out: d.Tail.Last.Out}
	if d.Last != nil {
		o.Vouched, o.LastVoucher = d.Last.Total, d.Vouchers[len(d.Vouchers)-1].ID()
	}
	if code == market.CodeDone {
		o.ExitCode = new(uint64)
	}
	return o
}

// End adds the outcome, signed by both sides.
func (d *Deal) End(code market.Code) {
	d.tb.Helper()
	e := Sign(d.tb, d.Renter, market.OutcomeRenterDomain, d.Outcome(code))
	d.Outcomes = append(d.Outcomes, e, d.Provider.SignBytes(market.OutcomeProviderDomain, e.Payload))
}

// LeaseFile returns all that was signed, as it stands in a receipt file. Its slices are the caller's.
func (d *Deal) LeaseFile() ledger.LeaseFile {
	clone := func(envs []attest.Envelope) []attest.Envelope { return append([]attest.Envelope{}, envs...) }
	return ledger.LeaseFile{Award: d.Award, Accept: d.Accept, Offer: d.Offer, Receipts: clone(d.Receipts),
		Vouchers: clone(d.Vouchers), Outcomes: clone(d.Outcomes)}
}

// File returns the receipt file of several deals.
func File(deals ...*Deal) ledger.File {
	f := ledger.File{Network: Network}
	for _, d := range deals {
		f.Leases = append(f.Leases, d.LeaseFile())
	}
	return f
}
