// Package renter buys: it is the renter's side of a job, from the bid to the fetched outputs.
//
// The files are the story, in this order:
//
//	job.go      what the renter keeps of a job, and the events it tells
//	task.go     a job in the hands of this process
//	rent.go     one function, the steps in order: prepare → hire → attend → settle, and again when a provider is lost
//	prepare.go  module and inputs become content-addressed blobs, the spec becomes terms
//	auction.go  bid out, the window; direct.go sends copies of it, class.go names its topics
//	vigil.go    offers and declines come in, also after the window, while the job waits
//	ways.go     how far providers are, and whether a job's data can flow to them
//	award.go    the choice: the winner's signature, or the next one's
//	attend.go   a lease is followed until it ends: log, breaks, the end
//	stream.go   one work stream of it: frames, checkpoints, heartbeat
//	pay.go      a receipt comes: chain, own clock, budget → cumulative voucher back
//	outputs.go  results are fetched, checked, and put where they belong
//	blobs.go    the blobs that nobody needs any more go
//	settle.go   the outcome, and what it says of the provider
//	recover.go  after a restart: running jobs are attended again
//	score.go    one's own experience of providers
//	metrics.go  counters
//
// [Renter] is put together by package node, which also runs it. It is safe for concurrent use.
package renter

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/reputation"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// Errors that a caller can tell apart.
var (
	ErrNoJob     = errors.New("no such job")
	ErrAmbiguous = errors.New("more than one job fits")
	ErrSpec      = errors.New("job is not valid")
	ErrRunning   = errors.New("job is still running")
	ErrNoOutputs = errors.New("job has no outputs")
	ErrNameTaken = errors.New("a job of that name is under way")
)

// Options set up a [Renter]. All fields but Exclude, Keep, PlaceFault, Patience, Logger and Registerer are required.
type Options struct {
	Signer  attest.Signer
	Network string // name
	Engine  string // what runs WASM, such as "wazero/1.12"
	Params  reputation.Params
	Store   *store.Store
	Host    *p2p.Host
	Find    *find.Finder
	Bids    *bids.Gossip
	Deal    *deal.Service
	Blobs   *blob.Service
	Files   *blob.Store
	JobsDir string
	Exclude []attest.Key // never hired
	// Keep reports whether another part of the peer needs a blob of Files; nil = none does.
	Keep func(d attest.Digest) bool
	// PlaceFault reports whether a peer cannot be where it says it is, by the round trips that were measured to it; nil =
	// never. It is called for each offer and must not wait.
	PlaceFault func(peer attest.Key, claimed market.Place) bool
	// Patience is how long a provider that is there may owe a receipt, or the end of a lease; 0 = 30 s.
	Patience time.Duration

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported
}

// defaultPatience lets a provider's busy machine recover, and is longer than its own wait for a last voucher.
const defaultPatience = 30 * time.Second

// Renter is the buying side of a peer. Use [New].
type Renter struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	network attest.Digest
	net     network

	mu       sync.Mutex
	tasks    map[string]*task
	auctions map[attest.Digest]*openAuction // by bid id
	crowds   map[string]uint64              // class → peers that hear its bids, see crowdOf
	serving  map[*serving]bool

	late sync.Mutex // one late ending at a time, see Outcome
	left leftovers

	group *errgroup.Group
	ctx   context.Context
	up    chan struct{}
}

