package renter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
)

// maxMoves bounds how often one job moves to another provider.
const maxMoves = 10

// hire is one lease of a job in the renter's hands.
type hire struct {
	lease    market.Lease
	id       attest.Digest
	provider attest.Key
	chain    *chain
	stop     func() // ends the serving of its blobs
	logBase  uint64 // where this lease's output begins in the job's log
	resumed  bool   // the lease was started before this process attended it
}

// rent is a job's way. It returns when the job is over, or when ctx ends and the job goes on without us. With h it
// begins with a lease that is in force.
func (r *Renter) rent(ctx context.Context, t *task, h *hire) {
	work, err := r.prepare(ctx, t)
	if errors.Is(err, errStopped) {
		err = t.over(JobStopped, "stopped", err.Error())
		if err == nil {
			return
		}
	}
	if err != nil {
		t.fail(err)
		return
	}
	var standing runnersUp
	for {
		if h == nil {
			if h, standing, err = r.hire(ctx, t, work, standing); err != nil {
				t.fail(err)
				return
			}
			if h == nil {
				return // nobody made an acceptable offer, a dry run, or stopped; the job says which
			}
		}
		end := r.attend(ctx, t, h)
		if end.detached {
			return
		}
		if err := r.settle(ctx, t, h, end); err != nil {
			t.fail(err)
			return
		}
		if !end.move {
			return
		}
		t.moves++
		r.metrics.moves.Inc()
		standing = standing.without(h.provider)
		h = nil
	}
}

// runnersUp are the offers of an auction that may still bind when its winner is lost.
type runnersUp struct {
	record  auction.Record  // of the auction
	entries []auction.Entry // best first
}

func (u runnersUp) without(k attest.Key) runnersUp {
	u.entries = slices.DeleteFunc(slices.Clone(u.entries), func(e auction.Entry) bool { return e.Offer.Provider == k })
	return u
}

// fail ends a job by a fault on this side.
func (t *task) fail(err error) {
	if errors.Is(err, context.Canceled) {
		return // this process ends; the next one takes the job up
	}
	t.r.log.Warn("job failed", "job", t.job.ID, "err", err)
	if err := t.over(JobError, "local_error", err.Error()); err != nil {
		t.r.log.Error("job cannot be written", "job", t.job.ID, "err", err)
	}
}

// over puts a job into a final state.
func (t *task) over(state JobState, reason, detail string) error {
	now := time.Now().UTC()
	return t.update(func(j *Job) {
		j.State, j.Reason, j.EndedAt, j.LogBytes = state, reason, &now, t.log.Size()
		if detail != "" { // else it stays: it may say where the outputs are
			j.Detail = detail
		}
	})
}

// Announcements of a bid that waits: the first pause, the longest in the first minute, and the longest of all. After the
// first minute a pause is a sixth of the time waited, so that a bid that waits for days is no burden to the network, and a
// provider that comes later still hears of it before long.
const (
	firstPause  = time.Second
	minutePause = 10 * time.Second
	longPause   = 5 * time.Minute
	waitShare   = 6
)

// hire finds the job a provider: a runner-up whose offer still binds, the winner of an auction, or the first acceptable
// offer that comes while the job waits. It returns nil without error if the job ended instead.
func (r *Renter) hire(ctx context.Context, t *task, work prepared, standing runnersUp) (h *hire, rest runnersUp, err error) {
	began := time.Now()
	v := r.newVigil(t)
	defer v.close()
	for pause := firstPause; ; pause = min(2*pause, max(minutePause, time.Since(began)/waitShare), longPause) {
		if t.isStopped() {
			return nil, rest, t.over(JobStopped, "stopped", errStopped.Error())
		}
		if h, rest, err := r.awardStanding(ctx, v, work, standing); h != nil || err != nil {
			return h, rest, err
		}
		standing = runnersUp{}
		if what, left := remaining(t.snapshot()); !left {
			return nil, rest, t.over(JobStopped, what, "nothing is left of the "+what+" for another provider")
		}
		a, err := r.holdAuction(ctx, v)
		if err != nil {
			return nil, rest, err
		}
		if t.snapshot().DryRun {
			return nil, rest, r.endDryRun(t, a)
		}
		h, rest, err := r.award(ctx, v, work, a)
		worth := v.worthWaiting(a)
		if h == nil && err == nil && worth {
			h, rest, err = v.await(ctx, work, min(pause, time.Until(v.deadline)))
		}
		if h != nil || err != nil {
			return h, rest, err
		}
		if !t.isStopped() && (!worth || !time.Now().Before(v.deadline)) {
			return nil, rest, r.endUnhired(t, a)
		}
	}
}

