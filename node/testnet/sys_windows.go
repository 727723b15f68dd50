package testnet

import "syscall"

// canKeep says that a process cannot be told from a later one with its pid here.
const canKeep = false

// attributes gives the child a group of its own, so that Ctrl-C does not reach it.
func attributes(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// startOf does not know.
func startOf(int) string { return "" }

// awaitExit returns at once.
func awaitExit(int) {}

// killGroup does nothing: there are no groups to kill.
func killGroup(int) {}
