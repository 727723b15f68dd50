package main

import "syscall"

// detached gives a child no console, so that it outlives this one. 0x8 is DETACHED_PROCESS of the Windows API.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | 0x8}
}
