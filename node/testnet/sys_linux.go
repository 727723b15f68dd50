package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// canKeep says that a process can be told from a later one with its pid.
const canKeep = true

// attributes gives the child a group of its own, and, unless it is kept, the death of its parent.
func attributes(keep bool) *syscall.SysProcAttr {
	if keep {
		return &syscall.SysProcAttr{Setsid: true} // it outlives the terminal, too
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startOf returns when a living process began, as boot id and clock ticks since, "" if there is none or it is a zombie.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in brackets may hold anything; what follows its last bracket is fields 3 (state) and on. Field 22 is
	// the start time.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return ""
	}
	fields := strings.Fields(string(stat[i+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + fields[19]
}

// awaitExit waits until the child has ended, without reaping it.
func awaitExit(pid int) {
	const idPID = 1
	var info [128]byte // siginfo_t
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if !errors.Is(e, syscall.EINTR) {
			return
		}
	}
}

// killGroup kills the process group of that pid.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // no such group is fine
