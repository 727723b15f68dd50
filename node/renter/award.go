package renter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// awardTimeout is how long a provider may take to countersign.
const awardTimeout = 3 * time.Second

// award asks the offers that can win and were not asked yet, best first, until one provider countersigns. A provider to
// which there is no path that carries a job is passed over before anything is signed. The auction is stored whole, whatever
// comes of it. It returns nil without error if nobody did.
func (r *Renter) award(ctx context.Context, v *vigil, work prepared, a *openAuction) (*hire, runnersUp, error) {
	t := v.t
	a.fresh = false
	ranked := slices.DeleteFunc(auction.Clear(a.id, a.record.Entries), func(e auction.Entry) bool { return a.passed[e.Offer.Provider] })
	for i, e := range ranked {
		if a.record.Stopped = t.isStopped(); a.record.Stopped {
			break
		}
		a.passed[e.Offer.Provider] = true
		h, refusal, err := r.tryAward(ctx, v, work, ranked[i:], &a.record)
		if err != nil {
			return nil, runnersUp{}, errors.Join(err, r.saveAuction(t, a.number, a.record))
		}
		if refusal != nil {
			if f := refusal.Failures; len(f) == 1 && (f[0].Reason == market.Sold || f[0].Reason == market.OfferGone) {
				a.outrun++
			}
		}
		if h == nil {
			continue
		}
		rest := runnersUp{a.record, ranked[i+1:]}
		if err := r.saveAuction(t, a.number, a.record); err != nil {
			return nil, rest, err
		}
		if err := r.o.Store.AddPrice(a.class, time.Now().UnixMilli(), uint64(h.lease.Price)); err != nil {
			r.log.Warn("clearing price is not kept", "err", err)
		}
		took := uint64(time.Since(a.opened).Milliseconds())
		ev := awardEvent(h, e, a.record, rest.entries)
		ev.AuctionMS = &took
		t.emit(Event{Kind: EvAward, Award: ev})
		return h, rest, t.update(func(j *Job) {
			if j.AuctionMS == nil {
				j.AuctionMS = &took
			}
		})
	}
	return nil, runnersUp{}, r.saveAuction(t, a.number, a.record)
}

// tryAward asks the provider of the first of these offers. What comes of it is written into the record. It returns the
// hire, or a signed refusal, or neither where the provider could not be reached or did not answer; an error is a fault on
// this side.
func (r *Renter) tryAward(ctx context.Context, v *vigil, work prepared, ranked []auction.Entry, rec *auction.Record) (*hire, *refusal, error) {
	provider := ranked[0].Offer.Provider
	why, err := v.reach(ctx, ranked)
	switch {
	case errors.Is(err, errStopped):
		rec.Stopped = true
		return nil, nil, nil // the job's own loop ends it
	case err != nil:
		return nil, nil, err
	}
	if why != "" {
		rec.Unreached = append(slices.Clone(rec.Unreached), auction.Unreached{Peer: provider, Reason: why})
		v.t.emit(Event{Kind: EvUnreached, Unreached: &UnreachedEvent{Peer: provider, Reason: why}})
		return nil, nil, nil
	}
	h, refusal, err := r.awardTo(ctx, v.t, work, ranked[0])
	switch {
	case err != nil:
		return nil, nil, err
	case refusal != nil:
		rec.Refusals = append(slices.Clone(rec.Refusals), refusal.env)
		v.t.emit(Event{Kind: EvRefused, Decline: &refusal.DeclineEvent})
	case h == nil:
		rec.Failed = append(slices.Clone(rec.Failed), provider)
	default:
		rec.Award, rec.Lease = &h.provider, &h.id
	}
	return h, refusal, nil
}

func awardEvent(h *hire, e auction.Entry, rec auction.Record, rest []auction.Entry) *AwardEvent {
	ev := &AwardEvent{Peer: h.provider, Lease: h.id, Price: h.lease.Price, MeanBP: e.MeanBP, Score: e.Score, Theta: rec.Theta,
		Offers: int(rec.Received), Declines: int(rec.DeclineCount), RunnersUp: []attest.Key{}}
	for _, o := range rest {
		ev.RunnersUp = append(ev.RunnersUp, o.Offer.Provider)
		if o.Offer.Price < h.lease.Price {
			ev.Cheaper = append(ev.Cheaper, o.Offer.Provider)
		}
	}
	return ev
}

// saveAuction writes the record with that number among the job's. A record that is there is replaced: an offer to a bid
// that waits may come long after the window.
func (r *Renter) saveAuction(t *task, number int, rec auction.Record) error {
	j := t.snapshot()
	rec.DryRun = j.DryRun
	b, err := attest.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write auction: %w", err)
	}
	if err := r.o.Store.SaveAuction(j.ID, uint64(number), b); err != nil {
		return fmt.Errorf("write auction: %w", err)
	}
	return nil
}

// refusal is a provider's signed refusal of an award.
type refusal struct {
	DeclineEvent
	env attest.Envelope
}

