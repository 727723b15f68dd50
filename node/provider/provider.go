// Package provider sells: it is the provider's side of a job, from the ask to the outcome.
//
// The files are the story, in this order:
//
//	ask.go      what is for sale, published again well inside its expiry
//	offer.go    a bid is heard: match → plan → price → offer or decline, straight back
//	waiting.go  bids that found all devices busy: when some are free, the oldest that fits is offered to
//	accept.go   an award comes: terms, credit, devices → both signatures, or a signed refusal
//	tenancy.go  one lease in force: its state, its receipts, its log, what the other side has of them
//	execute.go  start: inputs arrive, the process runs, every interval a receipt
//	snapshot.go new checkpoints of a running job; renames_*.go tell which files are whole
//	session.go  the work stream: what is new goes out, vouchers come in
//	finish.go   the end: outputs, final receipt, outcome
//	recover.go  after a restart: leases that were in force are released in writing
//	credit.go   what renters owe, and the gates before each interval
//	metrics.go  the counters
//
// [Provider] is put together by package node, which also runs it. It is safe for concurrent use.
package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/market/plan"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// Devices is what the provider asks of its hardware.
type Devices interface {
	// Devices returns all devices that are for sale, by id.
	Devices() ([]gpu.Device, error)
	// Sample reads one device; what it cannot report is absent.
	Sample(id string, now time.Time) (gpu.Sample, error)
	// LeaseStarted and LeaseEnded tell when a device begins and ends to work for a lease.
	LeaseStarted(id string, now time.Time)
	LeaseEnded(id string)
	// Fault returns what is wrong with the device, a short snake_case word, or false.
	Fault(id string, now time.Time) (string, bool)
}

// Policy is the owner's will.
type Policy struct {
	Price       func(gpu.Device) market.MicroUSD // lowest price per device and hour; 0 = not for sale
	Place       market.Place
	Workloads   []market.Workload // nil = WASM
	Tiers       []market.Tier     // nil = silver and bronze
	Sample      time.Duration     // between readings of a leased device; 0 = 1 s
	MaxDuration time.Duration     // longest job taken in; 0 = no limit
	Notice      time.Duration     // longest grace given; 0 = any
	HostMem     uint64            // main memory for one job in bytes; 0 = no limit
	HostDisk    uint64            // disk for one job in bytes; 0 = what is free
	Limits      ledger.Limits
	Firm        time.Duration // how long an offer binds
	ClaimWindow time.Duration // how long the outcome waits for a renter that is away
}

// Options set up a [Provider]. All fields but Logger and Registerer are required.
type Options struct {
	Signer  attest.Signer
	Network string // name
	Agent   string // software and version, told in the ask
	Policy  Policy
	Devices Devices
	Runner  runner.Runner
	Engine  string // what runs WASM, such as "wazero/1.12"
	Store   *store.Store
	Host    *p2p.Host
	Find    *find.Finder
	Deal    *deal.Service
	Blobs   *blob.Service
	Files   *blob.Store
	JobsDir string

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Provider is the selling side of a peer. Use [New].
type Provider struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	network attest.Digest

	mu        sync.Mutex
	plan      *plan.Plan
	credit    *credit
	offers    map[attest.Digest]*standing // by offer id
	answers   map[attest.Digest]*answered // by bid id
	queue     queue
	tenancies map[attest.Digest]*tenancy // by lease id
	storing   int                        // leases whose blobs are being stored
	dropped   []droppedBlob              // to remove when none are
	faulty    map[string]string          // device id → what is wrong
	draining  bool
	askSeq    uint64
	ask       *market.Ask
	changed   chan struct{} // closed when what is for sale changes

	published *market.Ask // in the network; belongs to publish

	group *errgroup.Group // of Run; tenancies live in it
	ctx   context.Context // of Run
	up    chan struct{}   // closed when Run has started
}