// New returns a renter that does nothing until [Renter.Run].
func New(o Options) (*Renter, error) {
	if o.Store == nil || o.Host == nil || o.Find == nil || o.Bids == nil || o.Deal == nil || o.Blobs == nil || o.Files == nil || o.JobsDir == "" {
		return nil, errors.New("renter: an option is missing")
	}
	if err := o.Params.Validate(); err != nil {
		return nil, fmt.Errorf("renter: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	return &Renter{o: o, log: o.Logger, metrics: newMetrics(o.Registerer), network: attest.NetworkID(o.Network), net: o.Host, crowds: map[string]uint64{}, tasks: map[string]*task{},
		auctions: map[attest.Digest]*openAuction{}, serving: map[*serving]bool{}, left: leftovers{blobs: map[attest.Digest]bool{}}, up: make(chan struct{})}, nil
}

// Run takes up the jobs that a restart left running and serves until ctx ends. Jobs that run then go on at their
// providers, and are attended again by the next Run.
func (r *Renter) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	r.group, r.ctx = group, ctx
	if err := r.recover(); err != nil {
		return fmt.Errorf("take up jobs: %w", err)
	}
	close(r.up)
	group.Go(func() error { <-ctx.Done(); return nil })
	return group.Wait()
}

// Up is closed when the jobs of the process before are taken up. Before, they cannot be found.
func (r *Renter) Up() <-chan struct{} { return r.up }

// Submit takes a job in and returns at once; the job goes on by itself. A spec that is not valid is an error that wraps
// [ErrSpec]. With dryRun the auction is held, but nobody wins it.
func (r *Renter) Submit(ctx context.Context, spec market.Spec, dryRun bool) (Job, error) {
	select {
	case <-r.up:
	case <-ctx.Done():
		return Job{}, ctx.Err()
	}
	spec = spec.WithDefaults()
	spec.Exclude = slices.Clone(spec.Exclude)
	for _, k := range r.o.Exclude {
		if !slices.Contains(spec.Exclude, k) {
			spec.Exclude = append(spec.Exclude, k)
		}
	}
	if err := errors.Join(spec.Validate(), checkModule(spec.Module)); err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	var raw [6]byte
	_, _ = rand.Read(raw[:]) // never fails, see crypto/rand
	id := hex.EncodeToString(raw[:])
	if spec.Name == "" {
		spec.Name = strings.TrimSuffix(filepath.Base(spec.Module), ".wasm") + "-" + id[:4]
	}
	if j, err := r.Job(spec.Name); err == nil && !j.State.Final() && j.Name == spec.Name {
		return Job{}, fmt.Errorf("job %s: %w; it is job %s", spec.Name, ErrNameTaken, j.ID)
	}
	t, err := r.newTask(Job{ID: id, Name: spec.Name, Spec: spec, State: JobBidding, CreatedAt: time.Now().UTC(), DryRun: dryRun})
	if err != nil {
		return Job{}, err
	}
	if err := t.update(func(*Job) {}); err != nil {
		return Job{}, err
	}
	first := t.snapshot()
	t.emit(Event{Kind: EvState, Job: &first})
	r.start(t, func(ctx context.Context) { r.rent(ctx, t, nil) })
	return first, nil
}

func (r *Renter) newTask(j Job) (*task, error) {
	t := &task{r: r, dir: filepath.Join(r.o.JobsDir, j.ID), changed: make(chan struct{}), job: j, coming: map[attest.Digest]int{}}
	if err := makeDir(t.dir); err != nil {
		return nil, err
	}
	switch {
	case j.OutputsList != nil:
		var err error
		if t.job.Outputs, err = r.outputsIn(*j.OutputsList); err != nil {
			r.log.Warn("list of outputs cannot be read", "job", j.ID, "err", err)
		}
	case j.OutputsDigest != nil:
		t.job.Outputs = []market.File{}
	}
	log, err := joblog.Open(filepath.Join(t.dir, "log"))
	if err != nil {
		return nil, err
	}
	t.log = log
	r.mu.Lock()
	r.tasks[j.ID] = t
	r.mu.Unlock()
	return t, nil
}

// start runs a job's story in the group of Run.
func (r *Renter) start(t *task, f func(context.Context)) {
	ctx, cancel := context.WithCancel(r.ctx)
	t.cancel = cancel
	r.group.Go(func() error {
		defer cancel()
		f(ctx)
		t.finish()
		if t.snapshot().State.Final() {
			r.discard(t.needs())
		}
		return nil
	})
}

