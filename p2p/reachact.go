package p2p

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/market"
)

// adopt makes the verdict the current one. It reports whether the verdict has moved, and whether anything else that
// others may wait for has. The lock is held.
func (r *reacher) adopt(v Reach, now time.Time) (moved, other bool) {
	if v.Verdict == market.ReachUnknown && r.current.Verdict != v.Verdict && now.Before(r.keep) {
		return false, false
	}
	moved = v.Verdict != r.current.Verdict
	v.Since = r.current.Since
	if moved {
		v.Since = now
		if v.Verdict == market.ReachUnknown {
			v.Since = time.Time{}
		}
	}
	other = moved || v.UDP != r.current.UDP || v.TCP != r.current.TCP || !slices.Equal(v.Worked, r.current.Worked) ||
		!slices.Equal(v.Failed, r.current.Failed) || !slices.Equal(v.Relays, r.current.Relays)
	r.current = v
	return moved, other
}

// announce wakes those who wait for a change.
func (r *reacher) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.change)
	r.change = make(chan struct{})
}

// state returns what the library should believe. The lock is held.
func (r *reacher) state(now time.Time) network.Reachability {
	switch r.current.Verdict {
	case market.ReachDirect:
		return network.ReachabilityPublic
	case market.ReachUnknown:
		if r.ev.met.IsZero() || now.Sub(r.ev.met) < relayAfter {
			return r.emitted
		}
	}
	return network.ReachabilityPrivate
}

// act follows a new verdict.
func (r *reacher) act() {
	v := r.now()
	r.h.metrics.verdicts.WithLabelValues(v.Verdict.String()).Inc()
	r.h.log.Info("reachability", "verdict", v.Verdict, "worked", v.Worked, "failed", v.Failed, "relays", len(v.Relays))
	if err := r.relays.set(v.Verdict == market.ReachDirect && r.h.Hub()); err != nil {
		r.h.log.Warn("relaying for others does not start or stop", "err", err)
	}
}

// restand picks the addresses that are told from now on, and reports whether they may have changed.
func (r *reacher) restand(now time.Time) bool {
	old := r.standing.Load()
	s := *old
	v := r.now()
	set := func(addrs []string) map[string]bool {
		m := make(map[string]bool, len(addrs))
		for _, a := range addrs {
			m[a] = true
		}
		return m
	}
	r.mu.Lock()
	s.relayed, s.verdict = r.live, v.Verdict
	s.worked, s.failed = set(v.Worked), set(v.Failed)
	if now.Sub(r.ifaces) >= ifacesEvery {
		r.ifaces = now
		s.own, s.hidden, s.nets = interfaces()
		ownToo(s.own, r.h.host.Network().ListenAddresses())
	}
	r.mu.Unlock()
	r.standing.Store(&s)
	return !maps.Equal(s.own, old.own) || !slices.EqualFunc(s.relayed, old.relayed, ma.Multiaddr.Equal) || s.verdict != old.verdict ||
		!maps.Equal(s.worked, old.worked) || !maps.Equal(s.failed, old.failed)
}

// ownToo adds the addresses of listeners: on a network in memory they are on no interface.
func ownToo(own map[netip.Addr]bool, listeners []ma.Multiaddr) {
	for _, m := range listeners {
		if ip, ok := addrIP(m); ok && !ip.IsUnspecified() {
			own[ip] = true
		}
	}
}

// publish tells the library: on a change, and again when other addresses are to be told, which makes it look at them at
// once and tell connected peers.
func (r *reacher) publish(state network.Reachability, again bool) {
	r.mu.Lock()
	changed := state != r.emitted
	r.emitted = state
	r.mu.Unlock()
	if !changed && (!again || state == network.ReachabilityUnknown) {
		return
	}
	r.holder.state(r.h.ctx, state)
	if err := r.emit.Emit(event.EvtLocalReachabilityChanged{Reachability: state}); err != nil {
		r.h.log.Warn("reachability cannot be told", "err", err)
	}
}
