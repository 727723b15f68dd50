package p2p

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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
	Listen   []string           // multiaddrs of tcp, quic-v1, ws and tls/ws; or [ListenAuto] alone; none = only dial out
	Announce []string           // multiaddrs to tell others instead of the own ones; none = the own ones
	LAN      bool               // private addresses are told and dialled too; always true on a test network
	// Favour names peers whose streams are still taken when strangers have taken all places of a protocol. It is asked for
	// each stream and must answer from memory. nil = nobody.
	Favour  func(attest.Key) bool
	Version string // of the software, for the user agent; empty = "dev"

	// NetworkKey is the pre-shared key of a private network, 32 bytes: who lacks it cannot even shake hands. It needs TCP or
	// WebSocket; QUIC is not used then. nil = none.
	NetworkKey []byte
	// TLS serves WSS addresses of Listen. nil = none may be listened on.
	TLS *tls.Config
	// TLSRoots are the certificates to trust when WSS is dialled. nil = the system's.
	TLSRoots *x509.CertPool
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
	notes    []string               // on how it listens; set by New
	deaf     atomic.Pointer[string] // why neighbours are not found; nil = they are, or are not looked for
	lan      bool                   // private addresses are told and dialled
	mayServe bool                   // as a hub

	networkKey []byte // nil = none
	rtts       rtts
	paths      paths
	gate       *gate
	reach      *reacher // nil on a test network, where everybody reaches everybody
}

