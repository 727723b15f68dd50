package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/protocol/autonatv2"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/market"
)

const (
	reachEvery   = 5 * time.Second        // between two looks at the evidence when nothing happens
	reachSoon    = 300 * time.Millisecond // after something has happened; more may follow
	relayAfter   = 5 * time.Second        // after the first connection without a success, before relays are looked for
	keepVerdict  = time.Minute            // after a recheck, while there is no new one
	ifacesEvery  = 10 * time.Second       // between two looks at the interfaces
	reachChannel = 256                    // events that may wait
)

// reacher finds out whether others can reach this peer, and acts on it: it picks the addresses that are told, and tells
// the library, which starts and stops looking for relays and serving the DHT by it.
type reacher struct {
	h         *Host
	lan       bool
	dialBacks *dialBacks // nil where the verdict is taken for granted
	server    *autonatv2.AutoNAT
	relays    *relayService
	holder    *relayHolder
	done      chan struct{} // closed when watch's goroutine has ended
	seen      *sightings
	emit      event.Emitter
	sub       event.Subscription
	wake      chan struct{}
	standing  atomic.Pointer[standing]

	mu                  sync.Mutex
	ev                  evidence
	circuit             []ma.Multiaddr // addresses through the relays that hold a place, as the library last said
	live                []ma.Multiaddr // those through connected ones
	current             Reach
	change              chan struct{}
	keep                time.Time            // until then an unknown verdict does not replace a known one
	dialing             map[string]peer.ID   // address → who is to dial it
	silent              map[string]time.Time // address and peer → not before
	udp                 Wire
	tcp                 Wire
	looked              map[kind]time.Time // when a look out began last
	emitted             network.Reachability
	ifaces              time.Time
	outside             time.Time          // when a peer beyond the LANs was last connected
	lost                []loss             // the connections that ended lately, oldest first
	doubted             time.Time          // when all was last doubted at once
	distrust, refreshed time.Time          // since when older findings weigh less; when somebody last asked for that
	pending             bool               // it is to be doubted again, as soon as that may be
	proofs              map[kind]time.Time // when packets of the kind last got through
}

// newReacher is called before the library's host exists.
func newReacher(o *Options) *reacher {
	r := &reacher{
		lan: o.LAN, seen: &sightings{}, wake: make(chan struct{}, 1), change: make(chan struct{}),
		dialing: make(map[string]peer.ID), silent: make(map[string]time.Time), looked: make(map[kind]time.Time), proofs: make(map[kind]time.Time),
		ev: evidence{forced: o.Reach, lan: o.LAN, records: make(map[string]record)},
	}
	s := standing{everything: o.testnet(), lan: o.LAN, fixed: parseAll(o.Announce), verdict: o.Reach}
	s.own, s.hidden, s.nets = interfaces()
	ownToo(s.own, parseAll(o.Listen))
	r.standing.Store(&s)
	return r
}

// told is the library's address factory.
func (r *reacher) told(addrs []ma.Multiaddr) []ma.Multiaddr { return r.standing.Load().told(addrs) }

// start makes ready. It is called once, by New, before the host listens.
func (r *reacher) start(h *Host, o *Options) error {
	r.h = h
	var err error
	if r.emit, err = h.host.EventBus().Emitter(new(event.EvtLocalReachabilityChanged), eventbus.Stateful); err != nil {
		return fmt.Errorf("watch reachability: %w", err)
	}
	sub, err := h.host.EventBus().Subscribe([]any{
		new(event.EvtPeerIdentificationCompleted), new(event.EvtPeerProtocolsUpdated), new(event.EvtPeerConnectednessChanged),
		new(event.EvtLocalAddressesUpdated), new(event.EvtAutoRelayAddrsUpdated),
	}, eventbus.BufSize(reachChannel))
	if err != nil {
		return fmt.Errorf("watch reachability: %w", err)
	}
	if o.Reach == market.ReachUnknown {
		if r.dialBacks, r.server, err = serveAutoNAT(h.host, o); err != nil {
			return errors.Join(sub.Close(), fmt.Errorf("serve autonat: %w", err))
		}
	}
	r.relays = newRelayService(h.ctx, h.host, o, h.metrics)
	r.sub = sub
	r.holder, err = holdRelays(h.host, &relayFinder{host: h.host, network: o.Network, outside: func(m ma.Multiaddr) bool { return r.standing.Load().outside(m) }})
	return err
}

