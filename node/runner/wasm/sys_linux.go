package wasm

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// isolation is one way to start the child.
type isolation struct {
	name  string
	flags uintptr
}

const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// isolations lists the ways to start the child, the strongest first. The
// first needs CAP_SYS_ADMIN, the second that users may make user namespaces.
func isolations() []isolation {
	return []isolation{
		{"net,pid,mnt,ipc,uts namespaces", namespaces},
		{"user,net,pid,mnt,ipc,uts namespaces", namespaces | syscall.CLONE_NEWUSER},
		{"no namespaces", 0},
	}
}

func (l isolation) attr() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: l.flags}
	if l.flags&syscall.CLONE_NEWUSER != 0 {
		// The same ids inside as outside: the child keeps access to its files
		// and gains none.
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	return a
}

func signalPause(p *os.Process, paused bool) error {
	if paused {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}

// userHZ is the unit of times in /proc/PID/stat, fixed for user space on every
// architecture Go knows (proc_pid_stat(5), sysconf(_SC_CLK_TCK)).
const userHZ = 100

// processUsage reads the CPU time and the resident memory of a process.
func processUsage(pid int) (cpu time.Duration, rss uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name in the second field may hold anything, brackets too. After it
	// come the fields from the third on: 14 and 15 are user and system time,
	// 24 is resident pages.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 22 {
		return 0, 0, fmt.Errorf("process %d has %d fields", pid, len(f))
	}
	var v [3]uint64
	for i, field := range []int{14, 15, 24} {
		if v[i], err = strconv.ParseUint(f[field-3], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("parse field %d: %w", field, err)
		}
	}
	return time.Duration(v[0]+v[1]) * time.Second / userHZ, v[2] * uint64(os.Getpagesize()), nil
}

// deletedFiles returns the sizes of files that a process has open but that
// have no name any more and so do not show in any folder.
func deletedFiles(pid int) uint64 {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return 0 // ended
	}
	var sum uint64
	for _, fd := range fds {
		name := filepath.Join(dir, fd.Name())
		if to, err := os.Readlink(name); err != nil || !strings.HasSuffix(to, " (deleted)") {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			sum += uint64(info.Size())
		}
	}
	return sum
}

// maxRSS returns the highest resident memory of this process so far. The
// maximum of getrusage(2) is no use: it starts from the parent's, which
// the child shared between fork and exec.
func maxRSS() uint64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseUint(f[1], 10, 64) // 0 = not measured
			return kib << 10
		}
	}
	return 0
}

// limitProcess drops what the child never needs.
func limitProcess() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return err
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur, files.Max = min(files.Cur, maxFiles), min(files.Max, maxFiles)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files)
}

// maxFiles is how many files the child may have open, its pipes and mounts
// among them.
const maxFiles = 512

// limitFiles caps the size of each file the child writes. The write then fails
// with EFBIG; the signal that comes with it is ignored.
func limitFiles(n uint64) error {
	signal.Ignore(syscall.SIGXFSZ)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
}

// reserve sets address space aside without taking memory, or returns nil.
func reserve(n uint64) []byte {
	if n == 0 {
		return nil
	}
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	return b[:0]
}
