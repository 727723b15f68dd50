package renter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// recover takes up the jobs that the store knows. One with a lease in force is attended again; one that was between
// leases goes on with a new auction.
func (r *Renter) recover() error {
	var open []*task
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
			return nil
		}
		open = append(open, t)
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range open {
		h, err := r.openHire(t)
		if err != nil {
			return err
		}
		if h == nil {
			over, err := r.settleOld(t)
			if err != nil {
				return err
			}
			if over {
				t.finish()
				continue
			}
		}
		r.log.Info("job is taken up", "job", t.job.ID, "attended", h != nil)
		r.start(t, func(ctx context.Context) { r.rent(ctx, t, h) })
	}
	return nil
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
		if e.Signer != r.o.Signer.Key() || o.Code.ProviderFault() {
			continue
		}
		end := leaseEnd{code: o.Code, reason: o.Reason, result: &work.Result{Code: o.Code, Reason: o.Reason, ExitCode: o.ExitCode}}
		return true, r.settleJob(t, end)
	}
	return false, nil
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
	c.stop = r.serve(t.inputsFor(h.provider, terms, blobs))
	return h, nil
}
