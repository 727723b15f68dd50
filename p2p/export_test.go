package p2p

import (
	"io"
	"net"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
)

// readOnly is a network stream that can only be read.
type readOnly struct {
	network.Stream
	io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// StreamFrom returns a stream that reads from r.
func StreamFrom(r io.Reader) *Stream { return &Stream{s: readOnly{Reader: r}} }

// Announced returns what a host with these options tells others when it has these addresses.
func Announced(o Options, addrs []ma.Multiaddr) []ma.Multiaddr { return o.announced()(addrs) }

// BridgeIPs returns the addresses of container bridges on this computer.
func BridgeIPs() []net.IP { return bridgeIPs() }