// endDryRun ends a job that was only to show its auction.
func (r *Renter) endDryRun(t *task, a *openAuction) error {
	if err := r.saveAuction(t, a.number, a.record); err != nil {
		return err
	}
	if len(auction.Clear(a.id, a.record.Entries)) == 0 {
		return t.over(JobNoOffer, "no_offer", a.summary())
	}
	return t.over(JobSucceeded, "dry_run", a.summary())
}

// endUnhired ends a job that nobody takes.
func (r *Renter) endUnhired(t *task, a *openAuction) error {
	switch {
	case t.lastLoss != "": // it ran before, so this is how a running job ended
		return t.over(JobStopped, t.lastLoss, "no other provider: "+a.summary())
	case a.limited() > 0:
		return t.over(JobNoOffer, auction.RelayLimited, a.summary())
	}
	return t.over(JobNoOffer, "no_offer", a.summary())
}

// remaining reports whether the job has budget and time left for another lease; what names what ran out.
func remaining(j Job) (what string, ok bool) {
	if j.Cost >= j.Spec.Budget {
		return "budget", false
	}
	if left := j.Spec.Duration - ranTime(j); left < time.Second {
		return "duration", false
	}
	return "", true
}

func ranTime(j Job) time.Duration {
	return time.Duration(j.RanMS/uint64(j.Spec.Count())) * time.Millisecond
}

func (t *task) isStopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// awardStanding asks the runners-up of the last auction whose offers still bind, best first. The choice is kept as a record
// of its own: the auction's, with all who were asked before.
func (r *Renter) awardStanding(ctx context.Context, v *vigil, work prepared, standing runnersUp) (*hire, runnersUp, error) {
	t, rec := v.t, standing.record
	if rec.Award != nil {
		rec.Failed = append(slices.Clone(rec.Failed), *rec.Award)
	}
	before := rec.Lease
	for i, e := range standing.entries {
		if time.Until(time.UnixMilli(e.Offer.FirmUntil)) < 2*time.Second {
			rec.Failed = append(slices.Clone(rec.Failed), e.Offer.Provider)
			continue
		}
		h, _, err := r.tryAward(ctx, v, work, standing.entries[i:], &rec)
		if err != nil {
			return nil, runnersUp{}, err
		}
		if h == nil {
			continue
		}
		rec.Follows = before
		if err := t.update(func(j *Job) { j.Attempts++ }); err != nil { // it numbers the records too
			return nil, runnersUp{}, err
		}
		if err := r.saveAuction(t, t.snapshot().Attempts, rec); err != nil {
			return nil, runnersUp{}, err
		}
		rest := runnersUp{record: rec, entries: standing.entries[i+1:]}
		ev := awardEvent(h, e, rec, rest.entries)
		ev.RunnerUp = true
		t.emit(Event{Kind: EvAward, Award: ev})
		return h, rest, nil
	}
	return nil, runnersUp{}, nil
}

// limited returns how many providers were passed over since only a limited relay leads to them.
func (a *openAuction) limited() int {
	n := 0
	for _, u := range a.record.Unreached {
		if u.Reason == auction.RelayLimited {
			n++
		}
	}
	return n
}

// summary says in a few words why nobody won.
func (a *openAuction) summary() string {
	if n := a.limited(); n > 0 {
		who := "1 provider"
		if n > 1 {
			who = fmt.Sprintf("%d providers", n)
		}
		return who + " can be reached only through a limited relay, which carries no job data; nothing was signed and nothing is owed. " +
			"It takes an open port or UPnP on one of the two sides, or a relay whose owner lets data pass"
	}
	if a.record.Received == 0 && a.record.DeclineCount == 0 {
		if a.record.Heard == 0 {
			return "nobody heard the bid"
		}
		if a.record.Heard == 1 {
			return "1 peer could hear the bid, it did not answer"
		}
		return fmt.Sprintf("%d peers could hear the bid, none answered", a.record.Heard)
	}
	return fmt.Sprintf("none of %d offers is acceptable, and %d providers declined", a.record.Received, a.record.DeclineCount)
}
