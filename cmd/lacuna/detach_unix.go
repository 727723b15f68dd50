//go:build unix

package main

import "syscall"

// detached puts a child into a session of its own, so that it outlives this terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
