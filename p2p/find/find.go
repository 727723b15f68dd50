// Package find keeps asks in a DHT: a provider publishes its ask there, and whoever looks for capacity finds it.
//
// An ask is stored twice. Its envelope is the value under the provider's own key,
//
//	/lacuna-ask/<peer id>
//
// which every storing peer accepts only if the provider signed it, it is at most [market.MaxAskBytes] long and has not
// expired; of several the highest sequence counts. And the provider enters itself into a bucket per class and place,
//
//	SHA-256("lacuna-ask/1/<class>/<place>"), place = a continent or "any", and class "all" with place "any"
//
// from which a [Query] draws candidates. Buckets only route: what is found is always the signed ask, checked again here.
//
// Nothing found proves nothing: peers near a key can hide what they store. The main type is [Finder]. It answers no bids
// and ranks nothing. It is used by node, and is safe for concurrent use.
//
// History: 2026-11-30 records and buckets version 1.
package find

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p-kad-dht/records"
	kbucket "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/routing"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// ErrNotFound means that no valid ask of a provider was found. It may have one all the same.
var ErrNotFound = errors.New("no ask found")

// Numbers of the DHT. The storing peers decide how long they keep a record, so all peers must run with the same ones.
const (
	recordAge    = market.MaxAskLife // no ask lives longer
	bucketAge    = 30 * time.Minute  // a machine that is switched off at night soon leaves its buckets
	cleanup      = 5 * time.Minute
	quorum       = 3                // answers that settle a look-up; asking all costs 25 calls and five times the wait
	concurrency  = 3                // calls in flight per look-up on a test network, whose peers share one machine
	identifyWait = time.Second      // for a peer that has just connected to say whether it serves the DHT
	opTimeout    = 30 * time.Second // for one operation whose caller sets no deadline
)

// Republish is how often an ask should be published again; give it some jitter. Twice it fits into the buckets' age.
const Republish = 11 * time.Minute

// ErrAlone means that there is no other DHT server to hold an ask.
var ErrAlone = errors.New("no other peer holds it")

// Options set up a [Finder].
type Options struct {
	Host   *p2p.Host
	Server bool // stores and answers for others; false for light clients and for peers that cannot be dialled
	Public bool // the open internet: only public addresses count, and few peers of one address range. False on LANs

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
	newest  *memory
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
		host: o.Host, proto: prefix + "/kad/1.0.0", network: o.Host.NetworkID(), log: o.Logger, newest: newMemory(),
	}
	mode := dht.ModeClient
	if o.Server {
		mode = dht.ModeServer
	}
	options := []dht.Option{
		dht.ProtocolPrefix(prefix), dht.Mode(mode), dht.BootstrapPeers(), dht.Validator(validator{network: f.network}),
		dht.MaxRecordAge(recordAge), dht.ProviderManagerOpts(records.ProvideValidity(bucketAge), records.CleanupInterval(cleanup)),
	}
	if o.Host.Testnet() {
		// With automatic refresh every peer dials nearly every other: 200 peers on one machine took 147 s to settle.
		options = append(options, dht.DisableAutoRefresh(), dht.Concurrency(concurrency))
	}
	if o.Public {
		options = append(options, dht.QueryFilter(dht.PublicQueryFilter), dht.RoutingTableFilter(dht.PublicRoutingTableFilter),
			dht.RoutingTablePeerDiversityFilter(dht.NewRTPeerDiversityFilter(o.Host.Libp2p(), 2, 3)), // per bucket, in all
			dht.AddressFilter(func(addrs []ma.Multiaddr) []ma.Multiaddr { return ma.FilterAddrs(addrs, manet.IsPublicAddr) }))
	}
	var err error
	if f.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("start finder: %w", err)
	}
	if f.dht, err = dht.New(o.Host.Libp2p(), options...); err != nil {
		f.metrics.unregister()
		return nil, fmt.Errorf("start finder: %w", err)
	}
	return f, nil
}

