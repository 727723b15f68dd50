// Package node puts a peer together, runs it, and takes it down.
//
// [New] opens what a peer owns (lock, identity, store, libp2p host) and wires the parts: this file is the one place
// where all meet. Nothing of ours runs before [Node.Run], and nothing is left after it returns. abandon.go gives up leases
// that this peer may no longer sign on, network.go opens the host, join.go connects it, hub.go acts on what others find of
// it, place.go doubts where others say they are, devices.go says what it has to sell, backend.go and status.go answer the
// local API.
//
// A Node is used by cmd; its methods are safe for concurrent use.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/reputation"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/peers"
	"github.com/lacuna-network/lacuna/node/provider"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/find"
	"github.com/lacuna-network/lacuna/p2p/hello"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// Engine is what runs WASM modules here. Renter and provider must name the same one: it determines a job's output.
const Engine = "wazero/1.12.0"

// Options set up a [Node]. Home and Config are required.
type Options struct {
	Home    home.Home
	Config  config.Config
	Version string       // of the software; empty = "dev"
	Logger  *slog.Logger // nil discards

	memory func(p2p.Options) p2p.Options // for tests: puts the host on a network in memory; there is no local API then
	runner runner.Runner                 // for tests; nil = WASM in a sandbox
}

// Node is one peer. Use [New].
type Node struct {
	o        Options
	log      *slog.Logger
	signer   attest.Signer
	registry *prometheus.Registry
	started  time.Time
	ready    chan struct{}

	lock     *home.Lock
	store    *store.Store
	host     *p2p.Host
	find     *find.Finder
	bids     *bids.Gossip
	deal     *deal.Service
	hello    *hello.Service
	peers    *peers.Keeper
	blobs    *blob.Service
	files    *blob.Store
	renter   *renter.Renter
	provider *provider.Provider // nil if this peer sells nothing
	devices  *devices           // nil if this peer sells nothing
	api      *api.Server

	drain    func()        // closes draining; a second call does nothing
	draining chan struct{} // closed when the peer is to go down after its leases

	wired chan struct{} // closed when all of the above is set; handlers of the network wait for it

	opinion atomic.Pointer[opinion] // of other peers

	mu       sync.Mutex
	stop     context.CancelFunc // of Run
	heardAt  time.Time          // last bid
	heard    uint64
	closers  []closer // in the order of opening
	released bool
}

type closer struct {
	name  string
	close func() error
}

// New opens a peer. If it fails, everything it opened is closed again and the home is as it was. An error wraps
// [*home.InUseError] when another daemon runs in the home.
func New(o Options) (*Node, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	n := &Node{o: o, log: o.Logger, registry: prometheus.NewRegistry(), ready: make(chan struct{}), wired: make(chan struct{})}
	n.opinion.Store(&opinion{})
	n.draining = make(chan struct{})
	n.drain = sync.OnceFunc(func() { close(n.draining) })
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, open := range []func() error{n.openHome, n.openDevices, n.openNetwork, n.openPeers, n.openTrade, n.openAPI} {
		if err := open(); err != nil {
			return nil, errors.Join(err, n.release())
		}
	}
	close(n.wired)
	return n, nil
}

// onRelease registers what is to be closed, last opened first.
func (n *Node) onRelease(name string, f func() error) {
	n.closers = append(n.closers, closer{name, f})
}

