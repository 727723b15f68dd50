// Package peers keeps this peer connected: whom it knows, whom it dials, and when.
//
// A [Keeper] holds a few connections open, some of them to peers that can be dialled straight, since those lead to all
// others. It knows peers from the config, from the last run, and from what connected peers tell. Who cannot be reached
// is tried again for ever, at growing intervals of its own (book.go). When the computer has slept or its network has
// changed (change.go; nobody else looks for that), it proves what connections are left, forgets all intervals, and dials at once.
//
// It dials; it does not decide what is said on a connection. It is used by node; a Keeper is safe for concurrent use.
package peers

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

// What a peer wants to be connected to.
const (
	WantPeers    = 4 // connections; with fewer, known peers are dialled
	wantStraight = 2 // of them to peers that this one has dialled straight: hubs, and what could be one

	dialsAtOnce   = 8                // of one round
	dialsPerMin   = 60               // all peers together; a list of 200 dead ones must not become a scan
	dialsInARow   = 2 * dialsAtOnce  // that a quiet minute allows
	dialWithin    = 12 * time.Second // for one peer, all its addresses; a little more than p2p takes, which then says why it failed
	roundGap      = 2 * time.Second  // between two rounds, so that a peer which refuses at once is not hammered
	look          = 5 * time.Second  // between two looks at the connections, the clocks and the interfaces
	proveWithin   = 3 * time.Second  // for a connected peer to answer after a change
	provedAtOnce  = 16
	saveSoon      = 30 * time.Second // after something worth keeping was learned
	saveOtherwise = 10 * time.Minute
)

// Options set up a [Keeper]. Host is required.
type Options struct {
	Host      *p2p.Host
	Bootstrap []p2p.InvitePeer                  // named by the owner: never forgotten
	Load      func() ([]home.KnownPeer, error)  // known from the last run; nil = none
	Save      func([]home.KnownPeer) error      // best first; nil = nothing is kept
	Learned   func() []p2p.InvitePeer           // what connected peers tell of others; nil = nothing
	Reached   func(ctx context.Context)         // after a round of dialling that reached somebody; nil = nothing
	Changed   func(ctx context.Context)         // after the network has changed or the computer has slept; nil = nothing
	Addrs     func() ([]string, error)          // of this computer's interfaces; nil = those of the system
	Jitter    func(time.Duration) time.Duration // nil = the duration, give or take 20 %
	Logger    *slog.Logger                      // nil discards
}

// Keeper keeps one peer connected. Use [New].
type Keeper struct {
	o       Options
	log     *slog.Logger
	limit   *p2p.Limiter
	joined  chan struct{} // closed after the first round
	changed chan struct{} // holds one signal that the network is another

	mu   sync.Mutex
	book *book
	need int // connections wanted at the last look
	last Failure
}

// Failure is a dial that reached nobody. The zero value is none.
type Failure struct {
	Peer   attest.Key
	At     time.Time
	Reason string // as [p2p.DialReason] says it
}

// New returns a keeper that does nothing before Run.
func New(o Options) (*Keeper, error) {
	if o.Host == nil {
		return nil, errors.New("new keeper of peers: no host")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Addrs == nil {
		o.Addrs = p2p.ComputerAddrs
	}
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }
	}
	k := &Keeper{o: o, log: o.Logger, limit: p2p.NewLimiter(dialsPerMin, dialsInARow), joined: make(chan struct{}), changed: make(chan struct{}, 1)}
	k.book = newBook(o.Host.Key())
	for _, p := range o.Bootstrap {
		k.book.add(p, true)
	}
	return k, nil
}

// Joined is closed when the known peers have been dialled for the first time, whether one was reached or not.
func (k *Keeper) Joined() <-chan struct{} { return k.joined }

// LastFailure returns the newest dial without success, the zero value if there was none since the last success.
func (k *Keeper) LastFailure() Failure {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Add makes peers known, as after a join.
func (k *Keeper) Add(list []p2p.InvitePeer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range list {
		k.book.add(p, false)
	}
}

// networkChanged says that connections may be dead without a word, and that peers which could not be reached perhaps
// can be now. It returns at once.
func (k *Keeper) networkChanged() {
	select {
	case k.changed <- struct{}{}:
	default: // somebody said so already
	}
}

// Run keeps the peer connected until ctx ends, and keeps the known peers on disk.
func (k *Keeper) Run(ctx context.Context) error {
	if k.o.Load != nil {
		known, err := k.o.Load()
		if err != nil {
			k.log.Warn("known peers cannot be read", "err", err)
		}
		k.mu.Lock()
		k.book.load(known)
		k.mu.Unlock()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { k.watch(ctx); return nil })
	group.Go(func() error { k.keep(ctx); return nil })
	return group.Wait()
}

// watch tells of changes of the network and of sleep.
func (k *Keeper) watch(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	w := watcher{clock: time.Now(), addrs: k.o.Addrs}
	w.first(k.log)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if why := w.look(time.Now()); why != "" {
			k.log.Info("the network is looked at again", "reason", why)
			k.networkChanged()
		}
	}
}