// Close leaves the DHT. What others store of this peer stays until it expires.
func (f *Finder) Close() error {
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

// Publish stores an ask of this peer and enters it into its buckets. Call it again every [Republish], with a new
// sequence. An ask with a lower sequence than the last is refused. It returns an error that wraps [ErrAlone] if nobody
// but this peer holds the ask; those who are connected, such as light clients, find it all the same.
func (f *Finder) Publish(ctx context.Context, ask attest.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	a, err := f.put(ctx, ask)
	if err != nil && !errors.Is(err, ErrAlone) {
		return fmt.Errorf("publish ask: %w", err)
	}
	// Each of these keeps the entry here too, before it looks for others.
	for _, b := range bucketsOf(a) {
		if perr := f.dht.Provide(ctx, b.cid(), true); perr != nil && err == nil {
			err = fmt.Errorf("in %s: %w", b, perr)
		}
	}
	if err != nil {
		return fmt.Errorf("publish ask: %w", err)
	}
	return nil
}

// Withdraw replaces this peer's ask by a last one with a higher sequence that expires within seconds: a DHT cannot
// delete, but everyone forgets what has expired.
func (f *Finder) Withdraw(ctx context.Context, last attest.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if _, err := f.put(ctx, last); err != nil {
		return fmt.Errorf("withdraw ask: %w", err)
	}
	return nil
}

func (f *Finder) put(ctx context.Context, e attest.Envelope) (market.Ask, error) {
	a, err := market.OpenAsk(e, f.network, time.Now())
	if err != nil {
		return a, err
	}
	if a.Provider != f.host.Key() {
		return a, fmt.Errorf("ask of %s, this peer is %s", a.Provider.Short(), f.host.Key().Short())
	}
	b, err := attest.MarshalEnvelope(e)
	if err != nil {
		return a, err
	}
	if len(b) > market.MaxAskBytes {
		return a, fmt.Errorf("ask of %d bytes, at most %d", len(b), market.MaxAskBytes)
	}
	f.seed(ctx)
	err = f.dht.PutValue(ctx, askKey(a.Provider), b)
	if errors.Is(err, kbucket.ErrLookupFailure) {
		err = fmt.Errorf("%w: %w", ErrAlone, err)
	}
	return a, err
}

// Get returns the newest ask of a provider that can be found, checked. The error wraps [ErrNotFound] if there is none.
func (f *Finder) Get(ctx context.Context, key attest.Key) (market.Ask, attest.Envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	f.seed(ctx)
	b, err := f.dht.GetValue(ctx, askKey(key), dht.Quorum(quorum))
	if err != nil && len(b) == 0 {
		if errors.Is(err, routing.ErrNotFound) || ctx.Err() == nil {
			err = ErrNotFound
		}
		return market.Ask{}, attest.Envelope{}, fmt.Errorf("get ask of %s: %w", key.Short(), err)
	}
	a, e, err := openRecord(f.network, askKey(key), b, time.Now())
	if err != nil {
		f.metrics.asks.WithLabelValues("invalid").Inc()
		return a, e, fmt.Errorf("get ask of %s: %w: %w", key.Short(), ErrNotFound, err)
	}
	if !f.newest.note(key, a.Seq, a.ExpiresAt, time.Now()) {
		f.metrics.asks.WithLabelValues("older").Inc()
		return market.Ask{}, attest.Envelope{}, fmt.Errorf("get ask of %s: %w: only one that was replaced", key.Short(), ErrNotFound)
	}
	f.metrics.asks.WithLabelValues("found").Inc()
	return a, e, nil
}

// remember keeps the addresses that came with a candidate.
func (f *Finder) remember(info peer.AddrInfo, key attest.Key, a market.Ask) {
	addrs := make([]string, 0, len(info.Addrs)+len(a.Addrs))
	for _, m := range info.Addrs {
		addrs = append(addrs, m.String())
	}
	f.host.Remember(key, append(addrs, a.Addrs...))
}
