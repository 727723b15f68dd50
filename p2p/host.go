package p2p

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// ErrUnreachable means that no connection to a peer could be made.
var ErrUnreachable = errors.New("peer cannot be reached")

// Options set up a [Host].
type Options struct {
	Key      ed25519.PrivateKey // the peer's identity
	Network  string             // 1 to 32 of a–z, 0–9 and -; a name that begins with "test" is a test network
	Profile  Profile            // role; on a test network empty means Testnet, elsewhere Provider
	Testnet  bool               // loopback addresses are used and told; always true on a test network
	Listen   []string           // multiaddrs, tcp or udp/…/quic-v1; none = only dial out
	Announce []string           // multiaddrs to tell others instead of the own ones; none = the own ones
	LAN      bool               // private addresses are told and dialled too; always true on a test network
	Version  string             // of the software, for the user agent; empty = "dev"

	// NetworkKey is the pre-shared key of a private network, 32 bytes: who lacks it cannot even shake hands. It needs TCP or
	// WebSocket; QUIC is not used then. nil = none.
	NetworkKey []byte
	// TLS serves WSS addresses of Listen. nil = none may be listened on.
	TLS *tls.Config
	// Relay says what this peer relays for others once it is directly reachable.
	Relay RelayPolicy
	// MDNS tells and finds peers on the local network.
	MDNS bool
	// Reach, if not ReachUnknown, is taken for granted in place of what others find; for networks in memory.
	Reach market.Reach

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported
	Libp2p     []libp2p.Option       // for networks in memory: how p2ptest replaces the sockets
}

// Host is one peer on one network.
type Host struct {
	host     host.Host
	ping     *ping.PingService
	key      attest.Key
	private  ed25519.PrivateKey
	network  string
	profile  Profile
	testnet  bool
	log      *slog.Logger
	metrics  *metrics
	ctx      context.Context // ends with Close; handlers and pings run under it
	cancel   context.CancelFunc
	mu       sync.Mutex // guards closed against running.Add
	closed   bool
	running  sync.WaitGroup // handlers and pings
	services services
}

// New starts a host that listens on all of o.Listen. If one of these addresses cannot be bound, the error names it, and
// nothing is left open: a peer that is deaf on one side is worse than one that does not start. libp2p's goroutines run
// from now until Close.
func New(o Options) (*Host, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	options, err := o.libp2p()
	if err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	inner, err := libp2p.New(options...)
	if err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	h := &Host{
		host: inner, ping: &ping.PingService{Host: inner}, private: o.Key, network: o.Network, profile: o.Profile,
		testnet: o.Testnet, log: o.Logger, key: attest.Key(o.Key.Public().(ed25519.PublicKey)),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.services.init()
	if h.metrics, err = newMetrics(o.Registerer, func() float64 { return float64(len(inner.Network().Peers())) }); err != nil {
		_ = h.Close()
		return nil, fmt.Errorf("start host: %w", err)
	}
	inner.Network().Notify(&network.NotifyBundle{ConnectedF: h.connected})
	for _, addr := range o.Listen {
		if err := listen(inner, addr); err != nil {
			_ = h.Close()
			return nil, fmt.Errorf("listen on %s: %w", addr, err)
		}
	}
	return h, nil
}

// complete checks the options, reports all faults at once, and fills in what was left out.
func (o *Options) complete() error {
	var errs []error
	if len(o.Key) != ed25519.PrivateKeySize {
		errs = append(errs, fmt.Errorf("key of %d bytes, want an Ed25519 private key of 64", len(o.Key)))
	}
	if err := checkNetwork(o.Network); err != nil {
		errs = append(errs, err)
	}
	o.Testnet = o.Testnet || market.IsTestNetwork(o.Network)
	o.LAN = o.LAN || o.Testnet
	switch {
	case o.Profile == "" && o.Testnet:
		o.Profile = Testnet
	case o.Profile == "":
		o.Profile = Provider
	}
	if _, ok := profiles[o.Profile]; !ok {
		errs = append(errs, fmt.Errorf("profile %q: want hub, provider, light or testnet", o.Profile))
	}
	for _, addr := range slices.Concat(o.Listen, o.Announce) {
		if _, err := ma.NewMultiaddr(addr); err != nil {
			errs = append(errs, fmt.Errorf("address %q: want a multiaddr such as /ip4/0.0.0.0/tcp/4711", addr))
		}
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// checkNetwork reports a name that cannot stand in a protocol ID.
func checkNetwork(name string) error {
	ok := len(name) >= 1 && len(name) <= 32
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return fmt.Errorf("network %.40q: want 1 to 32 of a-z, 0-9 and -", name)
	}
	return nil
}

// Close ends all streams and connections and waits for handlers, whose contexts end. A handler must not call it.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	err := h.host.Close()
	h.running.Wait()
	if h.metrics != nil {
		h.metrics.unregister()
	}
	if err != nil {
		return fmt.Errorf("close host: %w", err)
	}
	return nil
}

// begin counts a goroutine in; it reports false when the host closes.
func (h *Host) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running.Add(1)
	return true
}

