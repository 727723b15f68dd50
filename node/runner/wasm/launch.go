package wasm

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"github.com/lacuna-network/lacuna/node/runner"
)

// spec is what the parent tells the child.
type spec struct {
	Probe     bool        `json:"probe,omitempty"` // only answer, run nothing
	Module    string      `json:"module"`
	CacheDir  string      `json:"cache_dir"`
	Args      []string    `json:"args"` // from argv[0] on
	Env       [][2]string `json:"env"`
	Mounts    []mount     `json:"mounts"`
	MemBytes  uint64      `json:"mem_bytes"`
	DiskBytes uint64      `json:"disk_bytes"`
}

type mount struct {
	Host     string `json:"host"`
	Guest    string `json:"guest"`
	ReadOnly bool   `json:"read_only"`
}

// report is what the child answers. Its length is bounded by maxReport.
type report struct {
	Probe       bool         `json:"probe,omitempty"`
	State       runner.State `json:"state"`
	ExitCode    int          `json:"exit_code"`
	Reason      string       `json:"reason"`
	MaxRSSBytes uint64       `json:"max_rss_bytes"`
}

const (
	maxReport = 64 << 10 // bytes
	maxReason = 1 << 10  // bytes
	maxOwnLog = 8 << 10  // bytes of the child's own output that are kept
)

// child is a started sandbox process and the parent's ends of its pipes.
type child struct {
	cmd    *exec.Cmd
	spec   *os.File
	report *os.File
	stdout *os.File
	stderr *os.File
	own    *headBuffer   // what the child itself printed
	waited chan struct{} // closed when the process has been reaped
}

// launch starts the binary self as a sandbox.
func launch(self, id string, level isolation) (*child, error) {
	c := &child{own: &headBuffer{}, waited: make(chan struct{})}
	var theirs [4]*os.File
	defer func() { closeAll(theirs[:]...) }()
	var errs [4]error
	theirs[0], c.spec, errs[0] = os.Pipe()
	c.report, theirs[1], errs[1] = os.Pipe()
	c.stdout, theirs[2], errs[2] = os.Pipe()
	c.stderr, theirs[3], errs[3] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		c.closePipes()
		return nil, err
	}
	c.cmd = &exec.Cmd{
		Path: self, Args: []string{ChildName, id}, Env: []string{}, Dir: "/",
		Stdout: c.own, Stderr: c.own, ExtraFiles: theirs[:], SysProcAttr: level.attr(),
	}
	started := make(chan error, 1)
	go func() {
		// The signal that kills the child with its parent is sent when the
		// *thread* that forked ends, not the process. So one thread is held
		// for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // its error repeats what ProcessState says
			close(c.waited)
		}
	}()
	if err := <-started; err != nil {
		c.closePipes()
		return nil, err
	}
	return c, nil
}

// sendSpec writes the spec and closes the pipe. The child waits for it, so a
// parent that died before the kill signal was set up shows as an empty spec.
func (c *child) sendSpec(s spec) {
	// A child that died early breaks the pipe; the report will be missing.
	_ = json.NewEncoder(c.spec).Encode(s)
	_ = c.spec.Close()
}

func (c *child) closePipes() { closeAll(c.spec, c.report, c.stdout, c.stderr) }

// readReport reads the child's report to the end and closes the pipe.
func readReport(f *os.File) (report, error) {
	defer f.Close()
	var rep report
	b, err := io.ReadAll(io.LimitReader(f, maxReport))
	if err != nil {
		return report{}, err
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		return report{}, err
	}
	return rep, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// discard reads both to the end.
func discard(a, b *os.File) {
	var wg sync.WaitGroup
	for _, f := range []*os.File{a, b} {
		wg.Go(func() {
			_, _ = io.Copy(io.Discard, f)
			_ = f.Close()
		})
	}
	wg.Wait()
}

// headBuffer keeps the first maxOwnLog bytes written to it and drops the rest.
type headBuffer struct {
	mu sync.Mutex
	b  []byte
}

// Write never fails.
func (h *headBuffer) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b = append(h.b, p[:min(len(p), maxOwnLog-len(h.b))]...)
	return len(p), nil
}

func (h *headBuffer) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.b)
}