// find returns the task that ref names: an id, the beginning of one, or a name. Of several jobs with one name the
// newest counts.
func (r *Renter) find(ref string) (*task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[ref]; t != nil {
		return t, nil
	}
	var named *task
	var prefixed []*task
	for id, t := range r.tasks {
		j := t.snapshot()
		if j.Name == ref && (named == nil || j.CreatedAt.After(named.snapshot().CreatedAt)) {
			named = t
		}
		if ref != "" && strings.HasPrefix(id, ref) {
			prefixed = append(prefixed, t)
		}
	}
	switch {
	case named != nil:
		return named, nil
	case len(prefixed) == 1:
		return prefixed[0], nil
	case len(prefixed) > 1:
		return nil, fmt.Errorf("job %q: %w", ref, ErrAmbiguous)
	}
	return nil, fmt.Errorf("job %q: %w", ref, ErrNoJob)
}

// Jobs returns all jobs, newest first.
func (r *Renter) Jobs() []Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := make([]Job, 0, len(r.tasks))
	for _, t := range r.tasks {
		jobs = append(jobs, t.snapshot())
	}
	slices.SortFunc(jobs, func(a, b Job) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return jobs
}

// Job returns the job that ref names. Errors wrap [ErrNoJob] or [ErrAmbiguous].
func (r *Renter) Job(ref string) (Job, error) {
	t, err := r.find(ref)
	if err != nil {
		return Job{}, err
	}
	return t.snapshot(), nil
}

// Stop asks a job to end. It returns at once; the job's state tells when it did.
func (r *Renter) Stop(ctx context.Context, ref string) error {
	t, err := r.find(ref)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// Wait returns the job when it is over.
func (r *Renter) Wait(ctx context.Context, ref string) (Job, error) {
	t, err := r.find(ref)
	if err != nil {
		return Job{}, err
	}
	for {
		t.mu.Lock()
		job, changed, ended := t.job, t.changed, t.ended
		t.mu.Unlock()
		if ended {
			return job, nil
		}
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-changed:
		}
	}
}

// Events calls f for each event of a job after number from, in order. With follow it goes on until the job is over.
func (r *Renter) Events(ctx context.Context, ref string, from uint64, follow bool, f func(Event) error) error {
	t, err := r.find(ref)
	if err != nil {
		return err
	}
	for {
		t.mu.Lock()
		start, _ := slices.BinarySearchFunc(t.events, from+1, func(e Event, seq uint64) int { return cmp.Compare(e.Seq, seq) })
		fresh := slices.Clone(t.events[start:])
		changed, ended := t.changed, t.ended
		t.mu.Unlock()
		for _, e := range fresh {
			if err := f(e); err != nil {
				return err
			}
			from = e.Seq
		}
		if len(fresh) > 0 {
			continue
		}
		if ended || !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// LogChunk is a piece of a job's output.
type LogChunk = joblog.Chunk

// Log calls f for each piece of a job's output from offset on. With follow it goes on until the job is over.
func (r *Renter) Log(ctx context.Context, ref string, offset uint64, follow bool, f func(LogChunk) error) error {
	t, err := r.find(ref)
	if err != nil {
		return err
	}
	for {
		c, changed, finished, err := t.log.ReadFrom(offset)
		if err != nil {
			return err
		}
		if len(c.Data) > 0 {
			if err := f(c); err != nil {
				return err
			}
			offset += uint64(len(c.Data))
			continue
		}
		if finished || !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Auctions returns the auctions held for a job, in order.
func (r *Renter) Auctions(ref string) ([]auction.Record, error) {
	t, err := r.find(ref)
	if err != nil {
		return nil, err
	}
	var out []auction.Record
	err = r.o.Store.Auctions(t.snapshot().ID, func(_ uint64, value []byte) error {
		var rec auction.Record
		if err := attest.Unmarshal(value, &rec); err != nil {
			return err
		}
		out = append(out, rec)
		return rec.Decode()
	})
	return out, err
}
