package provider

import (
	"context"
	"errors"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// Work serves one work stream. The first frame names the lease; after a break the same renter opens another one and
// says what it has.
func (p *Provider) Work(ctx context.Context, s *work.Session) {
	if !p.started(ctx) {
		return
	}
	f, err := s.Recv()
	if err != nil || f.Start == nil {
		p.metrics.dropped.WithLabelValues("work").Inc()
		return
	}
	p.mu.Lock()
	t := p.tenancies[f.Start.Lease]
	p.mu.Unlock()
	if t == nil || t.lease.Renter != s.Peer() {
		_ = s.Send(work.Frame{Cancel: &work.Cancel{Reason: "unknown_lease"}})
		return
	}
	t.attach(*f.Start)
	ctx, cancel := context.WithCancel(ctx)
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		if err := t.pump(ctx, s, *f.Start); err != nil {
			p.log.Debug("work stream ended", "lease", t.id.Short(), "err", err)
			s.Abort() // ends the reading below too
		}
	}()
	t.listen(s)
	cancel()
	<-pumped
	t.update(func() { t.sessions-- })
	if t.claimed() {
		p.drop(t)
	}
}

// drop forgets a lease of which both sides signed the end.
func (p *Provider) drop(t *tenancy) {
	t.mu.Lock()
	over := t.done && t.sessions == 0
	t.mu.Unlock()
	if over {
		p.discard(t)
	}
}

// discard forgets a lease and what is left of it on this machine.
func (p *Provider) discard(t *tenancy) {
	p.mu.Lock()
	_, mine := p.tenancies[t.id]
	delete(p.tenancies, t.id)
	p.mu.Unlock()
	if mine {
		t.scrub()
	}
}

func (t *tenancy) attach(s work.Start) {
	t.update(func() {
		t.sessions++
		t.ckptSeen = max(t.ckptSeen, s.Checkpoint)
		select {
		case <-t.started:
		default:
			t.challenge = s.Challenge
			t.rec.Challenge = s.Challenge
			close(t.started)
		}
	})
}

// listen takes what the renter sends until the stream ends.
func (t *tenancy) listen(s *work.Session) {
	for {
		f, err := s.Recv()
		if err != nil {
			return
		}
		switch {
		case f.Voucher != nil:
			if err := t.takeVoucher(*f.Voucher); err != nil {
				t.p.metrics.dropped.WithLabelValues("voucher").Inc()
				t.p.log.Debug("voucher is not accepted", "lease", t.id.Short(), "err", err)
			}
		case f.Ack != nil:
			t.update(func() { t.ckptSeen = max(t.ckptSeen, f.Ack.Checkpoint) })
		case f.Cancel != nil:
			t.stop(stopCause{market.CodeRenterCancel, f.Cancel.Reason})
		case f.Outcome != nil:
			if err := t.takeOutcome(*f.Outcome); err != nil {
				t.p.metrics.dropped.WithLabelValues("outcome").Inc()
				t.p.log.Debug("outcome is not accepted", "lease", t.id.Short(), "err", err)
			}
			if t.claimed() {
				return // both sides have all; the stream closes in order
			}
		}
	}
}

// takeVoucher checks a voucher against the receipts it acknowledges and stores it, synced. An older one than is known
// changes nothing.
func (t *tenancy) takeVoucher(e attest.Envelope) error {
	v, err := market.OpenVoucher(e, t.p.network, t.lease.Renter)
	if err != nil {
		return err
	}
	t.mu.Lock()
	tail, last := t.tail, t.voucher
	t.mu.Unlock()
	acked, ack, err := t.usageAt(v.AckSeq, tail)
	if err != nil {
		return err
	}
	if err := market.CheckVoucher(v, t.lease, t.id, acked, ack, last); errors.Is(err, market.ErrStale) {
		return nil // late or repeated
	} else if err != nil {
		return err
	}
	if err := t.p.o.Store.AppendVoucher(t.id, v.Seq, e); err != nil {
		return err
	}
	t.p.metrics.vouchers.Inc()
	t.update(func() { t.voucher, t.voucherID, t.challenge = &v, e.ID(), v.Challenge })
	return nil
}

// usageAt returns the cumulative usage and the id of a receipt.
func (t *tenancy) usageAt(seq uint64, tail receipt.Tail) (gpu.Usage, attest.Digest, error) {
	if seq == tail.Seq {
		return tail.Last.Cum, tail.ID, nil
	}
	env, err := t.p.o.Store.Receipt(t.id, seq)
	if err != nil {
		return nil, attest.Digest{}, err
	}
	r, err := attest.Decode[receipt.Receipt](env)
	return r.Cum, env.ID(), err
}

