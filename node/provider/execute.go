package provider

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/gpu/meter"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/store"
)

// unpaidPause is how long a job stands still for want of vouchers before it ends.
const unpaidPause = 10 * time.Second

// live is the lease's life after both signed: start, staging, run, end.
func (t *tenancy) live(ctx context.Context) {
	defer t.leave()
	if !t.awaitStart(ctx) {
		return
	}
	now := time.Now()
	t.p.mu.Lock()
	err := t.p.plan.Take(ids(t.devices), t.id, now)
	t.p.mu.Unlock()
	if err == nil {
		err = t.advance(market.EvStart)
	}
	if err != nil {
		t.p.log.Error("lease cannot start", "lease", t.id.Short(), "err", err)
		t.end(ctx, ending{cause: stopCause{market.CodeProviderAbort, "start_failed"}})
		return
	}
	job, cause := t.stage(ctx)
	if cause != nil {
		t.end(ctx, ending{cause: *cause})
		return
	}
	t.end(ctx, t.run(ctx, job))
}

// awaitStart waits for the first work frame, as long as the award holds the devices.
func (t *tenancy) awaitStart(ctx context.Context) bool {
	hold := time.NewTimer(market.HoldTime)
	defer hold.Stop()
	select {
	case <-t.started:
		return true
	case <-hold.C:
	case <-t.stopped:
	case <-ctx.Done():
	}
	t.mu.Lock()
	t.rec.Reason = "no_start"
	t.mu.Unlock()
	if err := t.advance(market.EvExpire); err != nil {
		t.p.log.Error("lease cannot be written", "lease", t.id.Short(), "err", err)
	}
	return false
}

// leave ends what live does. What the renter may still claim stays.
func (t *tenancy) leave() {
	t.free()
	t.update(func() { t.done = true })
	switch {
	case t.void():
		t.p.discard(t)
	case t.claimed():
		t.p.drop(t) // the stream may have ended before this
	}
}

// free gives the devices back, to the plan and to the renter's credit. A second call does nothing.
func (t *tenancy) free() {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if t.freed {
		return
	}
	t.freed = true
	t.p.plan.Release(t.id)
	t.p.credit.use(t.lease.Renter, -len(t.lease.Devices))
	delete(t.p.credit.running, t.id)
	t.p.wake()
}

