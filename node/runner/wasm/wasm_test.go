package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

var (
	guestModule string        // path of the compiled testdata/guest
	sandbox     *wasm.Runner  // shared: it has no state between jobs
	_           runner.Runner = (*wasm.Runner)(nil)
)

func TestMain(m *testing.M) {
	if code, ok := wasm.ChildMain(); ok {
		os.Exit(code)
	}
	if os.Getenv(orphanEnv) != "" {
		orphanMain()
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "wasm-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	guestModule = filepath.Join(dir, "guest.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", guestModule, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build guest: %v\n%s", err, out)
		return 1
	}
	sandbox, err = wasm.New(wasm.Options{CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := warm(dir); err != nil {
		fmt.Fprintln(os.Stderr, "compile guest:", err)
		return 1
	}
	return m.Run()
}

// warm fills the cache, so that no test has the compiler's time in its
// deadline.
func warm(dir string) error {
	dir = filepath.Join(dir, "warm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	p, err := sandbox.Start(context.Background(), runner.Job{
		Dir: dir, Module: guestModule, Args: []string{"exit", "0"}, MemBytes: 256 << 20,
	})
	if err != nil {
		return err
	}
	if r := p.Result(); r.State != runner.Exited {
		return fmt.Errorf("%v: %s", r.State, r.Reason)
	}
	return nil
}

// orphanEnv makes the test binary start a job, tell its pid and wait.
const orphanEnv = "LACUNA_TEST_ORPHAN"

func orphanMain() {
	r, err := wasm.New(wasm.Options{CacheDir: os.Getenv("LACUNA_TEST_CACHE")})
	if err == nil {
		var p runner.Process
		p, err = r.Start(context.Background(), runner.Job{
			ID: "orphan", Dir: os.Getenv("LACUNA_TEST_DIR"), Module: os.Getenv(orphanEnv), Args: []string{"spin"},
			MemBytes: 256 << 20, LogBytes: 1000, DiskBytes: 1000,
			Log: func(_ runner.Stream, b []byte) { fmt.Printf("%s", b) },
		})
		if err == nil {
			fmt.Println(p.PID())
			<-p.Done()
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// logs keeps what a job printed and tells when something has come.
type logs struct {
	mu       sync.Mutex
	out, err bytes.Buffer
	first    chan struct{}
	once     sync.Once
}

func (l *logs) add(s runner.Stream, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == runner.Stdout {
		l.out.Write(p)
	} else {
		l.err.Write(p)
	}
	l.once.Do(func() { close(l.first) })
}

// await returns when the job has printed something and fails when it ends
// without.
func (l *logs) await(t *testing.T, p runner.Process) {
	t.Helper()
	select {
	case <-l.first:
	case <-p.Done():
		t.Fatalf("job ended early: %+v", p.Result())
	}
}

func newJob(t *testing.T, args ...string) (runner.Job, *logs) {
	t.Helper()
	l := &logs{first: make(chan struct{})}
	return runner.Job{
		ID: "0123", Dir: t.TempDir(), Module: guestModule, Args: args, Outputs: []string{"/out"},
		MemBytes: 256 << 20, LogBytes: 1 << 20, DiskBytes: 16 << 20, Deadline: time.Minute, Log: l.add,
	}, l
}

func start(t *testing.T, j runner.Job) runner.Process {
	t.Helper()
	p, err := sandbox.Start(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill("test ended")
		<-p.Done()
	})
	return p
}

func run(t *testing.T, j runner.Job) runner.Result {
	t.Helper()
	return start(t, j).Result()
}

// want compares how a job ended, not what it cost.
func want(t *testing.T, got runner.Result, state runner.State, code int, reason string) {
	t.Helper()
	if got.State != state || got.ExitCode != code || !strings.Contains(got.Reason, reason) {
		t.Fatalf("result = %v, exit code %d, reason %q; want %v, %d, %q", got.State, got.ExitCode, got.Reason, state, code, reason)
	}
}

func TestEnds(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		edit   func(*runner.Job)
		state  runner.State
		code   int
		reason string
	}{
		{"exit 0", []string{"exit", "0"}, nil, runner.Exited, 0, ""},
		{"exit 7", []string{"exit", "7"}, nil, runner.Exited, 7, ""},
		{"exit 2 is the guest's own", []string{"exit", "2"}, nil, runner.Exited, 2, ""},
		{"panic of a Go guest", []string{"panic"}, nil, runner.Exited, 2, ""},
		{"spin", []string{"spin"}, func(j *runner.Job) { j.Deadline = time.Second }, runner.Deadline, 0, "ran for 1s"},
		{"sleep", []string{"sleeps"}, func(j *runner.Job) { j.Deadline = time.Second }, runner.Deadline, 0, "ran for 1s"},
		{"flood", []string{"flood"}, nil, runner.LogLimit, 0, "1048576 bytes of output"},
		{"no output allowed", []string{"hello"}, func(j *runner.Job) { j.LogBytes = 0 }, runner.LogLimit, 0, "0 bytes"},
		{"eat in small steps", []string{"eat", "65536"}, nil, runner.MemoryLimit, 0, "268435456 bytes of memory"},
		{"eat in one step", []string{"eat", "1000000000"}, nil, runner.MemoryLimit, 0, "268435456 bytes of memory"},
		{"start needs too much", []string{"exit", "0"}, func(j *runner.Job) { j.MemBytes = 65536 }, runner.MemoryLimit, 0, "65536 bytes"},
		{"fill outputs", []string{"fill", "/out"}, nil, runner.DiskLimit, 0, "16777216 bytes"},
		{"fill tmp", []string{"fill", "/tmp"}, nil, runner.DiskLimit, 0, "16777216 bytes"},
		{"one file too big", []string{"sparse", "/out/x"}, nil, runner.DiskLimit, 0, "16777216 bytes"},
		{"files without a name", []string{"unlinked", "/tmp"}, nil, runner.DiskLimit, 0, "16777216 bytes"},
		{"no file allowed", []string{"fill", "/out"}, func(j *runner.Job) { j.DiskBytes = 0 }, runner.DiskLimit, 0, "0 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, _ := newJob(t, tt.args...)
			if tt.edit != nil {
				tt.edit(&j)
			}
			r := run(t, j)
			want(t, r, tt.state, tt.code, tt.reason)
			if r.CPU <= 0 || r.Running <= 0 || r.MaxRSSBytes < 1<<20 {
				t.Errorf("result has cost %+v, want all positive", r)
			}
		})
	}
}

