package renter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/work"
)

const (
	lostAfter    = 30 * time.Second // of silence, while nobody knows whether the provider lives
	redialPause  = 500 * time.Millisecond
	stopPatience = 15 * time.Second // how long a provider may take to end a job on request
	quietAfter   = 2 * time.Second  // without a heartbeat, which come each second, the provider is looked for
	quietCheck   = 250 * time.Millisecond
)

// leaseEnd is how a lease came to its end in the renter's eyes.
type leaseEnd struct {
	detached bool // this process ends; the lease goes on
	move     bool // the rest of the job goes to another provider
	code     market.Code
	reason   string
	result   *work.Result
	mine     *attest.Envelope // this side's outcome, if it is signed already
}

// attend follows a lease until it ends: it opens the work stream, and opens it again when it breaks, for as long as
// the provider may be alive.
func (r *Renter) attend(ctx context.Context, t *task, h *hire) leaseEnd {
	defer func() {
		if h.stop != nil {
			h.stop()
		}
	}()
	r.setBase(t, h)
	a := &attendance{r: r, t: t, h: h, heard: time.Now()}
	for {
		end, err := a.session(ctx)
		if end != nil {
			return *end
		}
		if ctx.Err() != nil {
			return leaseEnd{detached: true}
		}
		r.log.Debug("work stream broke", "lease", h.id.Short(), "err", err)
		a.noteSilence()
		switch live := r.o.Host.Probe(ctx, h.provider, r.recordAddrs(h.id)); {
		case live == p2p.Gone:
			return a.lost()
		case time.Since(a.heard) > lostAfter:
			return leaseEnd{move: true, code: market.CodeLost, reason: "provider_silent"}
		case live == p2p.Silent:
			// The router may have begun to drop UDP, or one side has another network. QUIC would go on hoping for half a
			// minute on the old way, and then it is too late for another one.
			r.o.Host.Disconnect(h.provider)
		}
		if a.stopAsked && time.Since(a.stopAt) > stopPatience {
			return leaseEnd{code: market.CodeRenterCancel, reason: "stopped"}
		}
		timer := time.NewTimer(redialPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return leaseEnd{detached: true}
		case <-timer.C:
		}
	}
}

func (r *Renter) recordAddrs(id attest.Digest) []string {
	rec, err := r.record(id)
	if err != nil {
		return nil
	}
	return rec.Addrs
}

// setBase notes the job's figures over the leases before this one. Late receipts of those do not come in between.
func (r *Renter) setBase(t *task, h *hire) {
	r.late.Lock()
	defer r.late.Unlock()
	base := r.totalsBefore(t, h)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base, t.baseOf = base, h.id
}

// totalsBefore sums the job's figures over the leases before this one.
func (r *Renter) totalsBefore(t *task, h *hire) totals {
	j := t.snapshot()
	var sum totals
	for _, id := range j.Leases {
		if id == h.id {
			continue
		}
		c, err := r.loadTail(id)
		if err != nil {
			r.log.Warn("earlier lease cannot be read", "lease", id.Short(), "err", err)
			continue
		}
		sum = sum.plus(c.totals(), totals{})
	}
	return sum
}

// loadChain reads the money side of a lease that goes on from the store, and checks that nothing is missing.
func (r *Renter) loadChain(id attest.Digest) (*chain, error) {
	if _, err := r.o.Store.Receipts(id); err != nil {
		return nil, err
	}
	return r.loadTail(id)
}

// loadTail reads where the money side of a lease stands.
func (r *Renter) loadTail(id attest.Digest) (*chain, error) {
	rec, err := r.record(id)
	if err != nil {
		return nil, err
	}
	l, err := rec.Lease()
	if err != nil {
		return nil, err
	}
	c := newChain(r, id, l)
	return c, c.restore(rec.Challenge, rec.ReadyAt)
}

// attendance is one lease being followed, over all its work streams.
type attendance struct {
	r         *Renter
	t         *task
	h         *hire
	heard     time.Time // last frame, heartbeats with the rest
	silent    bool      // it was said that the provider is not heard
	ckptDone  uint64    // number of the last checkpoint stored
	result    *work.Result
	outputs   chan error // result of fetching the outputs; nil until the result came
	fetched   bool       // outputs are here, or there are none
	theirs    *attest.Envelope
	stated    market.Outcome // what theirs says
	stopAsked bool
	stopAt    time.Time
	idle      time.Duration // how long streams were open since the lease last came further, up to since
	since     time.Time
}

