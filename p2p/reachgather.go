package p2p

import (
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lacuna-network/lacuna/market"
)

// gather updates the evidence from what can be seen now. The lock is held.
func (r *reacher) gather(now time.Time, conns []network.Conn, own []ma.Multiaddr) {
	if len(conns) > 0 && (r.ev.met.IsZero() || r.ev.alone) {
		r.ev.met = now // who comes after a time alone gets the time to try as well
	}
	r.ev.alone = len(conns) == 0
	r.ev.own = addrStrings(own)
	r.ev.nobodyOwn = len(r.h.host.Network().ListenAddresses()) == 0
	for a := range r.ev.records {
		if !slices.Contains(r.ev.own, a) {
			delete(r.ev.records, a)
		}
	}
	r.metOutside(now, conns)
	// While this peer is direct the library looks after no relay, so that what it last said may be long out of date.
	r.live = slices.DeleteFunc(slices.Clone(r.circuit), func(m ma.Multiaddr) bool {
		id, ok := relayOf(m)
		return !ok || r.h.host.Network().Connectedness(id) != network.Connected || r.ev.outside && !reachesOut(m)
	})
	r.ev.relays = r.ev.relays[:0]
	for _, id := range relaysOf(r.live) {
		if key, err := KeyOf(id); err == nil {
			r.ev.relays = append(r.ev.relays, key)
		}
	}
	r.weighWires(now, conns)
	r.ev.lasts = false
	if !r.lan || r.ev.forced != market.ReachUnknown {
		return
	}
	for _, c := range conns {
		m := c.RemoteMultiaddr()
		if c.Stat().Direction != network.DirInbound || circuit(m) || manet.IsIPLoopback(m) || r.h.paths.punched(c) {
			continue
		}
		first := slices.ContainsFunc(r.h.host.Network().ConnsToPeer(c.RemotePeer()), func(o network.Conn) bool {
			return o.Stat().Direction == network.DirOutbound
		})
		if key, err := KeyOf(c.RemotePeer()); err == nil && !first {
			if opened := c.Stat().Opened; !r.ev.lasts || opened.After(r.ev.inbound.at) {
				r.ev.inbound = finding{by: key, at: opened, ok: true}
			}
			r.ev.lasts = true
		}
	}
}

func (r *reacher) now() Reach {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.current
	v.Witnesses, v.Relays = slices.Clone(v.Witnesses), slices.Clone(v.Relays)
	v.Worked, v.Failed = slices.Clone(v.Worked), slices.Clone(v.Failed)
	return v
}

func (r *reacher) changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change
}
