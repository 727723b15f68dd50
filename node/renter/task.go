package renter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/store"
)

// task is a job in the hands of this process.
type task struct {
	r      *Renter
	dir    string
	log    *joblog.Log
	cancel context.CancelFunc // asks the job to stop; see Stop

	mu      sync.Mutex
	changed chan struct{}
	job     Job
	events  []Event               // in order, those that are kept
	seq     uint64                // of the last event
	stopped bool                  // Stop was called
	ended   bool                  // nothing more will happen
	base    totals                // the job's figures over the leases before the one attended last
	baseOf  attest.Digest         // which is this
	told    time.Time             // last event about a transfer
	inputs  []attest.Digest       // module and inputs
	coming  map[attest.Digest]int // blobs that are being fetched, see expect

	// What follows belongs to the job's own goroutine, but for lost, which is under mu too.
	moves    int          // times the job moved to another provider
	lost     []attest.Key // providers that lost it
	lastLoss string       // why the last one did
}

const (
	// maxEvents bounds the events that are kept of a job; of more, the oldest are forgotten.
	maxEvents = 10_000
	// tailEvents are kept whole of a job that is over; of the events before, those that come by the clock are forgotten.
	tailEvents = 1000
)

// emit tells an event to whoever follows the job.
func (t *task) emit(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emitLocked(e)
}

func (t *task) emitLocked(e Event) {
	if len(t.events) >= maxEvents {
		t.events = slices.Clone(t.events[len(t.events)/2:])
	}
	t.seq++
	e.Seq = t.seq
	e.At = time.Now().UTC()
	t.events = append(t.events, e)
	close(t.changed)
	t.changed = make(chan struct{})
}

// transferEvery is the least time between two events about a transfer that goes on.
const transferEvery = 200 * time.Millisecond

// transfer tells how far a transfer is, from time to time and at its end.
func (t *task) transfer(e TransferEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.told) < transferEvery && e.Done < e.Total {
		return
	}
	t.told = now
	t.emitLocked(Event{Kind: EvTransfer, Transfer: &e})
}

// update changes the job and writes it down, synced. If the state changes, an event says so.
func (t *task) update(f func(j *Job)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.job.State
	f(&t.job)
	if err := t.save(); err != nil {
		return fmt.Errorf("write job: %w", err)
	}
	if t.job.State != before {
		copied := t.job
		t.emitLocked(Event{Kind: EvState, Job: &copied})
	}
	return nil
}

// save writes the job down, without the list of outputs, which lies among the blobs. A job that has grown too large for
// a record is written without its checkpoint: its end must not fail for that.
func (t *task) save() error {
	j := t.job
	j.Outputs = nil
	for {
		b, err := json.Marshal(j)
		if err != nil {
			return err
		}
		err = t.r.o.Store.SaveJob(j.ID, b)
		if !errors.Is(err, store.ErrTooBig) || j.Checkpoint == nil {
			return err
		}
		t.r.log.Warn("checkpoint has too many files to be written down; after a restart the job would begin anew", "job", j.ID)
		j.Checkpoint = nil
	}
}

func (t *task) snapshot() Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.job
}

// finish says that nothing more will happen to the job in this process.
func (t *task) finish() {
	if err := t.log.Close(); err != nil { // it can still be read
		t.r.log.Warn("job log is not closed", "job", t.job.ID, "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if cut := len(t.events) - tailEvents; cut > 0 {
		t.events = slices.Concat(slices.DeleteFunc(slices.Clone(t.events[:cut]), byClock), t.events[cut:])
	}
	t.ended = true
	close(t.changed)
	t.changed = make(chan struct{})
}

// byClock reports whether an event is one of those that come again and again while a job runs.
func byClock(e Event) bool {
	return e.Kind == EvReceipt || e.Kind == EvVoucher || e.Kind == EvTransfer || e.Kind == EvCheckpoint
}