func TestLogsStopAtTheCap(t *testing.T) {
	j, l := newJob(t, "flood")
	j.LogBytes = 12345
	p := start(t, j)
	want(t, p.Result(), runner.LogLimit, 0, "")
	if n := l.out.Len() + l.err.Len(); n != 12345 {
		t.Errorf("delivered %d bytes, want 12345", n)
	}
	if u, err := p.Usage(); err != nil || u.LogBytes != 12345 {
		t.Errorf("usage = %+v, %v, want 12345 bytes of output", u, err)
	}
}

func TestWhatTheGuestGets(t *testing.T) {
	tests := []struct {
		name     string
		args     []string
		edit     func(*runner.Job)
		out, err string
	}{
		{"streams", []string{"both"}, nil, "to out", "to err"},
		{"empty standard input", []string{"stdin"}, nil, "0", ""},
		{"arguments", []string{"args", "a b", ""}, nil, "[\"job\" \"args\" \"a b\" \"\"]\n[]\n", ""},
		{"environment", []string{"args"}, func(j *runner.Job) {
			j.Env = map[string]string{"Z": "1", "A": "x=y", "LACUNA_RESUMED": "no"}
		}, "[\"job\" \"args\"]\n[\"A=x=y\" \"Z=1\"]\n", ""},
		{"files", []string{"files"}, nil, "234\n89a\n300\ntrue\n0XY3456789a\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, l := newJob(t, tt.args...)
			if tt.edit != nil {
				tt.edit(&j)
			}
			r := run(t, j)
			if r.State != runner.Exited || r.ExitCode != 0 {
				t.Fatalf("result = %+v, %s", r, l.err.String())
			}
			if d := cmp.Diff([]string{tt.out, tt.err}, []string{l.out.String(), l.err.String()}); d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
		})
	}
}

func TestSleepPassesOnTheHost(t *testing.T) {
	j, _ := newJob(t, "sleep", "400ms")
	r := run(t, j)
	want(t, r, runner.Exited, 0, "")
	// A clock that stood still in the sleep would make the guest sleep for
	// hundreds of times as long.
	if r.Running < 400*time.Millisecond || r.Running > 20*time.Second {
		t.Errorf("ran for %v, want 400 ms and a little", r.Running)
	}
}

func TestCachedRunIsFast(t *testing.T) {
	r, err := wasm.New(wasm.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	once := func() runner.Result {
		j, _ := newJob(t, "hello")
		p, err := r.Start(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		want(t, p.Result(), runner.Exited, 0, "")
		return p.Result()
	}
	cold, warm := once(), once()
	t.Logf("compiled: %v with %v of CPU time; from the cache: %v with %v", cold.Running, cold.CPU, warm.Running, warm.CPU)
	// CPU time, since others may use the machine. The aim on an idle one is
	// 150 ms of real time against more than a second.
	if warm.CPU > cold.CPU/3 {
		t.Errorf("cached run took %v of CPU time, the first one %v", warm.CPU, cold.CPU)
	}
}

func TestStartRefuses(t *testing.T) {
	j, _ := newJob(t, "hello")
	j.MemBytes = 0
	if _, err := sandbox.Start(t.Context(), j); err == nil {
		t.Error("job without memory: no error")
	}
	j, _ = newJob(t, "hello")
	j.Inputs = []runner.Mount{{Host: filepath.Join(j.Dir, "missing"), Guest: "/data"}}
	if _, err := sandbox.Start(t.Context(), j); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing input: %v", err)
	}
	j.Inputs = []runner.Mount{{Host: "/dev/null", Guest: "/data"}}
	if _, err := sandbox.Start(t.Context(), j); err == nil {
		t.Error("a device as input: no error")
	}
}

func TestDamagedCacheIsPassedOver(t *testing.T) {
	cache := t.TempDir()
	r, err := wasm.New(wasm.Options{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		j, _ := newJob(t)
		j.Module = filepath.Join(j.Dir, "m.wasm")
		if err := os.WriteFile(j.Module, command("", "", 0), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := r.Start(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		want(t, p.Result(), runner.Exited, 0, "")
		entries, err := filepath.Glob(filepath.Join(cache, "*", "*"))
		if err != nil || len(entries) == 0 {
			t.Fatalf("run %d left no cache: %v, %v", i, entries, err)
		}
		for _, e := range entries {
			if err := os.Truncate(e, 20); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNewRefusesABinaryWithoutChildMain(t *testing.T) {
	self, err := exec.LookPath("true")
	if err != nil {
		requiretest.Skip(t, "processes", err.Error())
	}
	if _, err := wasm.New(wasm.Options{Self: self}); !errors.Is(err, wasm.ErrNoChild) {
		t.Errorf("New() = %v, want %v", err, wasm.ErrNoChild)
	}
	if _, err := wasm.New(wasm.Options{Self: filepath.Join(t.TempDir(), "missing")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("New() = %v, want %v", err, os.ErrNotExist)
	}
}