// Key returns the peer's own key.
func (h *Host) Key() attest.Key { return h.key }

// Network returns the name of the network.
func (h *Host) Network() string { return h.network }

// NetworkID returns the network's id, as it stands in signatures.
func (h *Host) NetworkID() attest.Digest { return attest.NetworkID(h.network) }

// Profile returns the role that was asked for.
func (h *Host) Profile() Profile { return h.profile }

// Testnet reports whether the host runs with the rules of a test network.
func (h *Host) Testnet() bool { return h.testnet }

// Libp2p returns the library's host, for the packages below p2p and for nobody else.
func (h *Host) Libp2p() host.Host { return h.host }

// Addrs returns the addresses under which others may reach the host, as multiaddrs without /p2p.
func (h *Host) Addrs() []string { return addrStrings(h.host.Addrs()) }

func addrStrings(addrs []ma.Multiaddr) []string {
	out := make([]string, len(addrs))
	for i, m := range addrs {
		out[i] = m.String()
	}
	return out
}

// Connect makes sure that there is a connection to the peer, under one of addrs or those known already. The error wraps
// [ErrUnreachable] if there is none, also when another peer answers at its addresses.
func (h *Host) Connect(ctx context.Context, key attest.Key, addrs []string) error {
	id := PeerID(key)
	if id == h.host.ID() {
		return fmt.Errorf("connect to %s: %w: it is this peer itself", key.Short(), ErrUnreachable)
	}
	if h.host.Network().Connectedness(id) == network.Connected {
		return nil
	}
	// The library refuses to dial again for a while after a failure; a call is a decision to try now.
	if s, ok := h.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(id)
	}
	info := peer.AddrInfo{ID: id, Addrs: h.dialable(parseAddrs(key, addrs))}
	if err := h.host.Connect(ctx, info); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("connect to %s: %w: %w", key.Short(), ErrUnreachable, ctx.Err())
		}
		return fmt.Errorf("connect to %s: %w: %w", key.Short(), ErrUnreachable, err)
	}
	return nil
}

// PeerInfo is a connected peer.
type PeerInfo struct {
	Key     attest.Key
	Addr    string        // the other end of the connection; of an inbound one the port cannot be dialled
	Addrs   []string      // where the peer says it can be reached
	Inbound bool          // it dialled us
	Since   time.Time     // when the connection was made
	Latency time.Duration // round trip, smoothed; 0 = not measured yet
}

// Connected reports whether this peer has a connection to that one.
func (h *Host) Connected(key attest.Key) bool {
	return h.host.Network().Connectedness(PeerID(key)) == network.Connected
}

// Peers returns the connected peers, in no order.
func (h *Host) Peers() []PeerInfo {
	var out []PeerInfo
	for _, id := range h.host.Network().Peers() {
		key, err := KeyOf(id)
		conns := h.host.Network().ConnsToPeer(id)
		if err != nil || len(conns) == 0 {
			continue
		}
		out = append(out, PeerInfo{
			Key: key, Addr: conns[0].RemoteMultiaddr().String(), Addrs: addrStrings(h.host.Peerstore().Addrs(id)),
			Inbound: conns[0].Stat().Direction == network.DirInbound, Since: conns[0].Stat().Opened,
			Latency: h.host.Peerstore().LatencyEWMA(id),
		})
	}
	return out
}

// Disconnect closes all connections to the peer.
func (h *Host) Disconnect(key attest.Key) { _ = h.host.Network().ClosePeer(PeerID(key)) }

// Remember keeps addresses of a peer for an hour, so that it can be dialled by key alone.
func (h *Host) Remember(key attest.Key, addrs []string) {
	h.host.Peerstore().AddAddrs(PeerID(key), h.dialable(parseAddrs(key, addrs)), peerstore.AddressTTL)
}