func (n *Node) release() error {
	n.mu.Lock()
	if n.released {
		n.mu.Unlock()
		return nil
	}
	n.released = true
	n.mu.Unlock()
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		if err := n.closers[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", n.closers[i].name, err))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) openHome() error {
	h := n.o.Home
	if err := h.Create(); err != nil {
		return err
	}
	lock, err := h.Lock()
	if err != nil {
		return err
	}
	n.lock = lock
	n.onRelease("lock", lock.Close)
	key, created, err := h.EnsureIdentity(n.o.Config.Identity.File)
	if err != nil {
		return err
	}
	n.signer = attest.NewSigner(key, attest.NetworkID(n.o.Config.Network.Name))
	if created {
		n.log.Info("identity made", "peer", n.signer.Key())
	}
	if _, err := os.Stat(h.ConfigFile()); errors.Is(err, os.ErrNotExist) {
		if err := config.WriteDefault(h.ConfigFile()); err != nil {
			return err
		}
	}
	if n.store, err = store.Open(store.Options{Dir: h.StoreDir(), MinFreeBytes: n.o.Config.Store.MinFreeBytes, Logger: n.log}); err != nil {
		return err
	}
	n.onRelease("store", n.store.Close)
	if err := n.abandonLeases(); err != nil {
		return err
	}
	if n.files, err = blob.OpenStore(h.BlobsDir()); err != nil {
		return err
	}
	return n.openHost(key)
}

// profile is what libp2p is set up for. A peer that stays and sells nothing may become a hub like any other: on a network
// where nobody sells yet, somebody has to hold the table and carry bids. A test network has no need of that.
func (n *Node) profile() p2p.Profile {
	switch {
	case n.o.Config.Network.Profile != "":
		return p2p.Profile(n.o.Config.Network.Profile)
	case !n.o.Config.Provide.Enabled && market.IsTestNetwork(n.o.Config.Network.Name):
		return p2p.Light
	}
	return "" // by the network
}

// role is what this peer does now, for its owner.
func (n *Node) role() string {
	switch profile := n.host.Profile(); {
	case n.host.Testnet():
		return string(profile)
	case n.host.Hub():
		return string(p2p.Hub)
	case n.provider != nil:
		return string(p2p.Provider)
	}
	return string(p2p.Light)
}

func (n *Node) openNetwork() (err error) {
	if n.find, err = find.New(find.Options{Host: n.host, Logger: n.log, Registerer: n.registry}); err != nil {
		return err
	}
	n.onRelease("finder", n.find.Close)
	agent := "lacuna/" + n.o.Version
	if n.hello, err = hello.New(hello.Options{Host: n.host, Signer: n.signer, Agent: agent[:min(len(agent), 64)], Place: n.place, Logger: n.log, Registerer: n.registry}); err != nil {
		return err
	}
	n.onRelease("hello", func() error { n.hello.Close(); return nil })
	if n.bids, err = bids.New(bids.Options{Host: n.host, PerMinute: bidsPerMinute(n.host.Testnet()), Score: n.neighbourScore, Logger: n.log, Registerer: n.registry}); err != nil {
		return err
	}
	n.onRelease("gossip", n.bids.Close)
	if n.blobs, err = blob.New(blob.Options{Host: n.host, Store: n.files, Logger: n.log, Registerer: n.registry,
		Allow: n.allowBlob, Sent: func(peer attest.Key, d attest.Digest, bytes uint64) { <-n.wired; n.renter.BlobSent(peer, d, bytes) }}); err != nil {
		return err
	}
	n.onRelease("blobs", func() error { n.blobs.Close(); return nil })
	o := deal.Options{Host: n.host, Logger: n.log, Registerer: n.registry,
		Answer: func(ctx context.Context, from attest.Key, e attest.Envelope) deal.Code {
			<-n.wired
			return n.renter.Answer(ctx, from, e)
		},
		Outcome: n.outcome}
	if n.o.Config.Provide.Enabled {
		o.Bid = func(ctx context.Context, from attest.Key, e attest.Envelope) (attest.Envelope, bool) {
			<-n.wired
			return n.provider.DirectBid(ctx, from, e)
		}
		o.Award = func(ctx context.Context, from attest.Key, award attest.Envelope, terms []byte) (attest.Envelope, error) {
			<-n.wired
			return n.provider.Award(ctx, from, award, terms)
		}
		work.Serve(n.host, func(ctx context.Context, s *work.Session) { <-n.wired; n.provider.Work(ctx, s) })
	}
	if n.deal, err = deal.New(o); err != nil {
		return err
	}
	n.onRelease("deals", func() error { n.deal.Close(); return nil })
	return nil
}

// bidsPerMinute is how many bids one renter may announce; a test network is there to be filled with jobs.
func bidsPerMinute(testnet bool) int {
	if testnet {
		return 6000
	}
	return 0
}

func (n *Node) allowBlob(peer attest.Key, d attest.Digest) bool {
	<-n.wired
	return n.renter.AllowBlob(peer, d) || (n.provider != nil && n.provider.AllowBlob(peer, d))
}

// outcome hands an ending to the side of the lease that it is for.
func (n *Node) outcome(ctx context.Context, from attest.Key, e deal.Ending) deal.Settlement {
	<-n.wired
	if e.Outcome.Domain == market.OutcomeProviderDomain {
		return n.renter.Outcome(ctx, from, e)
	}
	if n.provider == nil {
		return deal.Settlement{Code: deal.Unknown}
	}
	return n.provider.Outcome(ctx, from, e)
}

// params are the evidence parameters of a network.
func params(network string) reputation.Params {
	if market.IsTestNetwork(network) {
		return reputation.TestParams()
	}
	return reputation.DefaultParams()
}

// openDevices comes before the network, which is told where the devices stand.
func (n *Node) openDevices() (err error) {
	if n.o.Config.Provide.Enabled {
		n.devices, err = openDevices(n.o.Config.Provide)
	}
	return err
}

func (n *Node) openTrade() (err error) {
	c, name := n.o.Config, n.o.Config.Network.Name
	n.renter, err = renter.New(renter.Options{Signer: n.signer, Network: name, Engine: Engine, Params: params(name), Store: n.store, Host: n.host,
		Find: n.find, Bids: n.bids, Deal: n.deal, Blobs: n.blobs, Files: n.files, JobsDir: filepath.Join(n.o.Home.JobsDir(), "rented"),
		Exclude: c.Rent.Exclude, Keep: func(d attest.Digest) bool { return n.provider != nil && n.provider.Wants(d) },
		PlaceFault: func(peer attest.Key, claimed market.Place) bool { return n.judgePlace(peer, claimed).Impossible }, Logger: n.log, Registerer: n.registry})
	if err != nil || !c.Provide.Enabled {
		return err
	}
	run := n.o.runner
	if run == nil {
		if run, err = wasm.New(wasm.Options{CacheDir: filepath.Join(n.o.Home.CacheDir(), "wasm"), Logger: n.log}); err != nil {
			return err
		}
	}
	n.provider, err = provider.New(provider.Options{Signer: n.signer, Network: name, Agent: "lacuna/" + n.o.Version, Policy: provider.Policy{
		Price: n.devices.price, Place: n.devices.place, Workloads: c.Provide.Workloads, Tiers: c.Provide.Tiers, Sample: c.Telemetry.Sample, MaxDuration: c.Provide.MaxDuration, Notice: c.Provide.Notice,
		HostMem: c.Provide.MaxMemBytes, HostDisk: c.Provide.MaxDiskBytes, Limits: ledger.Limits{TrialPerDay: c.Provide.TrialPerDay, TrialDevices: c.Provide.TrialDevices}},
		Devices: n.devices, Runner: run, Engine: Engine, Store: n.store, Host: n.host, Find: n.find, Deal: n.deal, Blobs: n.blobs, Files: n.files,
		JobsDir: filepath.Join(n.o.Home.JobsDir(), "leased"), Logger: n.log, Registerer: n.registry})
	return err
}

func (n *Node) openAPI() (err error) {
	n.api, err = api.New(api.Options{Backend: n.backend(), Gatherer: n.registry, Codes: errorCodes(), Logger: n.log})
	return err
}

// Ready is closed when the peer serves.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Key returns the peer's key.
func (n *Node) Key() attest.Key { return n.signer.Key() }

// Addrs returns the peer's own addresses.
func (n *Node) Addrs() []string { return n.host.Addrs() }

// Socket returns the path of the local API.
func (n *Node) Socket() string {
	if s := n.o.Config.API.Socket; s != "" {
		return s
	}
	return n.o.Home.Socket()
}

// Close gives back what [New] opened, for a node that is not run.
func (n *Node) Close() error { return n.release() }

// Run serves until ctx ends or somebody asks the peer to stop, and leaves nothing behind: it returns when every
// goroutine has ended and everything is closed.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.mu.Lock()
	n.stop, n.started = cancel, time.Now()
	n.mu.Unlock()
	err := n.serve(ctx)
	return errors.Join(err, n.release())
}