// New returns a provider that does nothing until [Provider.Run].
func New(o Options) (*Provider, error) {
	if o.Devices == nil || o.Runner == nil || o.Store == nil || o.Host == nil || o.Find == nil || o.Deal == nil || o.Blobs == nil || o.Files == nil || o.JobsDir == "" || o.Policy.Price == nil {
		return nil, errors.New("provider: an option is missing")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	devices, err := o.Devices.Devices()
	if err != nil {
		return nil, fmt.Errorf("read devices: %w", err)
	}
	for _, d := range devices {
		if d.Simulated && !market.IsTestNetwork(o.Network) {
			return nil, fmt.Errorf("device %s is simulated; simulated devices are allowed on test networks only, and %q is none (its name does not begin with test)", d.ID, o.Network)
		}
	}
	setDefault(&o.Policy.Firm, time.Minute)
	setDefault(&o.Policy.ClaimWindow, time.Minute)
	setDefault(&o.Policy.Sample, time.Second)
	if len(o.Policy.Workloads) == 0 {
		o.Policy.Workloads = []market.Workload{market.WASM}
	}
	if len(o.Policy.Tiers) == 0 {
		o.Policy.Tiers = []market.Tier{market.Silver, market.Bronze}
	}
	return &Provider{
		o: o, log: o.Logger, metrics: newMetrics(o.Registerer), network: attest.NetworkID(o.Network),
		plan: plan.New(), credit: newCredit(),
		offers: map[attest.Digest]*standing{}, answers: map[attest.Digest]*answered{}, queue: newQueue(), tenancies: map[attest.Digest]*tenancy{},
		faulty: map[string]string{}, changed: make(chan struct{}), up: make(chan struct{}),
	}, nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Run takes up what a restart left behind, publishes the ask, and serves until ctx ends. Then every running lease is
// ended in writing, and nothing is left.
func (p *Provider) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	p.group, p.ctx = group, ctx
	if err := p.recover(ctx); err != nil {
		return fmt.Errorf("take up leases: %w", err)
	}
	close(p.up)
	group.Go(func() error { return p.publish(ctx) })
	group.Go(func() error { return p.watch(ctx) })
	group.Go(func() error { return p.offerWaiting(ctx) })
	err := group.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

// started waits for Run; the handlers of the network are registered before it.
func (p *Provider) started(ctx context.Context) bool {
	select {
	case <-p.up:
		return p.ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// wake tells the ask's loop that something changed. The caller holds p.mu.
func (p *Provider) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// watchEvery is how often devices are asked for faults and old offers are forgotten.
const watchEvery = 200 * time.Millisecond

// watch looks after the devices: a faulty one is not offered, and its lease ends.
func (p *Provider) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			p.checkDevices(now)
			p.forget(now)
		}
	}
}

func (p *Provider) checkDevices(now time.Time) {
	devices, err := p.o.Devices.Devices()
	if err != nil {
		p.log.Warn("devices cannot be read", "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range devices {
		what, bad := p.o.Devices.Fault(d.ID, now)
		if before, was := p.faulty[d.ID]; bad == was && before == what {
			continue
		}
		if !bad {
			delete(p.faulty, d.ID)
			p.log.Info("device is well again", "gpu", d.ID)
			p.wake()
			continue
		}
		p.faulty[d.ID] = what
		p.log.Warn("device is faulty", "gpu", d.ID, "fault", what)
		p.wake()
		for _, t := range p.tenancies {
			if t.uses(d.ID) {
				t.stop(stopCause{code: market.CodeProviderAbort, reason: "device_" + what})
			}
		}
	}
}

// sellable returns what there is to sell at this moment. The caller holds p.mu.
func (p *Provider) sellable(now time.Time) ([]gpu.Device, map[string]bool, error) {
	all, err := p.o.Devices.Devices()
	if err != nil {
		return nil, nil, err
	}
	var devices []gpu.Device
	free := map[string]bool{}
	for _, d := range all {
		if p.o.Policy.Price(d) == 0 {
			continue
		}
		devices = append(devices, d)
		_, bad := p.faulty[d.ID]
		free[d.ID] = !bad && p.plan.Free(d.ID, now)
	}
	return devices, free, nil
}

// DeviceView is one device as its owner sees it.
type DeviceView struct {
	gpu.Device
	Price  market.MicroUSD
	State  string // free, held, leased or fault
	Detail string // what is wrong, in state fault
	Lease  *attest.Digest
	Sample *gpu.Sample // newest reading; nil = none
}

// Devices returns all devices and what they do.
func (p *Provider) Devices() ([]DeviceView, error) {
	devices, err := p.o.Devices.Devices()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	views := make([]DeviceView, 0, len(devices))
	for _, d := range devices {
		v := DeviceView{Device: d, Price: p.o.Policy.Price(d), State: "free"}
		if !p.plan.Free(d.ID, now) {
			v.State = "held"
		}
		for id, t := range p.tenancies {
			if t.uses(d.ID) {
				v.State, v.Lease = "leased", &id
			}
		}
		if what, bad := p.faulty[d.ID]; bad {
			v.State, v.Detail = "fault", what
		}
		if s, err := p.o.Devices.Sample(d.ID, now); err == nil {
			v.Sample = &s
		}
		views = append(views, v)
	}
	return views, nil
}

// Ask returns the ask that stands, or false if there is none.
func (p *Provider) Ask() (market.Ask, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ask == nil {
		return market.Ask{}, false
	}
	return *p.ask, true
}

// End ends a lease in force. The reason is a short snake_case word.
func (p *Provider) End(id attest.Digest, reason string) error {
	p.mu.Lock()
	t := p.tenancies[id]
	p.mu.Unlock()
	if t == nil || !t.stop(stopCause{code: market.CodeProviderAbort, reason: reason}) {
		return fmt.Errorf("lease %s: %w", id.Short(), ErrNotRunning)
	}
	return nil
}

// ErrNotRunning means that a lease is not in force.
var ErrNotRunning = errors.New("is not in force")

// Drain takes in nothing new, withdraws the ask and waits until the last lease ended, or ctx does.
func (p *Provider) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.draining = true
	p.wake()
	p.mu.Unlock()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		p.mu.Lock()
		running := 0
		for _, t := range p.tenancies {
			if t.inForce() {
				running++
			}
		}
		p.mu.Unlock()
		if running == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drain: %d leases in force: %w", running, ctx.Err())
		case <-tick.C:
		}
	}
}

// Running returns how many leases are in force.
func (p *Provider) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, t := range p.tenancies {
		if t.inForce() {
			n++
		}
	}
	return n
}
