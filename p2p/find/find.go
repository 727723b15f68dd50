// Package find keeps asks at the peers of a DHT: a provider publishes its ask there, and whoever looks for capacity finds
// it.
//
// The DHT itself (Kademlia of libp2p) only says which peers are nearest to a key. An ask is kept by those nearest to
//
//	/lacuna-ask/<peer id of the provider>
//	/lacuna-asks/1/<class>/<place>        place = a continent or "any", and class "all" with place "any"
//
// the second once for each of the ask's classes. These are its buckets. Provider and storing peer speak two protocols,
// each one stream with one request:
//
//	ask-put   provider → storing peer   {1: ask}                                     → {1: kept}
//	ask-get   anyone → storing peer     {1: provider, 2: classes, 3: places,
//	                                     4: limit ≤ 256, 5: tags of known asks,
//	                                     6: part, 7: parts}                          → frames {1: [ask, up to 12]}, end
//
// A tag is the first 8 bytes of the SHA-256 of an ask's payload. A storing peer takes an ask only from its own provider;
// signature, size, expiry and sequence are checked there and again by whoever finds it. It forgets an ask when it
// expires, and keeps at most 8,192.
//
// Nothing found proves nothing: peers near a key can hide what they keep. The main type is [Finder]. It answers no bids
// and ranks nothing. It is used by node, and is safe for concurrent use. RATIONALE.md has the measurements.
//
// History: 2026-11-30 records and buckets version 1.
package find

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	pb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// ErrNotFound means that no valid ask of a provider was found. It may have one all the same.
var ErrNotFound = errors.New("no ask found")

// ErrAlone means that there is no other DHT server to hold an ask.
var ErrAlone = errors.New("no other peer holds it")

const (
	concurrency  = 3                // calls in flight per look-up on a test network, whose peers share one machine
	identifyWait = time.Second      // for a peer that has just connected to say whether it serves the DHT
	opTimeout    = 30 * time.Second // for one operation whose caller sets no deadline
)

// Mode says whether a peer serves the DHT: answers where keys are, and keeps asks of others.
type Mode uint8

// The modes.
const (
	Auto   Mode = iota // as the host's profile says; a provider serves while others can reach it directly, a hub or not
	Client             // never; for peers that nobody could dial, and so would only slow the look-ups of others down
	Server             // always
)

// Options set up a [Finder].
type Options struct {
	Host *p2p.Host
	Mode Mode // a peer wants Auto; the others are for tests that need one kind

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported
}

// Finder is this peer's part of the DHT.
type Finder struct {
	host    *p2p.Host
	dht     *dht.IpfsDHT
	proto   protocol.ID
	network attest.Digest
	log     *slog.Logger
	metrics *metrics
	store   *store
	newest  *memory
	liars   liars
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	walks   sync.WaitGroup
	mu      sync.Mutex // guards the end of ctx against walks.Add, and what follows
	walking int        // walks under way
	keys    []string   // where the own ask was brought last
	holders []peer.ID  // who took it
}

