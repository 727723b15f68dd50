//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

// The job: it reads 0.8 MB, prints a line for each pass over its images, and writes 0.2 MB.
const (
	jobModule = "digits.wasm" // 3 MB
	jobData   = "data"
	jobImages = 200
)

const (
	jobWait     = 2 * time.Minute // bounds one job
	startWithin = "20s"           // for a renter to give up looking for a way
)

// writeJob puts the job's files into the lab's folder.
func (l *lab) writeJob() error {
	code, data := examples.Digits()
	return errors.Join(os.WriteFile(filepath.Join(l.dir, jobModule), code, 0o600), os.CopyFS(filepath.Join(l.dir, jobData), data))
}

// ran is how a job ended.
type ran struct {
	job    renter.Job
	exit   int
	log    string
	path   string // of the renter's connection to the provider, after the job
	took   time.Duration
	reason string // why it was refused, "" if it was not
	faults []string
}

// task says how a job differs from the usual one.
type task struct {
	epochs, images int      // passes and images each; 0 = 1 and jobImages
	flags          []string // of lacuna run
}

// run runs the job at a provider, by the renter's command line.
func (l *lab) run(ctx context.Context, r, p *peer, t task) (ran, error) {
	ctx, cancel := context.WithTimeout(ctx, jobWait)
	defer cancel()
	out, err := os.MkdirTemp(l.dir, "out-")
	if err != nil {
		return ran{}, err
	}
	defer os.RemoveAll(out)
	if t.epochs == 0 {
		t.epochs, t.images = 1, jobImages
	}
	args := []string{"run", "-q", "-o", "json", "--provider", p.id, "--duration", "2m", "--start-within", startWithin,
		"-v", filepath.Join(l.dir, jobData) + ":/data", "--out", "/out:" + out}
	args = append(append(args, t.flags...), filepath.Join(l.dir, jobModule), "-epochs", fmt.Sprint(t.epochs), "-images", fmt.Sprint(t.images), "-ckpt", "")
	began := time.Now()
	s, err := r.lacuna(ctx, args...)
	if err != nil {
		return ran{}, fmt.Errorf("%s: lacuna run at %s: %w: %s", r.name, p.name, err, s.stderr)
	}
	got := ran{exit: s.exit, log: s.stderr, took: time.Since(began)}
	if err := json.Unmarshal(s.stdout, &got.job); err != nil {
		return got, fmt.Errorf("%s: lacuna run at %s: exit code %d, no job on stdout (%w): %s", r.name, p.name, s.exit, err, s.stderr)
	}
	if got.path, err = r.path(ctx, p); err != nil {
		return got, err
	}
	got.check(out, fmt.Sprintf("epoch %d/%[1]d", t.epochs))
	return got, nil
}

// check holds the job against what it is to have done, or left undone: files in out and a line in its log.
func (r *ran) check(out, line string) {
	fault := func(format string, args ...any) { r.faults = append(r.faults, fmt.Sprintf(format, args...)) }
	if r.job.State == renter.JobSucceeded {
		if r.exit != 0 || !strings.Contains(r.log, line) {
			fault("exit code %d, log %q", r.exit, r.log)
		}
		for name, least := range map[string]int64{"weights.bin": 200_000, "metrics.json": 50} {
			if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < least {
				fault("output %s is missing or short", name)
			}
		}
		if r.job.Receipts == 0 {
			fault("no receipt")
		}
		return
	}
	r.reason = strings.TrimSpace(r.job.Reason + ": " + r.job.Detail)
	if r.job.Reason == "" || r.job.Detail == "" {
		fault("state %s, reason %q, detail %q", r.job.State, r.job.Reason, r.job.Detail)
	}
	if r.job.Receipts > 0 || r.job.Cost > 0 || r.job.Vouched > 0 {
		fault("refused after %d receipts, %s due, %s vouched", r.job.Receipts, r.job.Cost, r.job.Vouched)
	}
}
