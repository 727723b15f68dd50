package p2p

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
)

const (
	punchDial   = 5 * time.Second  // of one attempt to punch; the library makes three
	punchWait   = 8 * time.Second  // for a punch, before a relay that lets bulk data pass is tried
	punchAgain  = 20 * time.Second // after which a relayed connection has punched all it will
	bulkWait    = 12 * time.Second // for a path after the relays that let bulk data pass were tried
	maxRelayed  = 4                // relays of one peer that are looked at
	relayedIdle = 15 * time.Second // that an idle relayed connection outlives the straight one beside it
)

// Widen makes sure that bulk data can flow to the peer: it connects, and where that gives a limited relay only, it waits
// for a hole punch or another path until ctx ends. It returns the best path there is; the error wraps [ErrLimited] or
// [ErrUnreachable] if that does not carry bulk data.
func (h *Host) Widen(ctx context.Context, key attest.Key, addrs []string) (Path, error) {
	if err := h.Connect(ctx, key, addrs); err != nil {
		return PathNone, err
	}
	if p := h.Path(key); p >= PathPunched {
		return p, nil
	}
	id := PeerID(key)
	if h.Path(key).Bulk() {
		return h.await(ctx, key, h.punching(id), PathPunched), nil // a punch that is under way may still spare the relay
	}
	if h.freshen(id) {
		if err := h.Connect(ctx, key, addrs); err != nil {
			return PathNone, err
		}
	}
	h.dialStraight(ctx, id)
	if p := h.await(ctx, key, h.punching(id), PathPunched); p.Bulk() {
		return p, nil
	}
	h.viaBulkRelay(ctx, id)
	if p := h.await(ctx, key, bulkWait, PathRelayed); p.Bulk() {
		return p, nil
	}
	p := h.Path(key)
	if p == PathNone {
		return p, fmt.Errorf("widen path to %s: %w", key.Short(), ErrUnreachable)
	}
	return p, fmt.Errorf("widen path to %s: %w", key.Short(), ErrLimited)
}

// punching returns how long a punch may still take. It begins when a relayed connection does.
func (h *Host) punching(id peer.ID) time.Duration {
	age := time.Duration(0)
	for _, c := range h.host.Network().ConnsToPeer(id) {
		age = max(age, time.Since(c.Stat().Opened))
	}
	return max(0, punchWait-age)
}

// await waits until the path is at least that good, for d at most, and returns it.
func (h *Host) await(ctx context.Context, key attest.Key, d time.Duration, want Path) Path {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		next := h.paths.wait()
		if p := h.Path(key); p >= want {
			return p
		}
		select {
		case <-next:
		case <-timer.C:
			return h.Path(key)
		case <-ctx.Done():
			return h.Path(key)
		}
	}
}

// dialStraight tries, in the background, the peer's addresses that lead through no relay. Where only this peer is behind a
// router, the other may be dialled; the reverse, where the other is, is its own business.
func (h *Host) dialStraight(ctx context.Context, id peer.ID) {
	if !slices.ContainsFunc(h.host.Peerstore().Addrs(id), func(m ma.Multiaddr) bool { return !circuit(m) }) || !h.begin() {
		return
	}
	go func() { // ends with ctx, with its own timeout or with the swarm, which Close ends before it waits
		defer h.running.Done()
		ctx, cancel := context.WithTimeout(network.WithForceDirectDial(ctx, "widen"), dialTimeout)
		defer cancel()
		if err := h.host.Connect(ctx, peer.AddrInfo{ID: id}); err != nil {
			h.log.Debug("no straight way", "peer", id.String(), "err", err)
		}
	}()
}

// freshen closes a relayed connection that has tried to punch and is not in use, and reports whether it did: the side
// behind the relay tries again when a new one comes.
func (h *Host) freshen(id peer.ID) bool {
	done := false
	for _, c := range h.host.Network().ConnsToPeer(id) {
		if circuit(c.RemoteMultiaddr()) && !h.inUse(c) && time.Since(c.Stat().Opened) > punchAgain {
			_ = c.Close()
			done = true
		}
	}
	return done
}

// inUse reports a connection on which a protocol of this network runs; the library's own streams do not count.
func (h *Host) inUse(c network.Conn) bool {
	return slices.ContainsFunc(c.GetStreams(), func(s network.Stream) bool {
		return s.Protocol() == "" || strings.HasPrefix(string(s.Protocol()), "/lacuna/") // "": it is being opened
	})
}

// viaBulkRelay moves to a relay that lets bulk data pass, if the peer has a place at one. Streams that are open on the
// limited connection are left alone, and so is the connection then.
func (h *Host) viaBulkRelay(ctx context.Context, id peer.ID) {
	all := h.host.Peerstore().Addrs(id)
	relays := relaysOf(all)
	for _, relay := range relays[:min(len(relays), maxRelayed)] {
		if !h.isBulkRelay(ctx, relay, all) {
			continue
		}
		for _, c := range h.host.Network().ConnsToPeer(id) {
			if circuit(c.RemoteMultiaddr()) && h.inUse(c) {
				return
			}
		}
		h.gate.only(id, relay)
		for _, c := range h.host.Network().ConnsToPeer(id) {
			if circuit(c.RemoteMultiaddr()) {
				_ = c.Close()
			}
		}
		err := h.host.Connect(network.WithAllowLimitedConn(ctx, "bulk relay"), peer.AddrInfo{ID: id, Addrs: all})
		h.gate.any(id)
		if err == nil {
			return
		}
		h.log.Debug("bulk relay does not lead to the peer", "peer", id.String(), "err", err)
	}
}

// isBulkRelay asks a peer's relay what it lets pass, by what it says it speaks.
func (h *Host) isBulkRelay(ctx context.Context, relay peer.ID, circuits []ma.Multiaddr) bool {
	var addrs []ma.Multiaddr
	for _, m := range circuits {
		if id, ok := relayOf(m); ok && id == relay {
			head, _ := ma.SplitFunc(m, func(c ma.Component) bool { return c.Protocol().Code == ma.P_P2P })
			addrs = append(addrs, head)
		}
	}
	if err := h.host.Connect(ctx, peer.AddrInfo{ID: relay, Addrs: h.dialable(addrs)}); err != nil {
		return false
	}
	spoken, err := h.host.Peerstore().SupportsProtocols(relay, bulkRelayID(h.network))
	return err == nil && len(spoken) > 0
}

// trimRelayed closes relayed connections that a straight one has made useless.
func (h *Host) trimRelayed(conns []network.Conn, now time.Time) {
	for _, c := range conns {
		if !circuit(c.RemoteMultiaddr()) || h.inUse(c) {
			continue
		}
		better := func(o network.Conn) bool {
			return !circuit(o.RemoteMultiaddr()) && now.Sub(o.Stat().Opened) > relayedIdle
		}
		if slices.ContainsFunc(h.host.Network().ConnsToPeer(c.RemotePeer()), better) {
			_ = c.Close()
		}
	}
}

// openOn opens a stream on a path that suits the protocol; the peer is connected.
func (h *Host) openOn(ctx context.Context, id peer.ID, p Protocol) (network.Stream, error) {
	pid := p.id(h.network)
	s, err := h.host.NewStream(network.WithAllowLimitedConn(ctx, p.Name), id, pid)
	if err == nil && p.Bulk && !h.pathOf(s.Conn()).Bulk() {
		_ = s.Reset()
		return nil, ErrLimited
	}
	return s, err
}
