//go:build !unix

package p2p

import "net"

// receiveBuffer does not know.
func receiveBuffer(*net.UDPConn, int) (got int, known bool) { return 0, false }