func (n *Node) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if err := n.serveAPI(ctx, group); err != nil {
		return err
	}
	group.Go(func() error { return n.store.Run(ctx) })
	group.Go(func() error { return n.renter.Run(ctx) })
	group.Go(func() error { return n.hello.Run(ctx) })
	group.Go(func() error { return n.bids.Run(ctx) })
	group.Go(func() error { return n.peers.Run(ctx) })
	group.Go(func() error { return n.followReach(ctx) })
	group.Go(func() error { return n.formOpinions(ctx) })
	if n.provider != nil {
		group.Go(func() error { return n.provider.Run(ctx) })
		group.Go(func() error { return n.hearBids(ctx) })
		group.Go(func() error { return n.drainOnAsk(ctx) })
	}
	select { // nobody is to see a peer that seems to have no jobs
	case <-n.renter.Up():
	case <-ctx.Done():
	}
	select { // a peer that has neighbours can be used at once; one that finds none can be used too
	case <-n.peers.Joined():
	case <-time.After(joinPatience):
	case <-ctx.Done():
	}
	close(n.ready)
	n.log.Info("peer runs", "peer", n.Key(), "network", n.o.Config.Network.Name, "provides", n.provider != nil)
	return group.Wait()
}

// serveAPI answers the programs on this machine.
func (n *Node) serveAPI(ctx context.Context, group *errgroup.Group) error {
	if n.o.memory != nil { // virtual time stands still while somebody waits at a socket of the system
		return nil
	}
	if n.o.Config.API.Socket == "" {
		if err := n.o.Home.PrepareSocket(); err != nil {
			return err
		}
	}
	listener, err := api.Listen(n.Socket())
	if err != nil {
		return err
	}
	n.onRelease("socket", func() error { n.o.Home.RemoveSocket(); return nil })
	group.Go(func() error { return n.api.Serve(ctx, listener) })
	return nil
}

// hearBids answers the bids on the topics that this provider can serve.
func (n *Node) hearBids(ctx context.Context) error {
	topics := n.devices.topics()
	if len(topics) == 0 {
		n.log.Warn("there is nothing to sell; see provide.cpu_slots in the config")
		return nil
	}
	heard, err := n.bids.Subscribe(ctx, topics...)
	if err != nil {
		return err
	}
	n.provider.Hear(ctx, heard, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.heard, n.heardAt = n.heard+1, time.Now()
	})
	return nil
}