// stage brings module, inputs and checkpoint here. It is free, and bounded in time.
func (t *tenancy) stage(ctx context.Context) (runner.Job, *stopCause) {
	ctx, cancel := context.WithTimeout(ctx, market.StageMax)
	defer cancel()
	go func() { // a stop ends the transfers
		select {
		case <-t.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	job, err := t.fetchAll(ctx)
	switch {
	case err == nil:
		return job, nil
	case t.why() != nil:
		return job, t.why()
	}
	t.p.log.Warn("inputs did not arrive", "lease", t.id.Short(), "err", err)
	switch {
	case errors.Is(err, errLocal):
		return job, &stopCause{market.CodeProviderAbort, "stage_failed"}
	case errors.Is(err, errJob):
		return job, &stopCause{market.CodeLimit, "invalid_job"}
	}
	return job, &stopCause{market.CodeLimit, "inputs_unavailable"}
}

// errJob marks a job that no provider could run, such as one whose folders lie in one another.
var errJob = errors.New("job is not valid")

// errLocal marks a fault of this machine, not of the renter.
var errLocal = errors.New("on this machine")

func (t *tenancy) fetchAll(ctx context.Context) (runner.Job, error) {
	files := append([]market.File{{Digest: t.terms.Module, Bytes: t.terms.ModuleBytes}}, t.terms.Inputs...)
	for _, f := range append(files, t.terms.Resume...) {
		if spare, err := t.p.o.Store.Spare(); err != nil || spare < f.Bytes { // others may have filled the disk since the award
			return runner.Job{}, fmt.Errorf("%w: no room for %s: %w", errLocal, f.Digest.Short(), cmp.Or(err, store.ErrNoSpace))
		}
		if err := t.p.o.Blobs.Fetch(ctx, t.lease.Renter, nil, f.Digest, f.Bytes, nil); err != nil {
			return runner.Job{}, fmt.Errorf("fetch %s: %w", f.Digest.Short(), err)
		}
	}
	blobs := t.p.o.Files
	job := runner.Job{ID: t.id.Hex(), Dir: filepath.Join(t.dir, "run"), Module: blobs.Path(t.terms.Module), Args: t.terms.Args,
		Env: map[string]string{}, Outputs: t.terms.Outputs, Checkpoint: t.terms.Checkpoint, Resumed: len(t.terms.Resume) > 0,
		MemBytes: t.terms.MemBytes, LogBytes: t.terms.LogBytes, DiskBytes: t.terms.DiskBytes,
		Deadline: time.Duration(t.lease.DurationMS) * time.Millisecond,
		Log: func(s runner.Stream, p []byte) {
			if err := t.log.Append(int(s), p); err != nil {
				t.p.log.Warn("job log is not written", "lease", t.id.Short(), "err", err)
			}
		}}
	for _, v := range t.terms.Env {
		job.Env[v.Name] = v.Value
	}
	for _, f := range t.terms.Inputs {
		job.Inputs = append(job.Inputs, runner.Mount{Host: blobs.Path(f.Digest), Guest: f.Path})
	}
	if err := job.Validate(); err != nil {
		return job, fmt.Errorf("%w: %w", errJob, err)
	}
	if err := os.MkdirAll(job.Dir, 0o700); err != nil {
		return job, fmt.Errorf("%w: %w", errLocal, err)
	}
	for _, f := range t.terms.Resume {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) { // as a backslash may make it where that separates folders
			return job, fmt.Errorf("%w: checkpoint file %.80q", errJob, f.Path)
		}
		if err := placeFile(blobs.Path(f.Digest), filepath.Join(job.OutputDir(t.terms.Checkpoint), filepath.FromSlash(f.Path))); err != nil {
			return job, fmt.Errorf("%w: place checkpoint: %w", errLocal, err)
		}
	}
	return job, nil
}

func placeFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// ending is how a run came to its end.
type ending struct {
	cause  stopCause
	result *runner.Result // nil if no process ran
	job    runner.Job
	cut    func(receipt.State, *attest.Digest) error // makes the last receipt; nil if no process ran
}

// run starts the process and meters it until it ends.
func (t *tenancy) run(ctx context.Context, job runner.Job) ending {
	if c := t.why(); c != nil {
		return ending{cause: *c}
	}
	proc, err := t.p.o.Runner.Start(context.WithoutCancel(ctx), job)
	if err != nil {
		t.p.log.Warn("job does not start", "lease", t.id.Short(), "err", err)
		return ending{cause: stopCause{market.CodeProviderAbort, "start_failed"}}
	}
	m := t.newMetering()
	now := time.Now()
	for _, d := range t.devices {
		t.p.o.Devices.LeaseStarted(d.ID, now)
	}
	defer func() {
		for _, d := range t.devices {
			t.p.o.Devices.LeaseEnded(d.ID)
		}
	}()
	t.update(func() { t.readyAt, t.rec.ReadyAt = now, now.UnixMilli() })
	if err := t.advance(market.EvReady); err != nil {
		proc.Kill("store")
		return ending{cause: stopCause{market.CodeProviderAbort, "store_failed"}}
	}
	cause := t.meterUntilEnd(ctx, proc, m, newSnapshots(job, t.terms))
	res := proc.Result()
	m.pause()
	end := ending{result: &res, job: job, cut: m.cut}
	if cause != nil {
		end.cause = *cause
	} else {
		end.cause = causeOf(res)
	}
	return end
}

// causeOf says what a process's own end means for the lease.
func causeOf(r runner.Result) stopCause {
	switch r.State {
	case runner.Exited:
		return stopCause{code: market.CodeDone}
	case runner.Crashed:
		return stopCause{market.CodeProviderAbort, r.State.String()}
	}
	return stopCause{market.CodeLimit, r.State.String()}
}

// meterUntilEnd makes a receipt each interval and holds the next one against the gates. It returns why it ended the
// process, nil if that ended by itself.
func (t *tenancy) meterUntilEnd(ctx context.Context, proc runner.Process, m *metering, snaps *snapshots) *stopCause {
	interval := time.NewTicker(t.lease.Interval())
	defer interval.Stop()
	sample := time.NewTicker(t.p.o.Policy.Sample)
	defer sample.Stop()
	var keeping sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	keeping.Go(func() { t.keepSnapshots(watching, snaps) })
	defer keeping.Wait()
	defer stop()
	// patience is set while the job stands still for want of vouchers; changed then tells when one may have come.
	patience, changed := t.gate(proc, m, nil)
	m.sample()
	kill := func(c stopCause) *stopCause {
		proc.Kill(c.reason)
		<-proc.Done()
		return &c
	}
	for {
		select {
		case <-proc.Done():
			return nil
		case <-ctx.Done():
			return kill(stopCause{market.CodeProviderAbort, "provider_stopped"})
		case <-t.stopped:
			return kill(*t.why())
		case <-sample.C:
			m.sample()
		case <-patience:
			return kill(stopCause{market.CodeUnpaid, unpaidReasons[m.refused]})
		case <-changed:
		case <-interval.C:
			if patience != nil {
				continue
			}
			if err := m.cut(receipt.Running, nil); err != nil {
				t.p.log.Error("receipt cannot be made", "lease", t.id.Short(), "err", err)
				return kill(stopCause{market.CodeProviderAbort, "store_failed"})
			}
		}
		if due, _ := t.amounts(); !ledger.CheckBudget(t.lease, due, t.lease.IntervalCost()+1) {
			return kill(stopCause{market.CodeLimit, "budget"})
		}
		patience, changed = t.gate(proc, m, patience)
	}
}

// unpaidReasons say which gate a job stood before until its renter's time was up.
var unpaidReasons = map[ledger.Gate]string{ledger.AcknowledgementGate: "not_acknowledged", ledger.MoneyGate: "credit_exceeded"}

// gate pauses the process when the next interval may not begin, and lets it go on when it may. It returns what the
// loop should wait for meanwhile.
func (t *tenancy) gate(proc runner.Process, m *metering, patience <-chan time.Time) (<-chan time.Time, <-chan struct{}) {
	refusal := t.p.admit(t, time.Now())
	t.mu.Lock()
	changed := t.changed
	t.mu.Unlock()
	if refusal == nil {
		m.admit()
	}
	switch {
	case refusal == nil && patience == nil:
		return nil, nil
	case refusal == nil:
		m.resume()
		_ = proc.Resume() // it has ended if this fails, and the loop sees that
		_ = t.advance(market.EvResume)
		return nil, nil
	case patience == nil:
		m.refused = refusal.Gate
		t.p.log.Info("job stands still", "lease", t.id.Short(), "reason", refusal.Error())
		_ = proc.Pause()
		m.pause()
		_ = t.advance(market.EvPause)
		t.mu.Lock()
		changed = t.changed
		t.mu.Unlock()
		return time.After(unpaidPause), changed
	}
	return patience, changed
}

// metering turns time and samples into receipts.
type metering struct {
	t       *tenancy
	meter   *meter.Meter
	begin   time.Time     // monotonic zero
	anchor  int64         // Unix ms of the zero
	running bool          // the meter runs
	seen    time.Duration // when the meter was last told the time
	cutAt   time.Duration // running time at the last receipt
	most    time.Duration // running time that may be billed so far; see advance
	open    bool          // the interval since the last receipt is admitted
	refused ledger.Gate   // that the job stood before last
}

// newMetering starts the clock. Receipt time is the anchor plus monotonic time; the anchor is the wall clock, or the
// last time signed on one of these devices if the wall clock fell behind it.
func (t *tenancy) newMetering() *metering {
	m := &metering{t: t, meter: meter.New(len(t.devices)), begin: time.Now()}
	m.anchor = m.begin.UnixMilli()
	for _, d := range t.devices {
		if last, err := t.p.o.Store.Meta(lastTimeKey(d)); err == nil && len(last) == 8 {
			m.anchor = max(m.anchor, int64(binary.BigEndian.Uint64(last)))
		}
	}
	m.meter.Start(0)
	m.running = true
	return m
}

func lastTimeKey(d gpu.Device) string { return "last_time/" + d.ID }

// advance returns the time. An interval that runs late, because this machine was busy, is billed only as far as the
// gates and the budget admitted it.
func (m *metering) advance() time.Duration {
	at := time.Since(m.begin)
	if left := m.most - m.meter.Running(); m.running && at-m.seen > left {
		m.meter.Pause(m.seen + left)
		m.running = false
	}
	m.seen = at
	return at
}

// admit lets the interval that began with the last receipt be billed. What of it has run already counts.
func (m *metering) admit() {
	if m.open {
		return
	}
	m.open, m.most = true, min(m.cutAt+m.t.lease.Interval(), affordable(m.t.lease))
	m.resume()
}

func (m *metering) pause() {
	m.sample() // the device may rest from now on, and what it drew until here counts
	m.meter.Pause(m.advance())
	m.running = false
}

func (m *metering) resume() {
	at := m.advance()
	if m.meter.Running() < m.most {
		m.meter.Resume(at)
		m.running = true
	}
}

func (m *metering) sample() {
	now := time.Now()
	for _, d := range m.t.devices {
		if s, err := m.t.p.o.Devices.Sample(d.ID, now); err == nil {
			m.meter.Sample(m.advance(), s)
		}
	}
}

// cut signs the receipt of the interval that ends now and writes it, synced, before anyone sees it.
func (m *metering) cut(state receipt.State, out *attest.Digest) error {
	t := m.t
	if m.running || state == receipt.Running {
		m.sample() // but not of a device that rests already
	}
	at := m.advance()
	units, cum, tel := m.meter.Cut(at)
	t.mu.Lock()
	tail, challenge := t.tail, t.challenge
	t.mu.Unlock()
	t0 := max(tail.Last.T1, m.anchor)
	t1 := max(m.anchor+at.Milliseconds(), t0+1)
	r := receipt.Receipt{Version: 1, Lease: t.id, Seq: tail.Seq + 1, Prev: tail.ID, T0: t0, T1: t1, MonoMS: uint64(t1 - m.anchor),
		State: state, Units: units, Cum: cum, Tel: tel, Out: out, Challenge: challenge, Simulated: t.lease.Simulated}
	before, err := market.Due(t.lease.Price, tail.Last.Cum)
	if err != nil {
		return err
	}
	after, err := market.Due(t.lease.Price, cum) // before anything is signed: what has no price is not to be stated
	if err != nil {
		return err
	}
	env, err := t.p.o.Signer.Sign(receipt.Domain, r)
	if err != nil {
		return err
	}
	next, err := tail.Accept(r, env.ID())
	if err != nil {
		return fmt.Errorf("own receipt does not hold: %w", err)
	}
	var b store.Batch
	b.AppendReceipt(t.id, r.Seq, env)
	for _, d := range t.devices {
		b.SaveMeta(lastTimeKey(d), binary.BigEndian.AppendUint64(nil, uint64(t1)))
	}
	if err := t.p.o.Store.Commit(&b); err != nil {
		return err
	}
	t.p.mu.Lock()
	t.p.credit.add(t.lease.Renter, after-before, time.Now())
	delete(t.p.credit.running, t.id) // until the gates admit the next one
	t.p.mu.Unlock()
	t.p.metrics.receipts.Inc()
	t.update(func() { t.tail = next })
	m.cutAt, m.open = m.meter.Running(), false
	return nil
}
