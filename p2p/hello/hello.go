// Package hello is what peers tell each other on meeting and about every minute from then on: what their clocks show,
// how they can be reached, whom else they know, and whether another process uses the asker's key.
//
// [New] serves the protocol, [Service.Run] greets. The rest are questions to what was heard: [Service.Skew] (this
// peer's clock against the median of others), [Service.Twin], [Service.Known] (peers to join through),
// [Service.Sightings] (round trips that others have measured, of the keys given to [Service.Watch]) and [Service.Met].
// All of it is hearsay but for Twin, which rests on signatures of this peer's own key.
//
// The protocol is one stream with one frame each way, at most 2 KiB and 4 KiB, within 5 s. It fits on limited relays:
//
//	request  {1: envelope over a statement, 2: wants peers, 3: [keys whose round trips it wants] ≤ 8}
//	answer   {1: clock ms, 2: reach, 3: place, 4: agent, 5: light, 6: [{1: key, 2: [multiaddr] ≤ 4}] ≤ 8,
//	          7: [{1: key, 2: round trip ms}] ≤ 8, 8: {1: envelope, 2: multiaddr}}
//	statement {1: boot id of 16 bytes, 2: sequence, 3: clock ms, 4: reach, 5: place, 6: agent, 7: light, 8: [boot id] ≤ 2}
//
// A statement is signed in the domain "lacuna/hello/peer/1" by the peer that sends it. Field 8 of the answer shows the
// asker the newest statement of its own key by another process.
//
// It decides nothing: nobody is dialled, dropped or scored here. It is used by node. All of it is safe for concurrent
// use.
//
// History: 2026-11-30 version 1.
package hello

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// Protocol is the name and the limits. A peer greets another once a minute at most, and some times more while it looks
// for a twin or for round trips; two processes under one key share the rate.
var Protocol = p2p.Protocol{Name: "hello", Major: 1, Timeout: 5 * time.Second, MaxIn: 128, MaxPerPeer: 4, PerMinute: 30}

// Domain is what statements are signed in.
const Domain attest.Domain = "lacuna/hello/peer/1"

// Waits and numbers of greeting.
const (
	interval     = time.Minute      // between rounds, give or take a sixth
	firstRound   = 10 * time.Second // after start; new connections do not wait for it
	soon         = 15 * time.Second // between rounds while a twin is suspected or a watched peer was hardly asked for
	pause        = 3 * time.Second  // between rounds at least, however often one is wanted
	settle       = 10 * time.Second // from a change of the own reach to telling it to all, so that one flap is one change
	atOnce       = 16               // greetings under way
	maxQueue     = 1024             // greetings that wait; later ones are left to the rounds
	roundNearest = 4                // peers greeted in each round because they are nearest, see Service.round
	roundOldest  = 4                // and because they were greeted longest ago
	few          = 8                // connections below which a peer wants to be told of others
)

// Options set up a [Service].
type Options struct {
	Host   *p2p.Host
	Signer attest.Signer       // of the host's key and network
	Agent  string              // software and version, for people; at most 64 printable ASCII characters
	Place  func() market.Place // where this peer says it is; nil = unknown

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported
}

// Service says hello and answers it. Use [New].
type Service struct {
	host     *p2p.Host
	signer   attest.Signer
	agent    string
	place    func() market.Place
	log      *slog.Logger
	metrics  *metrics
	notifiee *network.NotifyBundle
	boot     bootID
	start    time.Time
	wake     chan struct{} // holds one: the queue is not empty
	early    chan struct{} // holds one: a round is wanted now

	mu     sync.Mutex // guards all below, is never held over I/O
	seq    uint64
	queue  queue
	peers  peers
	twins  twins
	hints  hints
	watch  watch
	drift  time.Duration // of the wall clock against the monotonic one, as last looked at
	warned bool          // the skew was warned about
}

// New serves the protocol on the host from now until [Service.Close].
func New(o Options) (*Service, error) {
	var errs []error
	if o.Host == nil {
		return nil, errors.New("start hello: no host")
	}
	if err := checkAgent(o.Agent); err != nil {
		errs = append(errs, err)
	}
	// The network first: the zero Signer is of none, and has no key to ask for.
	if o.Signer.Network() != o.Host.NetworkID() || o.Signer.Key() != o.Host.Key() {
		errs = append(errs, errors.New("signer is of another key or network than the host"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("start hello: %w", err)
	}
	if o.Place == nil {
		o.Place = func() market.Place { return market.Place{} }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		host: o.Host, signer: o.Signer, agent: o.Agent, place: o.Place, log: o.Logger, start: time.Now(),
		wake: make(chan struct{}, 1), early: make(chan struct{}, 1),
	}
	_, _ = rand.Read(s.boot[:]) // never fails
	var err error
	if s.metrics, err = newMetrics(o.Registerer, s.offsetSeconds); err != nil {
		return nil, fmt.Errorf("start hello: %w", err)
	}
	s.notifiee = &network.NotifyBundle{ConnectedF: s.connected}
	s.host.Libp2p().Network().Notify(s.notifiee)
	s.host.Handle(Protocol, s.serve)
	return s, nil
}

// Close ends the service for new streams. [Service.Run] must have ended, or be about to.
func (s *Service) Close() {
	s.host.Unhandle(Protocol)
	s.host.Libp2p().Network().StopNotify(s.notifiee)
	s.metrics.unregister()
}

// Run greets peers as they connect, and some of them again every minute, until ctx ends. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	var greetings errgroup.Group
	defer func() { _ = greetings.Wait() }() // no greeting returns an error
	greetings.SetLimit(atOnce)
	for _, key := range s.connectedKeys() {
		s.enqueue(key, false)
	}
	reach := s.host.ReachChanged()
	all := false // the next round greets everybody
	var last time.Time
	round := time.NewTimer(firstRound)
	defer round.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-s.early:
			round.Reset(max(0, pause-time.Since(last)))
		case <-reach:
			reach, all = s.host.ReachChanged(), true
			round.Reset(settle)
		case <-round.C:
			s.round(all)
			last, all = time.Now(), false
			round.Reset(s.untilRound())
		}
		for key, ok := s.dequeue(); ok; key, ok = s.dequeue() {
			greetings.Go(func() error { s.greet(ctx, key); return nil })
		}
	}
}

// untilRound returns how long to wait for the next round. The spread keeps peers that started together apart.
func (s *Service) untilRound() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.twins.suspected(time.Now()) || s.watch.hungry(time.Now()) {
		return soon
	}
	return interval - interval/6 + mathrand.N(interval/3)
}