// watch begins to find out, once the host listens.
func (r *reacher) watch() {
	if !r.h.begin() {
		return
	}
	r.done = make(chan struct{})
	go func() { // ends with the host's context, which Close waits for
		defer r.h.running.Done()
		defer close(r.done)
		r.run(r.h.ctx)
	}()
}

// close ends what runs. The host's context has ended.
func (r *reacher) close() {
	if r.done != nil {
		<-r.done
	}
	if r.sub != nil {
		_ = r.sub.Close() // nobody listens any more
	}
	if r.holder != nil {
		if err := r.holder.close(); err != nil {
			r.h.log.Debug("relays are not given up in order", "err", err)
		}
	}
	if r.server != nil {
		r.server.Close()
	}
	if r.relays != nil {
		if err := r.relays.set(false); err != nil {
			r.h.log.Debug("relay did not stop in order", "err", err)
		}
	}
}

func (r *reacher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for soon := true; ; {
		select {
		case <-ctx.Done():
			return
		case e := <-r.sub.Out():
			r.hear(e)
			if !soon {
				soon = true
				timer.Reset(reachSoon)
			}
		case <-r.wake:
			if !soon {
				soon = true
				timer.Reset(reachSoon)
			}
		case <-timer.C:
			soon = false
			r.look(time.Now())
			timer.Reset(reachEvery)
		}
	}
}

// poke makes the goroutine look soon.
func (r *reacher) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reacher) hear(e any) {
	switch e := e.(type) {
	case event.EvtPeerIdentificationCompleted:
		if e.Conn != nil && e.ObservedAddr != nil && !circuit(e.Conn.RemoteMultiaddr()) {
			r.seen.note(r.h.host.Network().ListenAddresses(), e.Conn.LocalMultiaddr(), e.ObservedAddr, e.Peer, time.Now())
		}
	case event.EvtAutoRelayAddrsUpdated:
		r.mu.Lock()
		r.circuit = slices.Clone(e.RelayAddrs)
		r.mu.Unlock()
	}
}

// punched is told by the hole puncher.
func (r *reacher) punched(id peer.ID) {
	key, err := KeyOf(id)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.ev.punched = finding{by: key, at: time.Now(), ok: true}
	r.mu.Unlock()
	r.poke()
}

// recheck forgets the evidence, but not the verdict.
func (r *reacher) recheck() {
	r.seen.forget()
	r.mu.Lock()
	r.ev = evidence{forced: r.ev.forced, lan: r.ev.lan, records: make(map[string]record)}
	r.udp, r.tcp = "", ""
	r.outside, r.lost, r.pending = time.Time{}, nil, false
	clear(r.proofs)
	r.keep = time.Now().Add(keepVerdict)
	r.ifaces = time.Time{}
	clear(r.silent)
	clear(r.looked)
	r.mu.Unlock()
	r.poke()
}

// look weighs the evidence of now and acts on it.
func (r *reacher) look(now time.Time) {
	conns := r.h.host.Network().Conns()
	servers := r.servers(conns)
	own := r.ownAddrs(now)
	r.mu.Lock()
	r.gather(now, conns, own)
	r.notice(now, conns)
	r.ev.crowd = crowdOf(slices.DeleteFunc(slices.Clone(servers), func(s server) bool { return r.ev.outside && !s.outside }), r.distrust)
	verdict := judge(r.ev, now)
	verdict.UDP, verdict.TCP = r.udp, r.tcp
	moved, other := r.adopt(verdict, now)
	state := r.state(now)
	due := r.dueDialBacks(now, own, servers)
	r.mu.Unlock()
	told := r.restand(now)
	if other {
		r.announce() // only now: who hears of it may look at the addresses
	}
	if moved {
		r.act()
	}
	r.publish(state, told)
	for _, b := range due {
		r.haveDialled(b)
	}
	r.lookOuts(now, conns)
	r.h.trimRelayed(conns, now)
}
