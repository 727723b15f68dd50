package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/node/runner"
)

const (
	// lookEvery is how often disk and memory of a job are looked at.
	lookEvery = 200 * time.Millisecond
	// sandboxBytes is what a child may take on top of the guest's memory. The
	// compiler needs about 70 MB for a module of 3 MB, measured.
	sandboxBytes = 512 << 20
)

// process is one job and its child.
type process struct {
	job   runner.Job
	child *child
	log   *slog.Logger
	done  chan struct{}
	wake  chan struct{} // has one slot; tells supervise that a pause began or ended

	logMu   sync.Mutex // serialises job.Log, which may call any method but Result
	logOver bool

	mu        sync.Mutex
	logUsed   uint64
	paused    bool
	since     time.Time     // when the current stretch of running began
	ran       time.Duration // stretches before it
	ended     bool
	stopState runner.State // why the parent killed the child, 0 if it did not
	stopWhy   string
	disk      uint64
	maxRSS    uint64
	result    runner.Result
}

func newProcess(j runner.Job, c *child, log *slog.Logger) *process {
	return &process{
		job: j, child: c, log: log, done: make(chan struct{}), wake: make(chan struct{}, 1), since: time.Now(),
	}
}

// PID implements runner.Process.
func (p *process) PID() int { return p.child.cmd.Process.Pid }

// Done implements runner.Process.
func (p *process) Done() <-chan struct{} { return p.done }

// Result implements runner.Process.
func (p *process) Result() runner.Result {
	<-p.done
	return p.result
}

// Pause implements runner.Process.
func (p *process) Pause() error { return p.setPaused(true) }

// Resume implements runner.Process.
func (p *process) Resume() error { return p.setPaused(false) }

func (p *process) setPaused(paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return runner.ErrEnded
	}
	if p.paused == paused {
		return nil
	}
	// The child has no children of its own, so the process is its whole group;
	// os.Process guards against a pid that was given to another by now.
	switch err := signalPause(p.child.cmd.Process, paused); {
	case errors.Is(err, os.ErrProcessDone):
		return runner.ErrEnded
	case err != nil:
		return fmt.Errorf("signal sandbox: %w", err)
	}
	p.ran, p.since, p.paused = p.runningLocked(), time.Now(), paused
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// runningLocked returns how long the job has run without its pauses.
func (p *process) runningLocked() time.Duration {
	if p.paused || p.ended {
		return p.ran
	}
	return p.ran + time.Since(p.since)
}

// Kill implements runner.Process.
func (p *process) Kill(reason string) { p.stop(runner.Killed, reason) }

// stop kills the child. The first reason is the one that counts.
func (p *process) stop(s runner.State, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.stopState != 0 {
		return
	}
	p.stopState, p.stopWhy = s, why
	if _, rss, err := processUsage(p.PID()); err == nil { // a killed child reports none
		p.maxRSS = max(p.maxRSS, rss)
	}
	_ = p.child.cmd.Process.Kill() // fails only if it has ended
}

// Usage implements runner.Process.
func (p *process) Usage() (runner.Usage, error) {
	p.mu.Lock()
	u := runner.Usage{Running: p.runningLocked(), DiskBytes: p.disk, LogBytes: p.logUsed}
	ended, cpu := p.ended, p.result.CPU
	p.mu.Unlock()
	if ended {
		u.CPU = cpu
		return u, nil
	}
	cpu, rss, err := processUsage(p.PID())
	if err != nil {
		return runner.Usage{}, fmt.Errorf("read usage: %w", err)
	}
	u.CPU, u.RSSBytes = cpu, rss
	return u, nil
}

// supervise feeds the child, watches it until it ends and then makes the
// result.
func (p *process) supervise(ctx context.Context, s spec) {
	defer close(p.done)
	var pipes sync.WaitGroup
	var rep report
	var repErr error
	pipes.Go(func() { p.child.sendSpec(s) })
	pipes.Go(func() { rep, repErr = readReport(p.child.report) })
	pipes.Go(func() { p.copyLog(runner.Stdout, p.child.stdout) })
	pipes.Go(func() { p.copyLog(runner.Stderr, p.child.stderr) })

	p.watch(ctx)
	pipes.Wait()
	p.finish(rep, repErr)
}