// came notes that the lease came further.
func (a *attendance) came() { a.idle, a.since = 0, time.Now() }

// stuck reports whether the provider, which is there, has owed the next step for too long: the start, a receipt, the end.
// Neither a heartbeat nor the job's output is a step, and time without a stream does not count.
func (a *attendance) stuck() bool {
	allowed := a.h.lease.Interval() + a.r.o.Patience
	if a.h.chain.begin.IsZero() {
		allowed = market.StageMax + a.r.o.Patience
	}
	return a.outputs == nil && a.idle+time.Since(a.since) > allowed
}

// lost gives up a provider whose process is gone. A connection over QUIC would outlive it by half a minute, and swallow what
// is said to it after its restart.
func (a *attendance) lost() leaseEnd {
	a.r.o.Host.Disconnect(a.h.provider)
	return leaseEnd{move: true, code: market.CodeLost, reason: "provider_gone"}
}

// noteSilence says, once for each silence, that the provider is not heard.
func (a *attendance) noteSilence() {
	if !a.silent {
		a.silent = true
		a.t.emit(Event{Kind: EvSilence, Note: "the provider is not heard; trying to reach it again"})
	}
}

// take deals with one frame. It returns an end if the lease is over.
func (a *attendance) take(ctx context.Context, s *work.Session, f work.Frame) (*leaseEnd, error) {
	switch {
	case f.Ready != nil:
		return nil, a.ready()
	case f.Log != nil:
		return a.appendLog(f.Log)
	case f.Receipt != nil:
		return a.pay(s, *f.Receipt)
	case f.Result != nil && a.result == nil:
		if err := a.checkResult(*f.Result); err != nil {
			a.r.drop("result", err)
			return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "bad_result"}, nil
		}
		a.result = f.Result
		a.came()
		a.fetchOutputs(ctx)
	case f.Outcome != nil:
		if err := a.checkOutcome(*f.Outcome); err != nil {
			a.r.drop("outcome", err)
			return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "bad_outcome"}, nil
		}
		a.theirs = f.Outcome
		a.came()
	case f.Cancel != nil:
		return &leaseEnd{move: true, code: market.CodeLost, reason: "provider_forgot"}, nil
	}
	return nil, nil
}

// ready notes that the process runs. From here on the renter's own clock bounds what is billed.
func (a *attendance) ready() error {
	now := time.Now()
	if a.h.chain.begin.IsZero() {
		a.h.chain.begin = now
		a.came()
	}
	if err := a.r.setState(a.h.id, market.EvReady, ""); err != nil {
		return err
	}
	return a.t.update(func(j *Job) {
		j.State = JobRunning
		if j.RunningAt == nil {
			utc := now.UTC()
			ms := uint64(now.Sub(j.CreatedAt).Milliseconds())
			j.RunningAt, j.ToRunMS = &utc, &ms
		}
	})
}

func (a *attendance) appendLog(l *work.Log) (*leaseEnd, error) {
	if end := l.Offset + uint64(len(l.Data)); end > a.t.snapshot().Spec.LogBytes+work.MaxLogData {
		return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "log_too_long"}, nil
	}
	switch err := a.t.log.AppendAt(int(l.Stream), a.h.logBase+l.Offset, l.Data); {
	case errors.Is(err, joblog.ErrGap):
		a.r.drop("log", err)
		return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "bad_log"}, nil
	case err != nil:
		return nil, err
	}
	if a.t.snapshot().ToOutMS == nil {
		return nil, a.t.update(func(j *Job) {
			ms := uint64(time.Since(j.CreatedAt).Milliseconds())
			j.ToOutMS = &ms
		})
	}
	return nil, nil
}

