package renter

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// recover takes up the jobs that the store knows. One with a lease in force is attended again; one that was between
// leases goes on with a new auction.
func (r *Renter) recover() error {
	var open, over []*task
	err := r.o.Store.Jobs(func(id string, value []byte) error {
		var j Job
		if err := json.Unmarshal(value, &j); err != nil {
			return fmt.Errorf("job %s: %w", id, err)
		}
		t, err := r.newTask(j)
		if err != nil {
			return err
		}
		if j.State.Final() {
			t.finish()
			over = append(over, t)
			return nil
		}
		open = append(open, t)
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range slices.Concat(over, open) {
		r.recoverInputs(t)
	}
	for _, t := range open {
		h, err := r.openHire(t)
		if err != nil { // nothing is signed on that lease again; the job goes on with another, and the others with theirs
			r.log.Error("lease is not taken up", "job", t.job.ID, "err", err)
			if err := r.abandon(*t.job.Lease); err != nil {
				r.log.Error("lease is not abandoned", "job", t.job.ID, "err", err)
			}
		}
		if h == nil {
			ended, err := r.settleOld(t)
			if err != nil {
				r.log.Error("end of a lease is not read", "job", t.job.ID, "err", err)
			}
			if ended {
				t.finish()
				over = append(over, t)
				continue
			}
		}
		r.log.Info("job is taken up", "job", t.job.ID, "attended", h != nil)
		r.start(t, func(ctx context.Context) { r.rent(ctx, t, h) })
	}
	var left []attest.Digest // by jobs that were over when this process was cut off
	for _, t := range over {
		left = append(left, t.needs()...)
	}
	r.discard(left)
	return nil
}

// recoverInputs notes which blobs a job needed for its last lease.
func (r *Renter) recoverInputs(t *task) {
	if t.job.Lease == nil {
		return
	}
	p, err := r.preparedBefore(*t.job.Lease)
	if err != nil {
		r.log.Warn("inputs of a job are not known", "job", t.job.ID, "err", err)
		return
	}
	t.setInputs(p.blobs)
}

// abandon gives up a lease of which something cannot be read.
func (r *Renter) abandon(id attest.Digest) error {
	rec, err := r.record(id)
	if err != nil || rec.State.Final() {
		return err
	}
	rec.Abandon(time.Now().UnixMilli())
	b, err := attest.Marshal(rec)
	if err != nil {
		return err
	}
	return r.o.Store.SaveLease(id, b)
}

// settleOld ends a job whose last lease had ended for good when this process was cut off, before the job was written.
func (r *Renter) settleOld(t *task) (over bool, err error) {
	j := t.snapshot()
	if j.Lease == nil || j.State == JobMoving {
		return false, nil
	}
	outcomes, err := r.o.Store.Outcomes(*j.Lease)
	if err != nil {
		return false, err
	}
	for _, e := range outcomes {
		o, err := attest.Decode[market.Outcome](e)
		if err != nil {
			return false, err
		}
		if e.Signer != r.o.Signer.Key() {
			continue
		}
		if err := r.learnOld(t, *j.Lease, o); err != nil { // the job's own end does not wait for that
			r.log.Error("end of a lease is not learned from", "job", j.ID, "err", err)
		}
		if o.Code.ProviderFault() {
			continue
		}
		end := leaseEnd{code: o.Code, reason: o.Reason, result: &work.Result{Code: o.Code, Reason: o.Reason, ExitCode: o.ExitCode}}
		return true, r.settleJob(t, end)
	}
	return false, nil
}

// learnOld learns from the end of a lease what the process before may not have come to.
func (r *Renter) learnOld(t *task, id attest.Digest, o market.Outcome) error {
	c, err := r.loadTail(id)
	if err != nil {
		return err
	}
	return r.learn(t, id, c, o.Code, o.Reason)
}

// openHire returns the lease of a job that is in force, nil if there is none.
func (r *Renter) openHire(t *task) (*hire, error) {
	j := t.snapshot()
	if j.Lease == nil {
		return nil, nil
	}
	rec, err := r.record(*j.Lease)
	if err != nil {
		return nil, err
	}
	if rec.State.Final() || rec.State == market.Offered {
		return nil, nil
	}
	c, err := r.loadChain(*j.Lease)
	if err != nil {
		return nil, err
	}
	h := &hire{lease: c.lease, id: *j.Lease, provider: c.lease.Provider, chain: c, logBase: min(rec.LogBase, t.log.Size()), resumed: rec.State != market.Awarded}
	work, err := r.preparedBefore(*j.Lease)
	if err != nil {
		return nil, err
	}
	terms, blobs := work.leaseTerms(j)
	h.stop = r.serve(t.inputsFor(h.provider, terms, blobs))
	return h, nil
}