// awardTo signs a lease with one provider and asks for its countersignature. It returns the hire, or a signed refusal,
// or neither if the provider did not answer; an error is a fault on this side.
func (r *Renter) awardTo(ctx context.Context, t *task, work prepared, e auction.Entry) (*hire, *refusal, error) {
	j := t.snapshot()
	terms, blobs := work.leaseTerms(j)
	if err := terms.Validate(); err != nil {
		return nil, nil, err
	}
	encoded, err := attest.Marshal(terms)
	if err != nil {
		return nil, nil, err
	}
	if len(encoded) > market.MaxTermsBytes {
		return nil, nil, fmt.Errorf("arguments, environment and file names take %d bytes, at most %d; pack the files into one archive", len(encoded), market.MaxTermsBytes)
	}
	l := r.leaseFor(j, e, attest.Sum(encoded))
	award, err := r.o.Signer.Sign(market.AwardDomain, l)
	if err != nil {
		return nil, nil, err
	}
	h := &hire{lease: l, id: award.ID(), provider: l.Provider, chain: newChain(r, award.ID(), l), logBase: t.log.Size()}
	rec := ledger.Record{Role: ledger.Renter, Award: award, Offer: e.Envelope, Terms: encoded, State: market.Offered,
		AwardedAt: time.Now().UnixMilli(), Job: j.ID, Challenge: h.chain.challenge(), Addrs: r.addrsOf(l.Provider), LogBase: h.logBase}
	rec.Accept = award // stands in until the provider's own signature comes; the state says which
	if err := r.saveRecord(h.id, rec); err != nil {
		return nil, nil, err
	}
	stop := r.serve(t.inputsFor(l.Provider, terms, blobs)) // the provider may ask before we have read its answer
	ctx, cancel := context.WithTimeout(ctx, awardTimeout)
	defer cancel()
	answer, err := r.o.Deal.SendAward(ctx, l.Provider, nil, award, encoded)
	if err != nil {
		stop()
		r.log.Debug("award was not answered", "peer", l.Provider, "err", err)
		r.doubt(l.Provider)
		return nil, nil, r.setState(h.id, market.EvExpire, "no_answer")
	}
	if answer.Domain == market.DeclineDomain {
		stop()
		d, err := market.OpenDecline(answer, r.network, h.id)
		if err != nil {
			return nil, nil, r.setState(h.id, market.EvExpire, "bad_answer")
		}
		return nil, &refusal{DeclineEvent{Peer: l.Provider, Failures: d.Failures}, answer}, r.setState(h.id, market.EvExpire, "refused")
	}
	if _, err := market.OpenLease(answer, r.network, market.AcceptDomain); err != nil || answer.ID() != h.id {
		stop()
		return nil, nil, r.setState(h.id, market.EvExpire, "bad_answer")
	}
	rec.Accept, rec.State = answer, market.Awarded
	if err := r.saveRecord(h.id, rec); err != nil {
		stop()
		return nil, nil, err
	}
	h.stop = stop
	r.metrics.awards.Inc()
	return h, nil, t.update(func(j *Job) {
		j.State, j.Provider, j.Lease, j.Price, j.Simulated = JobStarting, &h.provider, &h.id, l.Price, l.Simulated
		j.Leases = append(slices.Clone(j.Leases), h.id)
	})
}

// leaseFor puts an offer and what is left of the job into a lease.
func (r *Renter) leaseFor(j Job, e auction.Entry, terms attest.Digest) market.Lease {
	o := e.Offer
	l := market.Lease{Version: 1, Network: r.network, Renter: r.o.Signer.Key(), Provider: o.Provider, Bid: o.Bid, Offer: e.Envelope.ID(),
		Work: terms, Class: market.Deterministic, Price: o.Price, IntervalMS: o.IntervalMS, SurviveMS: uint64(j.Spec.Survive.Milliseconds()),
		Budget: j.Spec.Budget - min(j.Cost, j.Spec.Budget), IssuedAt: time.Now().UnixMilli(), OfferMark: o.Nonce, Tier: o.Tier,
		DurationMS: uint64(max(j.Spec.Duration-ranTime(j), time.Second).Milliseconds()), GraceMS: uint64(j.Spec.Grace.Milliseconds()),
		Simulated: o.Simulated, Follows: j.Lease}
	_, _ = rand.Read(l.RenterMark[:]) // never fails, see crypto/rand
	for _, d := range o.Devices {
		l.Devices = append(l.Devices, d.ID)
	}
	return l
}

func (r *Renter) addrsOf(k attest.Key) []string {
	for _, p := range r.o.Host.Peers() {
		if p.Key == k {
			return p.Addrs[:min(len(p.Addrs), 8)]
		}
	}
	return nil
}

func (r *Renter) saveRecord(id attest.Digest, rec ledger.Record) error {
	b, err := attest.Marshal(rec)
	if err != nil {
		return err
	}
	if err := r.o.Store.SaveLease(id, b); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	return nil
}

func (r *Renter) record(id attest.Digest) (ledger.Record, error) {
	var rec ledger.Record
	b, err := r.o.Store.Lease(id)
	if err != nil {
		return rec, fmt.Errorf("read lease: %w", err)
	}
	return rec, attest.Unmarshal(b, &rec)
}

// setState moves a lease along its table and writes it down. An event that its state does not know changes nothing.
func (r *Renter) setState(id attest.Digest, e market.LeaseEvent, reason string) error {
	rec, err := r.record(id)
	if err != nil {
		return err
	}
	next, err := market.Next(rec.State, e)
	if err != nil {
		r.log.Debug("lease stays as it is", "lease", id.Short(), "err", err)
		return nil
	}
	rec.State = next
	now := time.Now().UnixMilli()
	if next == market.Running && rec.ReadyAt == 0 {
		rec.ReadyAt = now
	}
	if next.Final() {
		rec.EndedAt, rec.Reason = now, reason
	}
	return r.saveRecord(id, rec)
}

// newChallenge returns 16 random bytes.
func newChallenge() (c receipt.Challenge) {
	_, _ = rand.Read(c[:]) // never fails, see crypto/rand
	return c
}
