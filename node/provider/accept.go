package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/joblog"
)

// Award answers an award: with the provider's own signature over the lease, or with a signed refusal.
func (p *Provider) Award(ctx context.Context, from attest.Key, award attest.Envelope, terms []byte) (attest.Envelope, error) {
	now, id := time.Now(), award.ID()
	if !p.started(ctx) {
		return p.refuse(id, market.Failure{Reason: market.Stopping, Wanted: "a new lease", Available: "none, the provider is stopping"}, now)
	}
	l, err := market.OpenLease(award, p.network, market.AwardDomain)
	if err != nil || l.Renter != from || l.Provider != p.o.Signer.Key() {
		p.metrics.dropped.WithLabelValues("award").Inc()
		return p.refuse(id, market.Failure{Reason: market.TermsDiffer, Wanted: "an award by its sender to this provider", Available: "none"}, now)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenancies[id]; t != nil {
		return t.rec.Accept, nil // the same award again: the answer was lost on its way
	}
	work, s, fail := p.judgeAward(l, terms, now)
	if fail == nil {
		fail = p.holdDevices(id, s.devices, now)
	}
	if fail != nil {
		return p.refuse(id, *fail, now)
	}
	t, err := p.enter(id, l, work, s, award, terms, now)
	if err != nil {
		p.plan.Release(id)
		return attest.Envelope{}, err
	}
	s.used = true
	p.metrics.accepts.Inc()
	p.wake()
	p.group.Go(func() error {
		t.live(p.ctx)
		p.deliver(p.ctx, t)
		return nil
	})
	return t.rec.Accept, nil
}

// refuse signs the refusal of an award.
func (p *Provider) refuse(award attest.Digest, why market.Failure, now time.Time) (attest.Envelope, error) {
	p.metrics.refusals.Inc()
	refusal, ok := p.decline(award, []market.Failure{why}, now)
	if !ok {
		return attest.Envelope{}, errors.New("refusal cannot be signed")
	}
	return refusal, nil
}

// judgeAward holds an award against the offer it names, what this provider can run, and the renter's credit. The
// caller holds p.mu.
func (p *Provider) judgeAward(l market.Lease, terms []byte, now time.Time) (market.Terms, *standing, *market.Failure) {
	no := func(r market.Reason, wanted, available string) (market.Terms, *standing, *market.Failure) {
		return market.Terms{}, nil, &market.Failure{Reason: r, Wanted: market.ClipReason(wanted), Available: market.ClipReason(available)}
	}
	s := p.offers[l.Offer]
	switch {
	case s == nil || now.UnixMilli() > s.offer.FirmUntil:
		return no(market.OfferGone, "an offer that stands", "none under that id")
	case s.used:
		return no(market.Sold, "an offer that stands", "taken by an award")
	case p.draining:
		return no(market.Stopping, "a new lease", "none, the provider is stopping")
	}
	if err := l.CheckOffer(s.offer, l.Offer); err != nil {
		return no(market.TermsDiffer, "the terms of the offer", err.Error())
	}
	work, err := decodeTerms(terms, l.Work)
	if err != nil {
		return no(market.TermsDiffer, "terms that the lease names", err.Error())
	}
	if work.Engine != p.o.Engine {
		return no(market.WorkloadNotAllowed, work.Engine, p.o.Engine)
	}
	if p.o.Policy.HostMem > 0 && work.MemBytes > p.o.Policy.HostMem {
		return no(market.HostMemory, market.FormatBytes(work.MemBytes), market.FormatBytes(p.o.Policy.HostMem))
	}
	disk, err := p.spareDisk()
	if err != nil {
		return no(market.Unreadable, "free disk", "cannot be read")
	}
	if work.Disk() > disk {
		return no(market.HostDisk, market.FormatBytes(work.Disk()), market.FormatBytes(disk))
	}
	if d := time.Duration(l.DurationMS) * time.Millisecond; p.o.Policy.MaxDuration > 0 && d > p.o.Policy.MaxDuration {
		return no(market.TooLong, d.String(), p.o.Policy.MaxDuration.String())
	}
	b := market.Bid{IntervalMS: l.IntervalMS}
	if fails := p.creditFails(l.Renter, len(l.Devices), l.Price, b, now); len(fails) > 0 {
		return market.Terms{}, nil, &fails[0]
	}
	return work, s, nil
}

// spareDisk returns how much disk one more job may take: what the owner allows, as far as it is free.
func (p *Provider) spareDisk() (uint64, error) {
	spare, err := p.o.Store.Spare()
	if p.o.Policy.HostDisk > 0 {
		spare = min(spare, p.o.Policy.HostDisk)
	}
	return spare, err
}

func decodeTerms(b []byte, want attest.Digest) (market.Terms, error) {
	var t market.Terms
	if attest.Sum(b) != want {
		return t, fmt.Errorf("other terms than the lease names")
	}
	return t, attest.Unmarshal(b, &t)
}

// holdDevices keeps the devices for the time until the start. The caller holds p.mu.
func (p *Provider) holdDevices(lease attest.Digest, devices []gpu.Device, now time.Time) *market.Failure {
	for _, d := range devices {
		if what, bad := p.faulty[d.ID]; bad {
			return &market.Failure{Reason: market.Unreadable, Wanted: "device " + d.Model, Available: market.ClipReason("faulty: " + what)}
		}
	}
	if err := p.plan.Hold(ids(devices), lease, now, now.Add(market.HoldTime)); err != nil {
		return &market.Failure{Reason: market.Sold, Wanted: fmt.Sprintf("%d devices", len(devices)), Available: "taken by another award"}
	}
	return nil
}

func ids(devices []gpu.Device) []string {
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = d.ID
	}
	return out
}

// enter signs the lease and writes it down before the signature leaves. The caller holds p.mu.
func (p *Provider) enter(id attest.Digest, l market.Lease, work market.Terms, s *standing, award attest.Envelope, terms []byte, now time.Time) (*tenancy, error) {
	rec := ledger.Record{Role: ledger.Provider, Award: award, Accept: p.o.Signer.SignBytes(market.AcceptDomain, award.Payload),
		Offer: s.env, Terms: terms, State: market.Awarded, AwardedAt: now.UnixMilli(), Addrs: s.replyTo}
	dir := filepath.Join(p.o.JobsDir, id.Hex())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make job folder: %w", err)
	}
	log, err := joblog.Open(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	t := newTenancy(p, id, l, work, rec)
	t.devices, t.dir, t.log = s.devices, dir, log
	if err := t.save(); err != nil {
		_ = log.Close()
		return nil, err
	}
	p.tenancies[id] = t
	p.credit.use(l.Renter, len(l.Devices))
	p.log.Info("lease signed", "lease", id.Short(), "peer", l.Renter, "price", l.Price.PerHour())
	return t, nil
}
