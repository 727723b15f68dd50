package p2p

import (
	"net"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// transports returns how packets travel. Addresses are bound one by one after start, since the library is content when
// one of many can be.
func (o *Options) transports() []libp2p.Option {
	return []libp2p.Option{libp2p.NoListenAddrs, libp2p.Transport(tcp.NewTCPTransport), libp2p.Transport(libp2pquic.NewTransport)}
}

// listen binds one address.
func listen(h host.Host, addr string) error {
	m, err := ma.NewMultiaddr(addr)
	if err != nil {
		return err
	}
	// libp2p listens with SO_REUSEPORT, so that a second daemon of the same user would share the port with the first
	// and take half of its connections. Binding without that option first finds out.
	if network, address, err := manet.DialArgs(m); err == nil && (network == "tcp4" || network == "tcp6") {
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return h.Network().Listen(m)
}
