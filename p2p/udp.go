package p2p

import (
	"net"
	"os"
)

// udpBuffer is what QUIC asks the system for, each way (quic-go v0.64.1, internal/protocol/params.go).
const udpBuffer = 7 << 20

// UDPBuffers opens a socket and tries how large the system lets QUIC's receive buffer become, in the same way and by the
// same measure as the library does. want and got are bytes as the system counts them; ok is whether that is enough. With
// less, a fast stream over a long way loses packets. On Linux the cure is, as root,
//
//	sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000
//
// got is 0 and ok true where the system does not tell.
func UDPBuffers() (want, got int, ok bool) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		if c, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			return udpBuffer, 0, true
		}
	}
	defer c.Close() // nothing was sent
	got, known := receiveBuffer(c, udpBuffer)
	if !known {
		return udpBuffer, 0, true
	}
	return udpBuffer, got, got >= udpBuffer
}

// quietQUIC keeps the library from printing to standard error, with the standard logger, what [UDPBuffers] finds out
// too. The environment is the only way it offers.
func quietQUIC() { _ = os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") }
