package renter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p/deal"
)

// countersign signs the provider's outcome o and writes both down, synced. If the provider had not seen the last voucher
// yet, this side states the end with that voucher instead.
func (r *Renter) countersign(h *hire, theirs attest.Envelope, o market.Outcome) (*attest.Envelope, error) {
	mine := r.o.Signer.SignBytes(market.OutcomeRenterDomain, theirs.Payload)
	if o.Vouched != h.chain.vouched() || o.LastVoucher != h.chain.voucherID {
		o.Vouched, o.LastVoucher = h.chain.vouched(), h.chain.voucherID
		var err error
		if mine, err = r.o.Signer.Sign(market.OutcomeRenterDomain, o); err != nil {
			return nil, err
		}
	}
	var b store.Batch
	b.PutOutcome(h.id, theirs)
	b.PutOutcome(h.id, mine)
	if err := r.o.Store.Commit(&b); err != nil {
		return nil, fmt.Errorf("write outcome: %w", err)
	}
	return &mine, nil
}

// checkOutcome holds an outcome of a lease against the receipts and vouchers that are here.
func (r *Renter) checkOutcome(o market.Outcome, l market.Lease) error {
	var last attest.Envelope
	var err error
	if o.LastSeq > 0 {
		if last, err = r.o.Store.Receipt(o.Lease, o.LastSeq); err != nil {
			return err
		}
	}
	var named []attest.Envelope
	err = r.o.Store.VouchersBack(o.Lease, func(e attest.Envelope) bool {
		if e.ID() == o.LastVoucher {
			named = append(named, e)
		}
		return len(named) == 0
	})
	if err != nil {
		return err
	}
	return ledger.CheckOutcome(o, l, last, named)
}

// endAlone signs this side's word on how the lease ended, for a provider that is not there.
func (r *Renter) endAlone(h *hire, end leaseEnd) (*attest.Envelope, error) {
	c := h.chain
	o := market.Outcome{Version: 1, Lease: h.id, LastSeq: c.tail.Seq, Head: c.tail.ID, Due: c.due, Vouched: c.vouched(),
		Cum: c.tail.Last.Cum, EndedAt: time.Now().UnixMilli(), Code: end.code, LastVoucher: c.voucherID, Reason: end.reason}
	if end.code == market.CodeDone && end.result != nil {
		o.ExitCode, o.Out = end.result.ExitCode, c.tail.Last.Out
	}
	env, err := r.o.Signer.Sign(market.OutcomeRenterDomain, o)
	if err != nil {
		return nil, err
	}
	return &env, r.o.Store.PutOutcome(h.id, env)
}

// settle ends a lease in writing, learns from it, and says what becomes of the job.
func (r *Renter) settle(ctx context.Context, t *task, h *hire, end leaseEnd) error {
	signers := 2
	if end.mine == nil {
		env, err := r.endAlone(h, end)
		if err != nil {
			return err
		}
		signers = 1
		r.group.Go(func() error { r.tellOutcome(h, *env); return nil })
	}
	event := market.EvStop
	switch end.code {
	case market.CodeDone:
		event = market.EvFinish
	case market.CodeLost:
		event = market.EvSilence
		t.emit(Event{Kind: EvLost, Note: end.reason})
	}
	if err := r.setState(h.id, event, end.reason); err != nil {
		return err
	}
	t.emit(Event{Kind: EvOutcome, Outcome: &OutcomeEvent{Lease: h.id, Code: end.code.String(), Reason: end.reason,
		Due: h.chain.due, Vouched: h.chain.vouched(), Signers: signers}})
	if err := r.learn(t, h.id, h.chain, end.code, end.reason); err != nil {
		return err
	}
	if end.move {
		return r.settleMove(t, h, end)
	}
	return r.settleJob(t, end)
}

// settleMove prepares the job for another provider, or ends it when it has moved too often.
func (r *Renter) settleMove(t *task, h *hire, end leaseEnd) error {
	if t.isStopped() || t.moves >= maxMoves {
		return t.over(JobStopped, end.reason, "")
	}
	t.mu.Lock()
	t.lost = append(t.lost, h.provider)
	t.lastLoss = end.reason
	t.mu.Unlock()
	return t.update(func(j *Job) { j.State, j.Reason = JobMoving, end.reason })
}

func (r *Renter) settleJob(t *task, end leaseEnd) error {
	switch end.code {
	case market.CodeDone:
		if end.result == nil || end.result.ExitCode == nil {
			return t.over(JobStopped, "exit_code_unknown", "it ran to its end, and its exit code is not known")
		}
		code := int(*end.result.ExitCode)
		state := JobSucceeded
		if code != 0 {
			state = JobFailed
		}
		if err := t.update(func(j *Job) { j.ExitCode = &code }); err != nil {
			return err
		}
		return t.over(state, "", "")
	case market.CodeRenterCancel:
		return t.over(JobStopped, "stopped", "")
	}
	return t.over(JobStopped, end.reason, "")
}

