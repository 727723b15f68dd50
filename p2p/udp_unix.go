//go:build unix

package p2p

import (
	"net"
	"syscall"
)

// receiveBuffer asks for a buffer of that size and returns what the socket has then.
func receiveBuffer(c *net.UDPConn, size int) (got int, known bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	inspect := func() {
		controlErr := raw.Control(func(fd uintptr) {
			got, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		})
		known = controlErr == nil && err == nil
	}
	_ = c.SetReadBuffer(size) // what came of it is asked next
	if inspect(); known && got < size {
		_ = raw.Control(func(fd uintptr) { forceReceiveBuffer(int(fd), size) })
		inspect()
	}
	return got, known
}
