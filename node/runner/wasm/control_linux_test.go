package wasm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// spend lets d of real time pass by running other jobs, and fails if p ends
// meanwhile.
func spend(t *testing.T, d time.Duration, p runner.Process) {
	t.Helper()
	for began := time.Now(); time.Since(began) < d; {
		j, _ := newJob(t, "hello")
		want(t, run(t, j), runner.Exited, 0, "")
		select {
		case <-p.Done():
			t.Fatalf("job ended while it was paused: %+v", p.Result())
		default:
		}
	}
}

func usage(t *testing.T, p runner.Process) runner.Usage {
	t.Helper()
	u, err := p.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// awaitStopped returns when the kernel says that the process is stopped.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for range 1_000_000 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); f[0] == "T" {
			return
		}
		runtime.Gosched()
	}
	t.Fatal("process does not stop")
}

func TestPause(t *testing.T) {
	j, l := newJob(t, "spin")
	j.Deadline = 3 * time.Second
	p := start(t, j)
	l.await(t, p)
	if err := errors.Join(p.Pause(), p.Pause()); err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, p.PID())
	before := usage(t, p)
	if before.RSSBytes < 1<<20 {
		t.Errorf("resident memory = %d, want a few MB", before.RSSBytes)
	}
	spend(t, j.Deadline+time.Second/2, p) // longer than the deadline
	if after := usage(t, p); after.CPU != before.CPU || after.Running != before.Running {
		t.Errorf("usage in the pause went from %+v to %+v", before, after)
	}
	if err := errors.Join(p.Resume(), p.Resume()); err != nil {
		t.Fatal(err)
	}
	r := p.Result()
	want(t, r, runner.Deadline, 0, "")
	if r.Running < j.Deadline || r.CPU <= before.CPU {
		t.Errorf("ran for %v with %v of CPU time, want more than %v and %v", r.Running, r.CPU, j.Deadline, before.CPU)
	}
	if err := p.Pause(); !errors.Is(err, runner.ErrEnded) {
		t.Errorf("Pause() after the end = %v, want %v", err, runner.ErrEnded)
	}
	if u := usage(t, p); u.CPU != r.CPU || u.Running != r.Running {
		t.Errorf("usage after the end = %+v, want that of %+v", u, r)
	}
}

func TestKill(t *testing.T) {
	for _, cmd := range []string{"spin", "sleeps"} {
		t.Run(cmd, func(t *testing.T) {
			j, l := newJob(t, cmd)
			p := start(t, j)
			l.await(t, p)
			p.Kill("owner is back")
			p.Kill("second reason")
			want(t, p.Result(), runner.Killed, 0, "owner is back")
		})
	}
	t.Run("paused", func(t *testing.T) {
		j, l := newJob(t, "spin")
		p := start(t, j)
		l.await(t, p)
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		p.Kill("owner is back")
		want(t, p.Result(), runner.Killed, 0, "owner is back")
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		j, l := newJob(t, "spin")
		p, err := sandbox.Start(ctx, j)
		if err != nil {
			t.Fatal(err)
		}
		l.await(t, p)
		cancel()
		want(t, p.Result(), runner.Killed, 0, "context ended")
		if _, err := sandbox.Start(ctx, j); !errors.Is(err, context.Canceled) {
			t.Errorf("Start() with an ended context = %v", err)
		}
	})
	t.Run("crash", func(t *testing.T) {
		j, l := newJob(t, "spin")
		p := start(t, j)
		l.await(t, p)
		if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		want(t, p.Result(), runner.Crashed, 0, "signal: killed")
	})
}

func TestIsolation(t *testing.T) {
	t.Logf("isolation: %s", sandbox.Isolation())
	j, l := newJob(t, "spin")
	p := start(t, j)
	l.await(t, p)
	if pgid, err := unix.Getpgid(p.PID()); err != nil || pgid != p.PID() {
		t.Errorf("process group = %d, %v, want %d", pgid, err, p.PID())
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID())); err != nil || len(b) != 0 {
		t.Errorf("environment of the child = %q, %v, want none", b, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.PID(), fd.Name()))
		if err == nil && strings.HasPrefix(to, "socket:") {
			t.Errorf("child holds %s", to)
		}
	}
	if sandbox.Isolation() == "no namespaces" {
		requiretest.Skip(t, "namespaces", "the system allows none")
	}
	for _, ns := range []string{"net", "pid", "mnt", "ipc", "uts"} {
		ours, err1 := os.Readlink("/proc/self/ns/" + ns)
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.PID(), ns))
		if err := errors.Join(err1, err2); err != nil || ours == theirs {
			t.Errorf("%s namespace is %s for both, %v", ns, ours, err)
		}
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanEnv+"="+guestModule, "LACUNA_TEST_DIR="+t.TempDir(),
		"LACUNA_TEST_CACHE="+filepath.Join(filepath.Dir(guestModule), "cache"))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	pid := 0
	for spins := false; pid == 0 || !spins; {
		if !lines.Scan() {
			t.Fatal("helper ended early")
		}
		if lines.Text() == "spinning" {
			spins = true
		} else if pid, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatalf("helper says %q", lines.Text())
		}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	alive := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(alive, 0); n != 0 || err != nil {
		t.Fatalf("child has ended before its parent: %d, %v", n, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	for {
		n, err := unix.Poll(alive, 10_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			_ = unix.Kill(pid, unix.SIGKILL)
			t.Fatalf("child outlives its parent by 10 s: %v", err)
		}
		return
	}
}