// keep dials in rounds, each as soon as somebody is wanted and may be tried.
func (k *Keeper) keep(ctx context.Context) {
	defer k.save()
	first := sync.OnceFunc(func() { close(k.joined) })
	saved := time.Now()
	for {
		fresh := k.round(ctx)
		first()
		if since := time.Since(saved); since >= saveOtherwise || fresh && since >= saveSoon {
			k.save()
			saved = time.Now()
		}
		timer := time.NewTimer(k.pause(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-k.changed:
			timer.Stop()
			k.again(ctx)
		}
	}
}

// round dials the best of those that are wanted and may be tried now. It reports whether the book holds something new.
func (k *Keeper) round(ctx context.Context) (fresh bool) {
	targets, fresh := k.choose(time.Now())
	if len(targets) == 0 {
		return fresh
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan bool, len(targets))
	for _, t := range targets {
		go func() { results <- k.dial(ctx, t) }() // ends within dialWithin; all are waited for below
	}
	reached := false
	changed := k.changed
	for n := 0; n < len(targets); {
		select {
		case ok := <-results:
			reached = reached || ok
			n++
		case <-changed: // what is being dialled leads through a network that is gone
			cancel()
			k.networkChanged()
			changed = nil
		}
	}
	if reached && k.o.Reached != nil && ctx.Err() == nil {
		k.o.Reached(ctx)
	}
	return fresh || reached
}

// choose looks at the connections and returns whom to dial.
func (k *Keeper) choose(now time.Time) (targets []p2p.InvitePeer, fresh bool) {
	need, fresh := k.look(now)
	if need <= 0 {
		return nil, fresh
	}
	if k.o.Learned != nil {
		k.Add(k.o.Learned())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.book.due(now, min(2*need, dialsAtOnce)) {
		if !k.limit.Allow(attest.Key{}, now) {
			break
		}
		targets = append(targets, t)
	}
	return targets, fresh
}

// look notes who is connected and returns how many more are wanted. A relay that carries signalling only is a way to a
// peer, but none on which bids spread, so it does not count.
func (k *Keeper) look(now time.Time) (need int, fresh bool) {
	connected := k.o.Host.Peers()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.book.look()
	straight, all := 0, 0
	for _, p := range connected {
		dialed := !p.Inbound && p.Path == p2p.PathDirect
		fresh = k.book.met(p, dialed, now) || fresh
		if p.Path != p2p.PathLimited {
			all++
		}
		if dialed {
			straight++
		}
	}
	k.need = max(WantPeers-all, wantStraight-straight)
	return k.need, fresh
}

// pause is how long nothing needs to be done.
func (k *Keeper) pause(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, some := k.book.next()
	if k.need <= 0 || !some {
		return look
	}
	return min(look, max(next.Sub(now), k.o.Jitter(roundGap)))
}

func (k *Keeper) dial(ctx context.Context, t p2p.InvitePeer) bool {
	within, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	connect := k.o.Host.Connect
	if slices.ContainsFunc(k.o.Bootstrap, func(p p2p.InvitePeer) bool { return p.Key == t.Key }) {
		connect = k.o.Host.Dial
	}
	err := connect(within, t.Key, t.Addrs)
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.book.reached(t.Key)
		k.last = Failure{}
	case ctx.Err() == nil: // a round that was broken off says nothing about the peer
		wait := k.book.failed(t.Key, now, k.o.Jitter)
		k.last = Failure{Peer: t.Key, At: now, Reason: p2p.DialReason(err, t.Addrs)}
		k.log.Debug("known peer is not reached", "peer", t.Key, "again_in", wait, "err", err)
	}
	return err == nil
}

// again starts over after a change: the connections that do not answer are closed, and everybody may be dialled.
func (k *Keeper) again(ctx context.Context) {
	k.o.Host.Recheck()
	k.prove(ctx)
	k.mu.Lock()
	k.book.forgive()
	k.mu.Unlock()
	if k.o.Changed != nil {
		k.o.Changed(ctx)
	}
}

// prove closes the connections to peers that do not answer: after a change of networks they look open for minutes, and
// as long as they do nobody else is dialled.
func (k *Keeper) prove(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(provedAtOnce)
	for _, p := range k.o.Host.Peers() {
		group.Go(func() error {
			within, cancel := context.WithTimeout(ctx, proveWithin)
			defer cancel()
			if _, err := k.o.Host.MeasureRTT(within, p.Key); err != nil && ctx.Err() == nil {
				k.log.Debug("connection is dead", "peer", p.Key, "err", err)
				k.o.Host.Disconnect(p.Key)
			}
			return nil
		})
	}
	_ = group.Wait() // none of them fails
}

func (k *Keeper) save() {
	if k.o.Save == nil {
		return
	}
	k.look(time.Now())
	k.mu.Lock()
	list := k.book.list()
	k.mu.Unlock()
	if len(list) == 0 {
		return
	}
	if err := k.o.Save(list); err != nil {
		k.log.Warn("known peers are not kept", "err", err)
	}
}

// sameAddrs reports whether two lists hold the same addresses, in any order.
func sameAddrs(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
