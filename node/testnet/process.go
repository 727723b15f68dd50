package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child of this process.
type process struct {
	pid     int
	started string // as startOf tells it
	proc    *os.Process
	gone    chan struct{} // closed when it has been reaped, and its group was killed
}

// launch starts a program whose output goes to the end of the log.
func launch(binary string, args, env []string, log string, keep bool) (*process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	cmd.SysProcAttr = attributes(keep)
	p := &process{gone: make(chan struct{})}
	begun := make(chan error, 1)
	go func() {
		// The signal that ends the child with its parent is sent when the *thread* that forked ends. So one thread is
		// held for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			begun <- err
			return
		}
		p.pid, p.proc, p.started = cmd.Process.Pid, cmd.Process, startOf(cmd.Process.Pid)
		begun <- nil
		awaitExit(p.pid)
		// The pid stays taken until it is reaped, so the group is certainly the child's. A peer that was killed cannot
		// clean up after itself.
		killGroup(p.pid)
		_ = cmd.Wait() // how it ended is in its log
		close(p.gone)
	}()
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// kill ends the process at once; its group follows when it is gone. The signal cannot hit another process, since the
// pid is not reaped without this package knowing.
func (p *process) kill() { _ = p.proc.Kill() }

// stop asks the process to end, waits, and kills it if it does not.
func (p *process) stop(grace time.Duration) {
	if err := p.proc.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.kill() // a system without SIGTERM
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-p.gone:
	case <-patience.C:
		p.kill()
		<-p.gone
	}
}

// endForeign ends a process that need not be a child: SIGTERM, then SIGKILL for its group.
func endForeign(pid int, started string) error {
	proc, err := os.FindProcess(pid) // where the system has handles for processes, it names this one for good
	if err != nil {
		return nil // gone
	}
	defer func() { _ = proc.Release() }()
	alive := func() bool { return startOf(pid) == started }
	if !alive() {
		return nil
	}
	if err := proc.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	deadline := time.Now().Add(stopGrace)
	for killed := false; alive(); <-tick.C {
		switch now := time.Now(); {
		case !killed && now.After(deadline):
			killGroup(pid)
			_ = proc.Kill() // gone already is fine
			killed = true
		case now.After(deadline.Add(stopGrace)):
			return fmt.Errorf("process %d does not end", pid)
		}
	}
	return nil
}
