package p2p

import "syscall"

// forceReceiveBuffer lifts the limit where the process may: with CAP_NET_ADMIN.
func forceReceiveBuffer(fd, size int) {
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, size)
}
