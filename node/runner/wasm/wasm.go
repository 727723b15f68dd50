// Package wasm is the embedded sandbox: a runner.Runner that runs WebAssembly
// modules (WASI preview 1) with wazero, each in a child process of our own
// binary.
//
// # Parent and child
//
// The parent starts the child with the name ChildName as argv[0], an empty
// environment, a process group and, where the system lets it, namespaces of
// its own. The child is entered by ChildMain, which main (and TestMain of a
// test that runs jobs) has to call before anything else. They speak over four
// pipes:
//
//	fd 3  parent to child: the spec, one JSON object, then end of file
//	fd 4  child to parent: the report, one JSON object
//	fd 5  the guest's standard output, unchanged
//	fd 6  the guest's standard error, unchanged
//
// What the child's own fd 1 and 2 say is kept for the reason of a crash.
// Compiled guest code can not be preempted from inside, so deadline, pause,
// kill and metering are signals and readings of the parent. Parent and child
// are the same binary, so this is no stored or network format.
//
// # What the guest sees
//
// Only its arguments, its environment, its mounts, an empty standard input
// and a clock: no network, no host times, no host inode numbers. Everything
// it can observe is fixed, so that a second run gives the same bytes: the
// clock starts at 2022-01-01 and moves only by a microsecond a reading and by
// what the guest sleeps (the sleep really passes); random numbers come from a
// constant seed and must not be used for secrets; folders list sorted; files
// have no times. Symbolic and hard links can not be made, and links that lie
// in an input can not lead out of it.
//
// The package verifies no module, opens no network and stores nothing but
// wazero's compilation cache. It is called by the provider. A Runner is safe
// for concurrent use.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/lacuna-network/lacuna/node/runner"
)

// ChildName is the argv[0] of a sandbox process. No shell passes it by
// accident, so the rest of the command line stays free for the program.
const ChildName = "lacuna-wasm-sandbox"

// probeTimeout bounds the question to our own binary whether it answers as a
// sandbox.
const probeTimeout = 20 * time.Second

// ErrNoChild says that the binary does not enter ChildMain when it is started
// as a sandbox.
var ErrNoChild = errors.New("binary does not answer as a sandbox: its main must call wasm.ChildMain first")

// Options are the settings of a Runner.
type Options struct {
	// CacheDir keeps compiled modules; it is made if missing and belongs to
	// this program alone, since its files are run. "" compiles each time.
	CacheDir string
	// Self is the path of a binary that calls ChildMain. "" is the running
	// program.
	Self string
	// Logger may be nil.
	Logger *slog.Logger
}

// Runner starts jobs in sandboxes.
type Runner struct {
	cacheDir string
	self     string
	level    isolation
	log      *slog.Logger
}

// New prepares the cache folder and asks the binary, by starting it once as a
// sandbox, whether it can be one and which namespaces the system allows. It
// returns ErrNoChild if the binary does not answer.
func New(o Options) (*Runner, error) {
	if os.Args[0] == ChildName {
		// Without this a program that forgot ChildMain would start itself
		// without end.
		return nil, ErrNoChild
	}
	r := &Runner{cacheDir: o.CacheDir, self: o.Self, log: o.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.self == "" {
		self, err := ownBinary()
		if err != nil {
			return nil, fmt.Errorf("find own binary: %w", err)
		}
		r.self = self
	}
	// The child runs in "/".
	var err error
	if r.self, err = filepath.Abs(r.self); err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	if r.cacheDir != "" {
		if r.cacheDir, err = filepath.Abs(r.cacheDir); err != nil {
			return nil, fmt.Errorf("find cache folder: %w", err)
		}
		if err := os.MkdirAll(r.cacheDir, 0o700); err != nil {
			return nil, fmt.Errorf("make cache folder: %w", err)
		}
	}
	if err := r.probe(); err != nil {
		return nil, err
	}
	return r, nil
}

// ownBinary prefers the running image over the path it was started from,
// which an update may have replaced by a version with another spec.
func ownBinary() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// probe finds the strongest isolation that the system allows.
func (r *Runner) probe() error {
	var errs []error
	for _, level := range isolations() {
		err := r.probeLevel(level)
		if err == nil {
			r.level = level
			return nil
		}
		errs = append(errs, fmt.Errorf("start sandbox with %s: %w", level.name, err))
		if errors.Is(err, ErrNoChild) {
			break
		}
		r.log.Debug("isolation refused", "isolation", level.name, "err", err)
	}
	return errors.Join(errs...)
}

func (r *Runner) probeLevel(level isolation) error {
	c, err := launch(r.self, "probe", level)
	if err != nil {
		return err
	}
	timer := time.AfterFunc(probeTimeout, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		discard(c.stdout, c.stderr)
	}()
	c.sendSpec(spec{Probe: true})
	rep, err := readReport(c.report)
	_ = c.cmd.Process.Kill()
	<-c.waited
	<-drained
	if err != nil || !rep.Probe {
		return ErrNoChild
	}
	return nil
}

// Isolation names what keeps a sandbox process apart from the host besides
// the WebAssembly machine itself, for example "net,pid,mnt,ipc,uts
// namespaces", or "no namespaces" where the system allows none.
func (r *Runner) Isolation() string { return r.level.name }

// Start starts the job as runner.Runner says. Inputs that are single files are
// put into the scratch folder by a hard link, or copied where that is not
// possible.
func (r *Runner) Start(ctx context.Context, j runner.Job) (runner.Process, error) {
	if err := j.Validate(); err != nil {
		return nil, fmt.Errorf("check job: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start job: %w", err)
	}
	module, err := filepath.Abs(j.Module)
	if err != nil {
		return nil, fmt.Errorf("find module: %w", err)
	}
	mounts, err := stage(j)
	if err != nil {
		return nil, err
	}
	s := spec{
		Module: module, CacheDir: r.cacheDir, Args: append([]string{"job"}, j.Args...), Env: environ(j),
		Mounts: mounts, MemBytes: j.MemBytes, DiskBytes: j.DiskBytes,
	}
	c, err := launch(r.self, j.ID, r.level)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	p := newProcess(j, c, r.log)
	go p.supervise(ctx, s)
	return p, nil
}
