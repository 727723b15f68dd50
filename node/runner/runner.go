// Package runner is the port between a provider and whatever runs a renter's
// job: the plain types of a job, of a running job and of its end.
//
// A Runner starts a Job and hands back a Process, which the provider pauses,
// resumes, kills and meters; the Process ends by itself with a Result that
// says how (State) and what it cost.
//
// The package runs nothing itself and knows nothing of leases, money or the
// network. The embedded sandbox is in the folder wasm. It is called by the
// provider; its values are plain data, and a Process is safe for concurrent
// use.
package runner

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// TmpDir is the guest folder every job may write scratch files to. It is
// empty at the start, counts towards DiskBytes and is no output.
const TmpDir = "/tmp"

// ErrEnded is returned by Pause and Resume when the job has ended.
var ErrEnded = errors.New("job has ended")

// ErrUnsupported is returned by Pause and Resume where the operating system
// can not stop a process.
var ErrUnsupported = errors.New("not supported on this system")

// Runner starts jobs. Implementations are safe for concurrent use.
type Runner interface {
	// Start starts j and returns while it runs. When ctx ends, the job is
	// killed with the reason "context ended". An error means that nothing was
	// started (a spoilt input, no room for a process); what the job itself does wrong, such as a module that does not
	// compile, is told in the Result.
	Start(ctx context.Context, j Job) (Process, error)
}

// Process is one job that was started. All methods may be called at any time,
// also after the end and from several goroutines.
type Process interface {
	// Pause stops the job where it is. It takes no CPU time until Resume and
	// the pause does not count towards the deadline. Pausing twice is fine.
	Pause() error
	// Resume lets a paused job go on; for one that is not paused it does
	// nothing.
	Resume() error
	// Kill ends the job at once, paused or not. The Result then has the state
	// Killed and this reason, unless the job was already ending by itself. Of
	// several calls the first counts.
	Kill(reason string)
	// Usage returns what the job has used so far, after the end what it has
	// used in all.
	Usage() (Usage, error)
	// Done is closed when the job has ended, its last log bytes are delivered
	// and its Result is known.
	Done() <-chan struct{}
	// Result waits for Done and returns how the job ended.
	Result() Result
	// PID returns the process id of the job on this host.
	PID() int
}

// Job says what to run, on what and within which limits.
type Job struct {
	// ID is the lease id in hex. It only names the process for people.
	ID string
	// Dir is an existing host folder that belongs to this job alone. What an
	// earlier run of the same job left in it is cleared, but the checkpoint.
	Dir string
	// Module is the host path of the verified module.
	Module string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment the guest sees, but LACUNA_RESUMED.
	Env map[string]string
	// Inputs are shown to the guest read-only.
	Inputs []Mount
	// Outputs are guest folders the job writes its results to. They are empty
	// at the start and lie on the host at OutputDir.
	Outputs []string
	// Checkpoint is the guest folder for checkpoints, "" for none. It lies on
	// the host at OutputDir and is kept as the caller filled it before Start.
	Checkpoint string
	// Resumed tells the guest, by LACUNA_RESUMED=1, that the checkpoint folder
	// holds the state of an earlier run.
	Resumed bool
	// MemBytes caps the guest's memory and must be positive.
	MemBytes uint64
	// LogBytes caps standard output and standard error together; 0 allows no
	// output at all.
	LogBytes uint64
	// DiskBytes caps what outputs, checkpoint and /tmp take together; 0 allows
	// no bytes at all.
	DiskBytes uint64
	// Deadline is how long the job may run, pauses not counted but making the
	// module ready included; 0 = no limit.
	Deadline time.Duration
	// Log receives the output as it comes, one call at a time. It must not
	// keep p or wait for the job's end; while it blocks the guest is held up
	// too. nil discards, and the bytes still count.
	Log func(stream Stream, p []byte)
}

// Mount shows a host file or folder to the guest.
type Mount struct {
	Host  string // path of an existing file or folder
	Guest string // absolute, clean path other than "/"
}

// OutputDir returns the host folder behind a guest folder that is one of
// Outputs, the Checkpoint or TmpDir. The caller may fill the checkpoint there
// before Start and reads results there after the end.
func (j Job) OutputDir(guest string) string {
	return filepath.Join(j.Dir, "rw", filepath.FromSlash(guest))
}

// WritableDir returns the host folder that holds every OutputDir.
func (j Job) WritableDir() string { return filepath.Join(j.Dir, "rw") }

// Validate reports all faults of the job that can be seen without looking at
// the disk: missing fields, guest paths that are not absolute and clean, and
// guest paths that lie in one another.
func (j Job) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if j.Dir == "" {
		bad("no scratch folder")
	}
	if j.Module == "" {
		bad("no module")
	}
	if j.MemBytes == 0 {
		bad("no memory allowed")
	}
	if j.Deadline < 0 {
		bad("negative deadline")
	}
	for k, v := range j.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			bad("environment variable %q can not be passed on", k)
		}
	}
	for _, a := range j.Args {
		if strings.Contains(a, "\x00") {
			bad("argument %q can not be passed on", a)
		}
	}
	guests := j.guestPaths()
	for i, g := range guests {
		if !path.IsAbs(g) || path.Clean(g) != g || g == "/" || strings.ContainsFunc(g, isControl) {
			bad("guest path %q is not absolute and clean", g)
			continue
		}
		for _, h := range guests[:i] {
			if within(g, h) || within(h, g) {
				bad("guest paths %q and %q lie in one another", h, g)
			}
		}
	}
	return errors.Join(errs...)
}

// guestPaths returns the guest paths of the job, TmpDir first.
func (j Job) guestPaths() []string {
	guests := []string{TmpDir}
	for _, in := range j.Inputs {
		guests = append(guests, in.Guest)
	}
	guests = append(guests, j.Outputs...)
	if j.Checkpoint != "" {
		guests = append(guests, j.Checkpoint)
	}
	return guests
}

// within reports whether p is dir or lies in it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }
