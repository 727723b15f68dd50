//go:build unix && !linux

package testnet

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// canKeep says that a process can be told from a later one with its pid.
const canKeep = true

// attributes gives the child a group of its own. The system has no signal for the death of a parent.
func attributes(keep bool) *syscall.SysProcAttr {
	if keep {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}

// startOf returns when a living process began, "" if there is none or it is a zombie.
func startOf(pid int) string {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	state, start, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return ""
	}
	return strings.TrimSpace(start)
}

// awaitExit returns at once: there is no way to wait without reaping that works on all of these systems.
func awaitExit(int) {}

// killGroup does nothing here: the pid may be another process's by now. The peers' own children end with their pipes.
func killGroup(int) {}
