package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify/pb"
	"github.com/libp2p/go-msgio/pbio"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	msmux "github.com/multiformats/go-multistream"

	"github.com/lacuna-network/lacuna/market"
)

const (
	lookEvery   = 5 * time.Minute // between two look outs of a kind
	lookTries   = 2               // peers that one look out tries
	lookFirst   = 2 * time.Second // after the first connection
	lookTimeout = 8 * time.Second
	maxIdentify = 8 << 10 // bytes of the message in which a peer says what it sees
)

// lookOut makes a connection beside those that the swarm has, asks the peer what it sees, and closes it at once. That
// tells whether this kind of packet gets out, and where the router maps the port. A second connection inside the swarm
// is not possible, and closing the first would cost a relay's reservation.
func lookOut(ctx context.Context, h host.Host, id peer.ID, addr ma.Multiaddr) (local, seen ma.Multiaddr, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s, ok := h.Network().(*swarm.Swarm)
	if !ok {
		return nil, nil, errors.New("look out: no swarm")
	}
	t := s.TransportForDialing(addr)
	if t == nil {
		return nil, nil, fmt.Errorf("look out: no transport for %s", addr)
	}
	c, err := t.Dial(ctx, addr, id)
	if err != nil {
		return nil, nil, fmt.Errorf("look out: %w", err)
	}
	defer func() { _ = c.Close() }()
	seen, err = whatItSees(ctx, c)
	return c.LocalMultiaddr(), seen, err
}

func whatItSees(ctx context.Context, c transport.CapableConn) (ma.Multiaddr, error) {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("look out: %w", err)
	}
	defer func() { _ = s.Reset() }()
	_ = s.SetDeadline(time.Now().Add(lookTimeout))
	if err := msmux.SelectProtoOrFail(identify.ID, s); err != nil {
		return nil, fmt.Errorf("look out: %w", err)
	}
	var msg pb.Identify
	if err := pbio.NewDelimitedReader(s, maxIdentify).ReadMsg(&msg); err != nil {
		return nil, fmt.Errorf("look out: %w", err)
	}
	m, err := ma.NewMultiaddrBytes(msg.GetObservedAddr())
	if err != nil {
		return nil, fmt.Errorf("look out: %w", err)
	}
	return m, nil
}

// lookOuts looks out by the kinds of packet of which nothing is known, or, where others cannot dial this peer, of which
// nobody has said yet how they arrive.
func (r *reacher) lookOuts(now time.Time, conns []network.Conn) {
	if r.dialBacks == nil {
		return
	}
	seen := r.seen.addrs(now)
	s := r.standing.Load()
	listens := r.h.host.Network().ListenAddresses()
	for _, k := range []kind{kindQUIC, kindTCP} {
		is := func(m ma.Multiaddr) bool { return kindOf(m) == k }
		r.mu.Lock()
		wire := r.tcp
		if k == kindQUIC {
			wire = r.udp
		}
		needed := r.current.Verdict != market.ReachDirect && slices.ContainsFunc(listens, is) && !slices.ContainsFunc(seen, is)
		due := !r.ev.met.IsZero() && now.Sub(r.ev.met) >= lookFirst && (r.looked[k].IsZero() || now.Sub(r.looked[k]) >= lookEvery)
		start := due && (needed || wire != WireOpen)
		var targets []target
		if start {
			if targets = r.targets(conns, k, s); len(targets) > 0 {
				r.looked[k] = now
			}
		}
		r.mu.Unlock()
		if len(targets) > 0 && r.h.begin() {
			go func() { // ends with the host's context, which Close waits for
				defer r.h.running.Done()
				r.tryWire(k, targets)
			}()
		}
	}
}

type target struct {
	id   peer.ID
	addr ma.Multiaddr
}

// targets returns connected peers to look out to, and an address of this kind of each; with peers beyond
// the LANs, these alone. The lock is held.
func (r *reacher) targets(conns []network.Conn, k kind, s *standing) []target {
	var out []target
	for _, c := range conns {
		m := c.RemoteMultiaddr()
		// A connection of this kind has told already how it arrives, and TCP cannot be dialled twice from one port. One of
		// QUIC may be older than this network, as it survives a change of addresses.
		if circuit(m) || kindOf(m) == k && k != kindQUIC || c.Stat().Direction != network.DirOutbound {
			continue
		}
		for _, addr := range r.h.dialable(r.h.host.Peerstore().Addrs(c.RemotePeer())) {
			// Of the connection's own family: that one leaves this network, the other may not.
			if kindOf(addr) == k && addr[0].Code() == m[0].Code() && (r.lan || manet.IsPublicAddr(addr)) &&
				(!r.ev.outside || s.outside(addr)) {
				out = append(out, target{c.RemotePeer(), addr})
				break
			}
		}
		if len(out) == lookTries {
			break
		}
	}
	return out
}

func (r *reacher) tryWire(k kind, targets []target) {
	wire := WireBlocked
	for _, t := range targets {
		local, seen, err := lookOut(r.h.ctx, r.h.host, t.id, t.addr)
		if local == nil {
			r.h.log.Debug("nothing gets through", "addr", t.addr, "err", err)
			continue
		}
		wire = WireOpen
		if err == nil {
			r.seen.note(r.h.host.Network().ListenAddresses(), local, seen, t.id, time.Now())
			break
		}
	}
	r.mu.Lock()
	if r.h.ctx.Err() == nil {
		r.setWire(k, wire, time.Now())
	}
	r.mu.Unlock()
	r.poke()
}