// New starts a host that listens on all of o.Listen. If one of these addresses cannot be bound, the error names it, and
// nothing is left open: a peer that is deaf on one side is worse than one that does not start. libp2p's goroutines run
// from now until Close.
func New(o Options) (*Host, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	h := &Host{
		network: o.Network, profile: o.Profile, testnet: o.testnet(), log: o.Logger,
		key: attest.Key(o.Key.Public().(ed25519.PublicKey)), gate: newGate(),
		lan: o.LAN, mayServe: o.Relay.Serve, networkKey: o.NetworkKey,
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.services.init(o.Favour)
	h.rtts.init()
	h.paths.init()
	if !o.testnet() || o.Reach != market.ReachUnknown {
		h.reach = newReacher(&o)
	}
	if err := h.build(&o); err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	if h.reach != nil {
		if err := h.reach.start(h, &o); err != nil {
			_ = h.Close()
			return nil, fmt.Errorf("start host: %w", err)
		}
	}
	if err := h.listen(&o); err != nil {
		_ = h.Close()
		return nil, fmt.Errorf("start host: %w", err)
	}
	if h.reach != nil {
		h.reach.watch()
	}
	if o.MDNS {
		h.findNeighbours()
	}
	if h.begin() {
		go func() { // ends with the host's context, which Close waits for
			defer h.running.Done()
			h.pingAll()
		}()
	}
	return h, nil
}

// build makes the library's host, which listens nowhere yet.
func (h *Host) build(o *Options) (err error) {
	h.metrics = newMetrics(o.Registerer, func() float64 { return float64(len(h.host.Network().Peers())) })
	options, err := o.libp2p(h)
	if err != nil {
		return err
	}
	if h.host, err = libp2p.New(options...); err != nil {
		return err
	}
	if err := h.metrics.register(); err != nil {
		_ = h.host.Close()
		return err
	}
	h.ping = &ping.PingService{Host: h.host}
	h.host.Network().Notify(&network.NotifyBundle{ConnectedF: h.connected, DisconnectedF: h.disconnected})
	return nil
}

func (h *Host) connected(n network.Network, c network.Conn) {
	h.paths.opened(n, c)
	h.pingNew(c.RemotePeer())
}

func (h *Host) disconnected(_ network.Network, c network.Conn) {
	h.paths.closed(c)
	if h.reach != nil {
		h.reach.lose(c, time.Now())
		h.reach.poke()
	}
}

// testnet reports a test network: its peers may share a machine, so loopback addresses are used and told.
func (o *Options) testnet() bool { return market.IsTestNetwork(o.Network) }

// complete checks the options, reports all faults at once, and fills in what was left out.
func (o *Options) complete() error {
	var errs []error
	if len(o.Key) != ed25519.PrivateKeySize {
		errs = append(errs, fmt.Errorf("key of %d bytes, want an Ed25519 private key of 64", len(o.Key)))
	}
	if err := checkNetwork(o.Network); err != nil {
		errs = append(errs, err)
	}
	o.LAN = o.LAN || o.testnet()
	switch {
	case o.Profile == "" && o.testnet():
		o.Profile = Testnet
	case o.Profile == "":
		o.Profile = Provider
	}
	if _, ok := profiles[o.Profile]; !ok {
		errs = append(errs, fmt.Errorf("profile %q: want hub, provider, light or testnet", o.Profile))
	}
	errs = append(errs, o.checkAddrs()...)
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
	if h.reach != nil {
		h.reach.close()
	}
	err := h.host.Close()
	h.running.Wait()
	h.metrics.unregister()
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

// LAN reports whether private addresses are told and dialled too.
func (h *Host) LAN() bool { return h.lan }

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

// Connect makes sure that there is a connection to the peer, under one of addrs or those known already; one through a
// relay will do, see [Host.Widen]. The error wraps [ErrUnreachable] if there is none, also when another peer answers at
// its addresses; such an address is not tried again for five minutes. Addresses that a stranger may not name, such as
// private ones on a public network, are left out.
func (h *Host) Connect(ctx context.Context, key attest.Key, addrs []string) error {
	return h.connect(ctx, key, h.dialable(parseAddrs(key, addrs)))
}

// Dial is [Host.Connect] for addresses that this peer's owner has named: private ones are dialled on every network.
func (h *Host) Dial(ctx context.Context, key attest.Key, addrs []string) error {
	return h.connect(ctx, key, parseAddrs(key, addrs))
}

func (h *Host) connect(ctx context.Context, key attest.Key, known []ma.Multiaddr) error {
	id := PeerID(key)
	if id == h.host.ID() {
		return fmt.Errorf("connect to %s: %w: it is this peer itself", key.Short(), ErrUnreachable)
	}
	switch h.host.Network().Connectedness(id) {
	case network.Connected:
		return nil
	case network.Limited:
		h.host.Peerstore().AddAddrs(id, known, peerstore.TempAddrTTL) // a straight way may be among them, see Widen
		return nil
	}
	// The library refuses to dial again for a while after a failure; a call is a decision to try now.
	if s, ok := h.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(id)
	}
	info := peer.AddrInfo{ID: id, Addrs: known}
	if err := h.host.Connect(network.WithAllowLimitedConn(ctx, "connect"), info); err != nil {
		h.gate.failed(id, err, time.Now())
		if ctx.Err() != nil {
			return fmt.Errorf("connect to %s: %w: %w", key.Short(), ErrUnreachable, ctx.Err())
		}
		return fmt.Errorf("connect to %s: %w: %w", key.Short(), ErrUnreachable, explainDial(err))
	}
	return nil
}

// PeerInfo is a connected peer.
type PeerInfo struct {
	Key     attest.Key
	Addr    string   // the other end of the best connection; of an inbound one the port cannot be dialled
	Addrs   []string // where the peer says it can be reached
	Inbound bool     // it dialled us
	Path    Path     // how that connection runs
}

// Connected reports whether this peer has a connection to that one, straight or through a relay.
func (h *Host) Connected(key attest.Key) bool {
	switch h.host.Network().Connectedness(PeerID(key)) {
	case network.Connected, network.Limited:
		return true
	}
	return false
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
		best := slices.MaxFunc(conns, func(a, b network.Conn) int { return cmp.Compare(h.pathOf(a), h.pathOf(b)) })
		out = append(out, PeerInfo{
			Key: key, Addr: best.RemoteMultiaddr().String(), Addrs: addrStrings(h.host.Peerstore().Addrs(id)),
			Inbound: best.Stat().Direction == network.DirInbound, Path: h.pathOf(best),
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