// pay accepts a receipt and sends the voucher for it. A receipt that does not hold ends the lease: the provider could
// only be paid for what was accepted before.
func (a *attendance) pay(s *work.Session, e attest.Envelope) (*leaseEnd, error) {
	c := a.h.chain
	rc, voucher, err := c.accept(e, time.Now())
	if errors.Is(err, errBadReceipt) {
		a.r.drop("receipt", err)
		_ = s.Send(work.Frame{Cancel: &work.Cancel{Reason: "bad_receipt"}})
		return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "bad_receipt"}, nil
	}
	if err != nil {
		return nil, err
	}
	if voucher == nil { // it came again; so does the last voucher, in case that was lost
		if c.voucher != nil {
			if _, env, err := a.r.o.Store.LastVoucher(a.h.id); err == nil {
				return nil, s.Send(work.Frame{Voucher: &env})
			}
		}
		return nil, nil
	}
	if err := s.Send(work.Frame{Voucher: voucher}); err != nil {
		return nil, err
	}
	a.came()
	if err := a.t.update(func(j *Job) { c.book(j, a.t.base) }); err != nil {
		return nil, err
	}
	a.t.emit(Event{Kind: EvReceipt, Receipt: receiptEvent(*rc, a.t.snapshot().Cost)})
	a.t.emit(Event{Kind: EvVoucher, Voucher: &VoucherEvent{Seq: c.voucher.Seq, Total: c.voucher.Total, AckSeq: c.voucher.AckSeq}})
	return nil, nil
}

func receiptEvent(rc receipt.Receipt, cost market.MicroUSD) *ReceiptEvent {
	e := &ReceiptEvent{Seq: rc.Seq, State: rc.State.String(), RanMS: rc.Cum[billable], Cost: cost, Simulated: rc.Simulated}
	for f, v := range rc.Tel {
		if e.Telemetry == nil {
			e.Telemetry = map[string]uint64{}
		}
		e.Telemetry[f.String()] = v
	}
	return e
}

// checkResult reports a result that the last receipt does not bear out, or that lacks what the end of a job has.
func (a *attendance) checkResult(res work.Result) error {
	switch tail := a.h.chain.tail; {
	case res.Code > market.CodeUnpaid:
		return errors.New("it has an unknown code")
	case res.Code != market.CodeDone:
		return nil
	case tail.Last.State != receipt.Final:
		return errors.New("it states the end of the job, and there is no final receipt")
	case res.ExitCode == nil || *res.ExitCode > math.MaxUint32 || res.Manifest == nil:
		return errors.New("it states the end of the job without exit code or outputs")
	}
	return nil
}

// checkOutcome holds the provider's outcome against what this side has.
func (a *attendance) checkOutcome(e attest.Envelope) error {
	if e.Signer != a.h.provider {
		return errors.New("not the provider's")
	}
	o, err := market.OpenOutcome(e, a.r.network, a.h.id, a.h.lease)
	if err != nil {
		return err
	}
	if o.LastSeq != a.h.chain.tail.Seq {
		return fmt.Errorf("it states %d receipts, here are %d", o.LastSeq, a.h.chain.tail.Seq)
	}
	a.stated = o
	return a.r.checkOutcome(o, a.h.lease)
}

// sameEnd reports whether result and outcome of the provider say the same.
func sameEnd(res work.Result, o market.Outcome) bool {
	code := func(p *uint64) uint64 {
		if p == nil {
			return math.MaxUint64 // no exit code is as large
		}
		return *p
	}
	return res.Code == o.Code && code(res.ExitCode) == code(o.ExitCode)
}

// ended returns the end of the lease once result, outputs and outcome are here. It signs the outcome too and sends it.
func (a *attendance) ended(s *work.Session) *leaseEnd {
	if a.theirs == nil || a.result == nil || !a.fetched {
		return nil
	}
	end := &leaseEnd{code: a.result.Code, reason: a.result.Reason, result: a.result}
	end.move = a.result.Code == market.CodeProviderAbort
	if !sameEnd(*a.result, a.stated) {
		a.r.log.Warn("outcome is not what the result was", "lease", a.h.id.Short())
		return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "bad_outcome"}
	}
	mine, err := a.r.countersign(a.h, *a.theirs, a.stated)
	if err != nil {
		a.r.log.Warn("outcome is not countersigned", "lease", a.h.id.Short(), "err", err)
		return end
	}
	end.mine = mine
	if err := s.Send(work.Frame{Outcome: mine}); err != nil {
		a.r.log.Debug("outcome did not reach the provider", "lease", a.h.id.Short(), "err", err)
	}
	return end
}