// New joins the DHT with the peers that the host is connected to, now and later. [Finder.Close] must come before the
// host's.
func New(o Options) (*Finder, error) {
	if o.Host == nil {
		return nil, errors.New("start finder: no host")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	prefix := protocol.ID("/lacuna/" + o.Host.Network())
	f := &Finder{
		host: o.Host, proto: prefix + "/kad/1.0.0", network: o.Host.NetworkID(), log: o.Logger,
		store: newStore(maxStored), newest: newMemory(),
	}
	var err error
	if f.metrics, err = newMetrics(o.Registerer, func() float64 { return float64(f.store.size()) }); err != nil {
		return nil, fmt.Errorf("start finder: %w", err)
	}
	if f.dht, err = dht.New(o.Host.Libp2p(), f.dhtOptions(prefix, o.mode())...); err != nil {
		f.metrics.unregister()
		return nil, fmt.Errorf("start finder: %w", err)
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	// Also while it is no server: whoever is connected to a provider gets its ask from itself.
	o.Host.Handle(PutProtocol, f.servePut)
	o.Host.Handle(GetProtocol, f.serveGet)
	return f, nil
}

// mode returns how the library shall behave. Its automatic mode follows what the host emits about its reachability.
func (o Options) mode() dht.ModeOpt {
	switch {
	case o.Mode == Client, o.Mode == Auto && o.Host.Profile() == p2p.Light:
		return dht.ModeClient
	case o.Mode == Server, o.Host.Profile() == p2p.Hub, o.Host.Testnet():
		return dht.ModeServer
	}
	return dht.ModeAuto
}

func (f *Finder) dhtOptions(prefix protocol.ID, mode dht.ModeOpt) []dht.Option {
	options := []dht.Option{
		dht.ProtocolPrefix(prefix), dht.Mode(mode), dht.BootstrapPeers(), dht.DisableValues(), dht.DisableProviders(),
		dht.OnRequestHook(func(context.Context, network.Stream, *pb.Message) { f.metrics.served.WithLabelValues("route").Inc() }),
	}
	if f.host.Testnet() {
		// With automatic refresh every peer dials nearly every other: 200 peers on one machine took 147 s to settle.
		options = append(options, dht.DisableAutoRefresh(), dht.Concurrency(concurrency))
	}
	if !f.host.LAN() {
		// The open internet: only public addresses count, and few peers of one address range.
		options = append(options, dht.QueryFilter(dht.PublicQueryFilter), dht.RoutingTableFilter(dht.PublicRoutingTableFilter),
			dht.RoutingTablePeerDiversityFilter(dht.NewRTPeerDiversityFilter(f.host.Libp2p(), 2, 3)), // per bucket, in all
			dht.AddressFilter(func(addrs []ma.Multiaddr) []ma.Multiaddr { return ma.FilterAddrs(addrs, manet.IsPublicAddr) }))
	}
	return options
}

// Close leaves the DHT. What others keep of this peer stays until it expires.
func (f *Finder) Close() error {
	f.host.Unhandle(PutProtocol)
	f.host.Unhandle(GetProtocol)
	f.mu.Lock()
	f.cancel()
	f.mu.Unlock()
	f.walks.Wait()
	f.metrics.unregister()
	if err := f.dht.Close(); err != nil {
		return fmt.Errorf("close finder: %w", err)
	}
	return nil
}

// Size returns how many peers the routing table holds.
func (f *Finder) Size() int { return f.dht.RoutingTable().Size() }

// Refresh learns of peers near this one, through those it is connected to. Call it after connecting to the first ones.
// It fails if none of them serves the DHT.
func (f *Finder) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	f.seed(ctx)
	if _, err := f.dht.GetClosestPeers(ctx, string(p2p.PeerID(f.host.Key()))); err != nil {
		return fmt.Errorf("refresh routing table: %w", err)
	}
	return nil
}

// seed puts connected peers that serve the DHT into a small routing table at once. The library does so, too, but only
// after a look-up of its own, and a fresh network must not seem empty until then.
func (f *Finder) seed(ctx context.Context) {
	table := f.dht.RoutingTable()
	if table.Size() >= f.dht.BucketSize() {
		return
	}
	h := f.host.Libp2p()
	ctx, cancel := context.WithTimeout(ctx, identifyWait)
	defer cancel()
	for _, id := range h.Network().Peers() {
		if table.Find(id) != "" {
			continue
		}
		f.waitIdentified(ctx, h.Network().ConnsToPeer(id))
		if spoken, err := h.Peerstore().SupportsProtocols(id, f.proto); err != nil || len(spoken) == 0 {
			continue
		}
		if _, err := table.TryAddPeer(id, true, false); err != nil {
			f.log.Debug("peer not added to routing table", "peer", id.String(), "err", err)
		}
	}
}

func (f *Finder) waitIdentified(ctx context.Context, conns []network.Conn) {
	h, ok := f.host.Libp2p().(interface{ IDService() identify.IDService })
	if !ok || len(conns) == 0 {
		return
	}
	select {
	case <-h.IDService().IdentifyWait(conns[0]):
	case <-ctx.Done():
	}
}