// takeOutcome stores the renter's word on how the lease ended, if it holds. If the lease is in force, it ends either way.
func (t *tenancy) takeOutcome(e attest.Envelope) error {
	o, err := market.OpenOutcome(e, t.p.network, t.id, t.lease)
	if err != nil {
		return err
	}
	if e.Signer != t.lease.Renter {
		return errors.New("outcome is not the renter's")
	}
	t.stop(stopCause{market.CodeRenterCancel, "renter_ended"})
	var last attest.Envelope
	if o.LastSeq > 0 {
		if last, err = t.p.o.Store.Receipt(t.id, o.LastSeq); err != nil {
			return err
		}
	}
	vouchers, err := t.p.o.Store.Vouchers(t.id)
	if err != nil {
		return err
	}
	if err := ledger.CheckOutcome(o, t.lease, last, vouchers); err != nil {
		return err
	}
	if err := t.p.o.Store.PutOutcome(t.id, e); err != nil {
		return err
	}
	t.update(func() { t.theirs = &e })
	return nil
}

// cursor is how far a work stream has been told.
type cursor struct {
	ready      bool
	receipt    uint64
	log        uint64
	checkpoint uint64
	result     bool
	outcome    bool
}

// pump sends whatever the renter does not have yet, and waits for more. It is the same after a break as at the start.
func (t *tenancy) pump(ctx context.Context, s *work.Session, start work.Start) error {
	cur := cursor{receipt: start.Receipt, log: start.LogOffset, checkpoint: start.Checkpoint}
	for {
		t.mu.Lock()
		changed, void := t.changed, t.rec.State == market.Void
		t.mu.Unlock()
		if void { // the start came too late
			return s.Send(work.Frame{Cancel: &work.Cancel{Reason: "no_start"}})
		}
		logChanged, more, err := t.sendNew(s, &cur)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Done():
			return nil
		case <-changed:
		case <-logChanged:
		}
	}
}

// logBurst bounds the pieces of log between two looks at what matters more.
const logBurst = 8

// sendNew sends what is new since the cursor. It returns what to wait for if the log grows, and whether there is more
// already.
func (t *tenancy) sendNew(s *work.Session, cur *cursor) (<-chan struct{}, bool, error) {
	t.mu.Lock()
	ready, resumed, tail, ckpt, result, mine := t.readyAt, len(t.terms.Resume) > 0, t.tail, t.ckpt, t.result, t.mine
	t.mu.Unlock()
	if !ready.IsZero() && !cur.ready {
		if err := s.Send(work.Frame{Ready: &work.Ready{StartedAt: ready.UnixMilli(), Resumed: resumed}}); err != nil {
			return nil, false, err
		}
		cur.ready = true
	}
	for cur.receipt < tail.Seq {
		env, err := t.p.o.Store.Receipt(t.id, cur.receipt+1)
		if err != nil {
			return nil, false, err
		}
		if err := s.Send(work.Frame{Receipt: &env}); err != nil {
			return nil, false, err
		}
		cur.receipt++
	}
	if ckpt != nil && ckpt.Seq > cur.checkpoint {
		if err := s.Send(work.Frame{Checkpoint: ckpt}); err != nil {
			return nil, false, err
		}
		cur.checkpoint = ckpt.Seq
	}
	logChanged, more, err := t.sendLog(s, cur)
	if err != nil || more {
		return logChanged, more, err
	}
	if result != nil && !cur.result {
		if err := s.Send(work.Frame{Result: result}); err != nil {
			return nil, false, err
		}
		cur.result = true
	}
	if mine != nil && cur.result && !cur.outcome {
		if err := s.Send(work.Frame{Outcome: mine}); err != nil {
			return nil, false, err
		}
		cur.outcome = true
	}
	return logChanged, false, nil
}

func (t *tenancy) sendLog(s *work.Session, cur *cursor) (<-chan struct{}, bool, error) {
	for range logBurst {
		c, changed, _, err := t.log.ReadFrom(cur.log)
		if err != nil {
			return nil, false, err
		}
		if len(c.Data) == 0 {
			return changed, false, nil
		}
		if err := s.Send(work.Frame{Log: &work.Log{Stream: uint8(c.Stream), Offset: c.Offset, Data: c.Data}}); err != nil {
			return nil, false, err
		}
		cur.log += uint64(len(c.Data))
	}
	return nil, true, nil
}