// failedProviders are those that lost this job.
func (t *task) failedProviders() []attest.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]attest.Key(nil), t.lost...)
}

// tellPauses are the times between attempts to tell a provider that its lease is over.
var tellPauses = [...]time.Duration{0, 5 * time.Second, 30 * time.Second, 5 * time.Minute, time.Hour}

// tellOutcome tells a provider that was lost how the lease ended, should it be seen again, so that it stops.
func (r *Renter) tellOutcome(h *hire, env attest.Envelope) {
	for _, pause := range tellPauses {
		timer := time.NewTimer(pause)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		_, err := r.o.Deal.SendOutcome(ctx, h.provider, r.recordAddrs(h.id), deal.Ending{Outcome: env})
		cancel()
		if err == nil {
			return
		}
		r.log.Debug("outcome is not told yet", "lease", h.id.Short(), "err", err)
	}
}

// Outcome takes the outcome of a provider that came back after a break, with receipts that this side may lack. What
// holds is still paid.
func (r *Renter) Outcome(ctx context.Context, from attest.Key, e deal.Ending) deal.Settlement {
	select {
	case <-r.up:
	default:
		return deal.Settlement{Code: deal.Closed} // jobs are being taken up; the provider asks again
	}
	o, err := attest.Open[market.Outcome](e.Outcome, r.network, market.OutcomeProviderDomain)
	if err != nil || e.Outcome.Signer != from {
		return deal.Settlement{Code: deal.Refused}
	}
	r.late.Lock() // two copies of one ending may come at once
	defer r.late.Unlock()
	rec, err := r.record(o.Lease)
	if err != nil || rec.Role != ledger.Renter || rec.Reason == ledger.Abandoned { // nothing is signed on that one again
		return deal.Settlement{Code: deal.Unknown}
	}
	c, err := r.loadTail(o.Lease)
	if err != nil || c.lease.Provider != from {
		return deal.Settlement{Code: deal.Unknown}
	}
	if !rec.State.Final() {
		return deal.Settlement{Code: deal.Closed} // the job is being attended; its work stream settles this
	}
	answer, err := r.settleLate(rec.Job, c, e, o)
	if err != nil {
		r.log.Error("late outcome is not written", "lease", o.Lease.Short(), "err", err)
		return deal.Settlement{Code: deal.Closed}
	}
	return answer
}

// settleLate pays the receipts that hold, keeps the provider's outcome if it holds, and returns the last voucher and this
// side's outcome. After an end that both signed there is nothing more to pay. The caller holds r.late.
func (r *Renter) settleLate(job string, c *chain, e deal.Ending, o market.Outcome) (deal.Settlement, error) {
	answer := deal.Settlement{Code: deal.OK}
	outcomes, err := r.o.Store.Outcomes(c.id)
	if err != nil {
		return answer, err
	}
	known := false // the provider's outcome is here
	for _, o := range outcomes {
		if o.Signer == r.o.Signer.Key() {
			answer.Outcome = &o
		} else {
			known = true
		}
	}
	if !known {
		before := c.totals()
		for _, rc := range e.Receipts {
			if _, _, err := c.accept(rc, time.Now()); err != nil {
				r.drop("receipt", err)
				break
			}
		}
		if err := r.bookLate(job, c.id, before, c.totals()); err != nil {
			return answer, err
		}
	}
	if _, v, err := r.o.Store.LastVoucher(c.id); err == nil { // the provider may lack it also if nothing is new
		answer.Voucher = &v
	} else if !errors.Is(err, store.ErrNotFound) {
		return answer, err
	}
	if known || o.LastSeq > c.tail.Seq { // more receipts follow in another message
		return answer, nil
	}
	if err := r.checkOutcome(o, c.lease); err != nil {
		r.log.Debug("late outcome is not kept", "lease", c.id.Short(), "err", err)
		return answer, nil
	}
	return answer, r.o.Store.PutOutcome(c.id, e.Outcome)
}

// bookLate adds what was paid on an earlier lease to its job. The caller holds r.late.
func (r *Renter) bookLate(job string, lease attest.Digest, before, after totals) error {
	r.mu.Lock()
	t := r.tasks[job]
	r.mu.Unlock()
	if t == nil || before == after {
		return nil
	}
	return t.update(func(j *Job) {
		if t.baseOf != lease {
			t.base = t.base.plus(after, before)
		}
		sum := totals{j.Receipts, j.Cost, j.Vouched, j.RanMS}.plus(after, before)
		j.Receipts, j.Cost, j.Vouched, j.RanMS = sum.receipts, sum.cost, sum.vouched, sum.ranMS
	})
}
