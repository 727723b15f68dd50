package p2p

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/transport"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/websocket"
	ma "github.com/multiformats/go-multiaddr"
)

// transports returns how packets travel. Addresses are bound one by one after start, since the library is content when
// one of many can be.
func (o *Options) transports() []libp2p.Option {
	options := []libp2p.Option{libp2p.NoListenAddrs, libp2p.Transport(tcp.NewTCPTransport), libp2p.Transport(o.webSocket)}
	if o.shared() {
		options = append(options, libp2p.ShareTCPListener())
	}
	if len(o.NetworkKey) > 0 {
		// With a key the library's QUIC refuses to start.
		return append(options, libp2p.PrivateNetwork(o.NetworkKey))
	}
	quietQUIC()
	return append(options, libp2p.Transport(libp2pquic.NewTransport))
}

// shared reports whether a TCP and a WebSocket address are to share a port, or two kinds of WebSocket. Only then the
// library looks at the first bytes of each connection before it knows what to do with it.
func (o *Options) shared() bool {
	seen := make(map[string]bool)
	for _, s := range o.Listen {
		m, err := ma.NewMultiaddr(s)
		if err != nil || kindOf(m) == kindQUIC {
			continue
		}
		socket := socketOf(m).String()
		if seen[socket] && !strings.HasSuffix(socket, "/0") {
			return true
		}
		seen[socket] = true
	}
	return false
}

// kind is what is spoken at an address.
type kind int

const (
	kindTCP kind = iota
	kindQUIC
	kindWS
	kindWSS
	kindCircuit
)

func kindOf(m ma.Multiaddr) kind {
	var ws, wss, quic, circuit bool
	ma.ForEach(m, func(c ma.Component) bool {
		switch c.Protocol().Code {
		case ma.P_WS:
			ws = true
		case ma.P_WSS, ma.P_TLS:
			wss = true
		case ma.P_QUIC_V1:
			quic = true
		case ma.P_CIRCUIT:
			circuit = true
		}
		return true
	})
	switch {
	case circuit:
		return kindCircuit
	case wss:
		return kindWSS
	case ws:
		return kindWS
	case quic:
		return kindQUIC
	}
	return kindTCP
}

// socketOf returns the part of an address that the system knows: up to the port.
func socketOf(m ma.Multiaddr) ma.Multiaddr {
	head, _ := ma.SplitFunc(m, func(c ma.Component) bool {
		switch c.Protocol().Code {
		case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6, ma.P_TCP, ma.P_UDP:
			return false
		}
		return true
	})
	return head
}

// webSocketTransport leaves the names of peers to the proxy where one is set: behind one there is often no name server
// that knows the world.
type webSocketTransport struct{ *websocket.WebsocketTransport }

var (
	_ transport.Resolver     = webSocketTransport{}
	_ transport.SkipResolver = webSocketTransport{}
)

func (o *Options) webSocket(u transport.Upgrader, r network.ResourceManager, shared *tcpreuse.ConnMgr) (webSocketTransport, error) {
	options := []websocket.Option{websocket.WithTLSClientConfig(&tls.Config{RootCAs: o.TLSRoots, MinVersion: tls.VersionTLS12})}
	if o.TLS != nil {
		options = append(options, websocket.WithTLSConfig(o.TLS))
	}
	t, err := websocket.New(u, r, shared, options...)
	return webSocketTransport{t}, err
}

// SkipResolve reports whether the address is dialled through a proxy, by the same rule as the library's dialer.
func (webSocketTransport) SkipResolve(_ context.Context, m ma.Multiaddr) bool {
	u := url.URL{Scheme: "http"}
	if kindOf(m) == kindWSS {
		u.Scheme = "https"
	}
	first, _ := ma.SplitFirst(m)
	port, err := m.ValueForProtocol(ma.P_TCP)
	if first == nil || err != nil {
		return false
	}
	u.Host = net.JoinHostPort(first.Value(), port)
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &u})
	return err == nil && proxy != nil
}
