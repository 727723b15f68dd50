package api

import (
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/attest/reputation"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// at turns Unix milliseconds into an instant in UTC.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// maybeAt is at, with nil for 0.
func maybeAt(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := at(ms)
	return &t
}

// known returns a pointer to v, nil for the zero value, which stands for unknown or none.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func place(p market.Place) *string {
	if p == (market.Place{}) {
		return nil
	}
	s := p.String()
	return &s
}

func names[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

// full returns list, or an empty one for nil.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// ViewDevice shows a device of the provider under its public id. sample may be nil.
func ViewDevice(provider attest.Key, d gpu.Device, price market.MicroUSD, state, detail string, lease *attest.Digest, sample *gpu.Sample) DeviceView {
	v := DeviceView{ID: market.NewDeviceID(provider, d.ID), Name: d.Name, Model: d.Model, Class: d.Class, MemBytes: known(d.MemBytes),
		Simulated: d.Simulated, Price: price, State: state, Detail: detail, Lease: lease}
	if sample != nil {
		s := *sample
		s.Device = v.ID.String() // the driver's own id stays with the owner's tools
		s.At = s.At.UTC()
		v.Telemetry = &s
	}
	return v
}

// ViewAsk shows an ask that was verified. score and mean are the own score and success rate of its provider, nil without
// evidence.
func ViewAsk(a market.Ask, score, mean *int, self bool) AskView {
	lots := []LotView{}
	for _, l := range a.Lots {
		lots = append(lots, LotView{Model: l.Model, Class: l.Class, MemBytes: known(l.MemBytes), Count: l.Count, Free: l.Free, Price: l.Price, Simulated: l.Simulated})
	}
	return AskView{Peer: a.Provider, Lots: lots, Place: place(a.Place), Tiers: names(a.Tiers), Workloads: names(a.Workloads),
		ExpiresAt: at(a.ExpiresAt), Agent: a.Agent, Reach: a.Reach.String(), Addrs: full(a.Addrs), ScoreBP: score, MeanBP: mean, Self: self}
}

// ViewAuction shows an auction and computes its choice again. A record that does not explain its award is shown all
// the same, with the reason; one that cannot be decoded is an error.
func ViewAuction(r auction.Record, network attest.Digest) (AuctionView, error) {
	if err := r.Decode(); err != nil {
		return AuctionView{}, fmt.Errorf("read auction: %w", err)
	}
	bid, err := attest.Decode[market.Bid](r.Bid)
	if err != nil {
		return AuctionView{}, fmt.Errorf("read auction: %w", err)
	}
	v := AuctionView{
		Bid: r.Bid.ID(), Demand: viewDemand(bid), OpenedAt: at(r.OpenedAt), WindowMS: r.WindowMS, TookMS: r.TookMS, ClosedBy: string(r.ClosedBy),
		ReferencePrice: known(r.Reference), MaxPrice: r.MaxPrice, Heard: r.Heard, Received: r.Received, DeclineCount: r.DeclineCount,
		MaxLatencyMS: known(r.Latency), ReceivedKnown: r.ReceivedKnown, DeclinedKnown: r.DeclinedKnown, Unreached: []UnreachedView{},
		Offers: []OfferView{}, Failed: full(r.Failed), RunnersUp: []attest.Key{}, Follows: r.Follows, DryRun: r.DryRun,
	}
	for _, u := range r.Unreached {
		v.Unreached = append(v.Unreached, UnreachedView(u))
	}
	closed := at(r.OpenedAt + int64(r.TookMS))
	for _, e := range r.Entries {
		v.Offers = append(v.Offers, viewOffer(e, r.Theta, closed))
		if r.Award != nil && e.Offer.Provider == *r.Award {
			v.Award = &WinnerView{Peer: *r.Award, Price: e.Offer.Price, Lease: r.Lease}
		}
	}
	// Runners-up are those that would be asked next: ranked after the winner, or all where nobody won.
	seen := r.Award == nil
	for _, e := range auction.Clear(v.Bid, r.Entries) {
		if seen {
			v.RunnersUp = append(v.RunnersUp, e.Offer.Provider)
		}
		seen = seen || e.Offer.Provider == *r.Award
	}
	if v.Declines, err = viewDeclines(r.Declines); err != nil {
		return AuctionView{}, err
	}
	if v.Refusals, err = viewDeclines(r.Refusals); err != nil {
		return AuctionView{}, err
	}
	if err := r.Recompute(network); err != nil {
		v.RecomputeError = err.Error()
	} else {
		v.Recomputed = true
	}
	return v, nil
}

func viewDemand(b market.Bid) DemandView {
	return DemandView{Class: b.Class, Count: b.Count, Models: full(b.Models), MemBytes: known(b.MemBytes), HostMemBytes: known(b.HostMemBytes),
		DurationMS: b.DurationMS, StartWithinMS: b.StartWithinMS, Tier: b.Tier.String(), Require: names(b.Require), Simulated: b.Simulated}
}

func viewOffer(e auction.Entry, theta uint64, closed time.Time) OfferView {
	o := e.Offer
	v := OfferView{Peer: o.Provider, Price: o.Price, StartInMS: o.StartInMS, Start: closed.Add(time.Duration(o.StartInMS) * time.Millisecond),
		Count: len(o.Devices), Place: place(o.Place), MeanBP: e.MeanBP, Known: e.Known, Theta: theta, Score: e.Score,
		Kept: e.Excluded == "", Excluded: e.Excluded, ArrivedMS: e.ArrivedMS, Simulated: o.Simulated,
		Reach: o.Reach.String(), RTTMS: known(e.RTTMS), Path: e.Path.String(), SurchargeBP: e.SurchargeBP, Direct: e.Direct, PlaceFault: e.PlaceFault}
	for i, d := range o.Devices {
		if i == 0 {
			v.Model, v.MemBytes = d.Model, known(d.MemBytes)
		} else if v.MemBytes != nil && d.MemBytes < *v.MemBytes {
			v.MemBytes = known(d.MemBytes)
		}
	}
	return v
}

func viewDeclines(envs []attest.Envelope) ([]DeclineView, error) {
	out := []DeclineView{}
	for _, e := range envs {
		d, err := attest.Decode[market.Decline](e)
		if err != nil {
			return nil, fmt.Errorf("read decline: %w", err)
		}
		out = append(out, DeclineView{Peer: d.Provider, Failures: d.Failures})
	}
	return out, nil
}

// Chain is what the store has of a lease beside its record, each list in order.
type Chain struct {
	Receipts []attest.Envelope
	Vouchers []attest.Envelope
	Outcomes []attest.Envelope
}

// File returns the part of a receipt file that proves the lease.
func (c Chain) File(r ledger.Record) ledger.LeaseFile {
	return ledger.LeaseFile{Award: r.Award, Accept: r.Accept, Offer: r.Offer, Receipts: c.Receipts, Vouchers: c.Vouchers, Outcomes: c.Outcomes}
}

// acknowledged returns the number and the total of the last voucher, 0 for none.
func (c Chain) acknowledged() (uint64, market.MicroUSD, error) {
	if len(c.Vouchers) == 0 {
		return 0, 0, nil
	}
	v, err := attest.Decode[market.Voucher](c.Vouchers[len(c.Vouchers)-1])
	if err != nil {
		return 0, 0, fmt.Errorf("read voucher: %w", err)
	}
	return v.AckSeq, v.Total, nil
}

// ViewLease shows a lease as the store has it. What was stored was verified before; here it is only decoded.
func ViewLease(r ledger.Record, c Chain) (LeaseView, error) {
	l, err := r.Lease()
	if err != nil {
		return LeaseView{}, fmt.Errorf("read lease: %w", err)
	}
	v := LeaseView{
		ID: r.ID(), Role: r.Role.String(), State: r.State.String(), Reason: r.Reason, Renter: l.Renter, Provider: l.Provider, Job: r.Job,
		Devices: full(l.Devices), Models: []string{}, Tier: l.Tier.String(), Price: l.Price, Budget: l.Budget, IntervalMS: l.IntervalMS,
		SurviveMS: l.SurviveMS, DurationMS: l.DurationMS, Simulated: l.Simulated, Follows: l.Follows,
		AwardedAt: at(r.AwardedAt), ReadyAt: maybeAt(r.ReadyAt), EndedAt: maybeAt(r.EndedAt), Receipts: len(c.Receipts),
	}
	o, err := attest.Decode[market.Offer](r.Offer)
	if err != nil {
		return LeaseView{}, fmt.Errorf("read offer of lease: %w", err)
	}
	for _, d := range o.Devices {
		v.Models = append(v.Models, d.Model)
	}
	if n := len(c.Receipts); n > 0 {
		last, err := attest.Decode[receipt.Receipt](c.Receipts[n-1])
		if err != nil {
			return LeaseView{}, fmt.Errorf("read receipt: %w", err)
		}
		v.Head, v.RanMS = known(c.Receipts[n-1].ID()), last.Cum[gpu.BillableDeviceMS]
		if v.Due, err = market.Due(l.Price, last.Cum); err != nil {
			return LeaseView{}, err
		}
	}
	if v.Acknowledged, v.Vouched, err = c.acknowledged(); err != nil {
		return LeaseView{}, err
	}
	v.Outcome, err = viewOutcome(c.Outcomes)
	return v, err
}

// viewOutcome shows the outcome that both signed, or else the first.
func viewOutcome(envs []attest.Envelope) (*OutcomeView, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	o, err := attest.Decode[market.Outcome](envs[0])
	if err != nil {
		return nil, fmt.Errorf("read outcome: %w", err)
	}
	return &OutcomeView{Code: o.Code.String(), Reason: o.Reason, ExitCode: o.ExitCode, OutputsDigest: o.Out, EndedAt: at(o.EndedAt), Signers: len(envs)}, nil
}

// ViewReceipts shows the receipts of a lease.
func ViewReceipts(r ledger.Record, c Chain) ([]ReceiptView, error) {
	l, err := r.Lease()
	if err != nil {
		return nil, fmt.Errorf("read lease: %w", err)
	}
	acked, _, err := c.acknowledged()
	if err != nil {
		return nil, err
	}
	out := []ReceiptView{}
	var before market.MicroUSD
	for _, e := range c.Receipts {
		rec, err := attest.Decode[receipt.Receipt](e)
		if err != nil {
			return nil, fmt.Errorf("read receipt: %w", err)
		}
		total, err := market.Due(l.Price, rec.Cum)
		if err != nil {
			return nil, err
		}
		v := ReceiptView{Seq: rec.Seq, ID: e.ID(), State: rec.State.String(), T0: at(rec.T0), T1: at(rec.T1), Units: map[string]uint64{},
			Telemetry: map[string]uint64{}, Cost: total - min(total, before), Total: total, Acknowledged: rec.Seq <= acked,
			OutputsID: rec.Out, Simulated: rec.Simulated}
		for k, n := range rec.Units {
			v.Units[k.String()] = n
		}
		for k, n := range rec.Tel {
			v.Telemetry[k.String()] = n
		}
		if ran, ok := rec.Units[gpu.BillableDeviceMS]; ok {
			v.RanMS = &ran
		}
		before = total
		out = append(out, v)
	}
	return out, nil
}

// ViewReputation shows a score. leases names the lease that each piece of evidence is about, by its Ref; it may be nil.
func ViewReputation(peer attest.Key, res reputation.Result, prior reputation.Prior, leases map[attest.Digest]attest.Digest) ReputationView {
	v := ReputationView{Peer: peer, ScoreBP: res.ScoreBP, QuantileBP: res.QuantileBP, ShortBP: res.ShortBP,
		MeanBP: reputation.MeanOf(res.S, res.F, prior), Prior: PriorView{prior.FirstLeases, prior.OK, prior.BP()},
		S: res.S.String(), F: res.F.String(), Terms: []TermView{}}
	for _, t := range res.Terms {
		e := t.Evidence
		term := TermView{At: e.At.UTC(), What: e.What, OK: e.OK, Value: market.MicroUSD(e.ValueMicroUSD), AgeDays: t.AgeDays, DecayBP: t.DecayBP,
			Raw: t.Raw.String(), Capped: t.Capped.String(), Decayed: t.Decayed.String(), Evidence: e.Ref}
		if lease, ok := leases[e.Ref]; ok {
			term.Lease = &lease
		}
		v.Terms = append(v.Terms, term)
	}
	return v
}
