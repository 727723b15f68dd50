package home

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// InUseError says that a daemon runs on the home.
type InUseError struct {
	Dir string
	PID int // of that daemon, as it sees itself; 0 = not known
}

// Error says who holds the home and what to do.
func (e *InUseError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("the process with pid %d", e.PID)
	}
	return fmt.Sprintf("home %s is in use by %s: stop it with `lacuna down --home %s`, or choose another home with --home", e.Dir, who, e.Dir)
}

// errHeld is what lockFile returns when another process holds the lock.
var errHeld = errors.New("lock is held")

// Lock is a home that is taken. It is held by the open file, so the system releases it with the process, however that
// ends; the file stays, and deleting it is never needed.
type Lock struct{ f *os.File }

// A lock that is held is tried again, for [Home.Running] holds it for a moment.
const (
	lockTries = 5
	lockPause = 20 * time.Millisecond
)

// Lock takes the home, which must exist. If another process has it, the error is an [*InUseError], within a tenth of a
// second. The pid in it is for people only: in two containers both may be 1.
func (h Home) Lock() (*Lock, error) {
	p := h.path("lock")
	f, err := lockFile(p)
	for try := 1; try < lockTries && errors.Is(err, errHeld); try++ {
		time.Sleep(lockPause)
		f, err = lockFile(p)
	}
	if errors.Is(err, errHeld) {
		return nil, &InUseError{Dir: h.dir, PID: h.holder()}
	}
	if err != nil {
		return nil, fmt.Errorf("lock home: %w", explain(p, err))
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock home: %w", err)
	}
	return &Lock{f}, nil
}

// Running reports whether a process holds the home, and which, as far as its file says; pid 0 is not known. It changes
// nothing and makes no file.
func (h Home) Running() (pid int, held bool) {
	p := h.path("lock")
	if _, err := os.Stat(p); err != nil {
		return 0, false
	}
	f, err := lockFile(p)
	if err == nil {
		_ = f.Close()
	}
	if !errors.Is(err, errHeld) {
		return 0, false
	}
	return h.holder(), true
}

// holder returns the pid in the lock file, 0 if there is none.
func (h Home) holder() int {
	f, err := os.Open(h.path("lock"))
	if err != nil {
		return 0
	}
	defer f.Close() // only read
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// Close gives the home back. It may be called more than once.
func (l *Lock) Close() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