// watch enforces the limits that are the parent's until the child is reaped.
func (p *process) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	deadline := time.NewTimer(0)
	defer deadline.Stop()
	cancelled := ctx.Done()
	for {
		deadline.Stop()
		if left, ok := p.untilDeadline(); ok {
			deadline.Reset(left)
		}
		select {
		case <-p.child.waited:
			return
		case <-cancelled:
			p.stop(runner.Killed, "context ended")
			cancelled = nil
		case <-tick.C:
			p.look()
		case <-deadline.C:
			p.checkDeadline()
		case <-p.wake:
		}
	}
}

// untilDeadline returns how long the job may still run; ok is false when no
// deadline is coming nearer.
func (p *process) untilDeadline() (left time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.job.Deadline - p.runningLocked(), p.job.Deadline != 0 && !p.paused && p.stopState == 0
}

func (p *process) checkDeadline() {
	p.mu.Lock()
	due := p.runningLocked() >= p.job.Deadline // false if a pause came first
	p.mu.Unlock()
	if due {
		p.stop(runner.Deadline, fmt.Sprintf("ran for %v", p.job.Deadline))
	}
}

// look measures disk and memory once.
func (p *process) look() {
	disk := diskUsed(p.job.WritableDir()) + deletedFiles(p.PID())
	_, rss, err := processUsage(p.PID())
	if err != nil {
		rss = 0 // ended meanwhile, or not measurable here
	}
	p.mu.Lock()
	p.disk, p.maxRSS = disk, max(p.maxRSS, rss)
	p.mu.Unlock()
	if disk > p.job.DiskBytes {
		p.stop(runner.DiskLimit, p.diskReason())
	}
	if rss > p.job.MemBytes+sandboxBytes {
		p.stop(runner.MemoryLimit, p.memReason())
	}
}

func (p *process) diskReason() string {
	return fmt.Sprintf("files take more than %d bytes", p.job.DiskBytes)
}

func (p *process) memReason() string {
	return fmt.Sprintf("needs more than %d bytes of memory", p.job.MemBytes)
}

// copyLog hands on one stream until the child closes it. What comes after the
// cap is read and dropped, so that the pipe never blocks the end.
func (p *process) copyLog(s runner.Stream, f *os.File) {
	defer f.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			p.deliver(s, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (p *process) deliver(s runner.Stream, b []byte) {
	p.logMu.Lock()
	defer p.logMu.Unlock()
	if p.logOver {
		return
	}
	p.mu.Lock()
	if left := p.job.LogBytes - p.logUsed; uint64(len(b)) > left {
		b, p.logOver = b[:left], true
	}
	p.logUsed += uint64(len(b))
	p.mu.Unlock()
	if p.logOver {
		p.stop(runner.LogLimit, p.logReason())
	}
	if p.job.Log != nil && len(b) > 0 {
		p.job.Log(s, b)
	}
}

func (p *process) logReason() string {
	return fmt.Sprintf("wrote more than %d bytes of output", p.job.LogBytes)
}

// finish makes the result. Limits that the job has broken come first, even if
// it ended before the parent noticed, so that the answer does not depend on
// who was faster; then what the child reported; then why it was killed.
func (p *process) finish(rep report, repErr error) {
	disk := diskUsed(p.job.WritableDir())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran, p.ended, p.disk = p.runningLocked(), true, disk
	ps := p.child.cmd.ProcessState
	p.result = runner.Result{
		CPU: ps.UserTime() + ps.SystemTime(), Running: p.ran, MaxRSSBytes: max(p.maxRSS, rep.MaxRSSBytes),
	}
	r := &p.result
	switch {
	case p.logOver:
		r.State, r.Reason = runner.LogLimit, p.logReason()
	case disk > p.job.DiskBytes:
		r.State, r.Reason = runner.DiskLimit, p.diskReason()
	case repErr == nil:
		r.State, r.ExitCode, r.Reason = rep.State, rep.ExitCode, rep.Reason
		switch rep.State {
		case runner.MemoryLimit:
			r.Reason = p.memReason()
		case runner.DiskLimit:
			r.Reason = p.diskReason()
		}
	case p.stopState != 0:
		r.State, r.Reason = p.stopState, p.stopWhy
	default:
		r.State, r.Reason = runner.Crashed, firstLine(ps.String()+": "+p.child.own.String())
		p.log.Warn("sandbox crashed", "lease", p.job.ID, "status", ps.String(), "output", p.child.own.String())
	}
}

// firstLine returns the first line of s, cut to maxReason bytes.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}
