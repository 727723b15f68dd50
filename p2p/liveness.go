package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lacuna-network/lacuna/attest"
)

// Liveness is what can be told of a peer from outside. 0 means not asked.
type Liveness int

// The verdicts.
const (
	Alive  Liveness = iota + 1 // it answered a ping
	Gone                       // its computer answered for it: nobody listens on any of its known TCP addresses
	Silent                     // neither; it may be off, cut off, or slow
)

// String returns the verdict in lower case.
func (l Liveness) String() string {
	switch l {
	case Alive:
		return "alive"
	case Gone:
		return "gone"
	case Silent:
		return "silent"
	}
	return fmt.Sprintf("liveness(%d)", int(l))
}

// Probe finds out within about 3 s whether the peer lives. It pings the peer, over a new connection if there is none,
// and meanwhile knocks at its TCP addresses: a process that died leaves a kernel that refuses at once, while over QUIC
// death looks like silence. A peer without TCP addresses is never Gone.
func (h *Host) Probe(ctx context.Context, key attest.Key, addrs []string) Liveness {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	alive, refused := make(chan bool, 1), make(chan bool, 1)
	known := h.dialable(slices.Concat(parseAddrs(key, addrs), h.host.Peerstore().Addrs(PeerID(key))))
	go func() { // ends with ctx
		err := h.Connect(ctx, key, addrs)
		if err == nil {
			_, err = h.pingOnce(ctx, PeerID(key))
		}
		alive <- err == nil
	}()
	go func() { refused <- allRefuse(ctx, known) }() // ends with ctx
	select {
	case ok := <-alive:
		if ok {
			return Alive
		}
		if <-refused {
			return Gone
		}
		return Silent
	case no := <-refused:
		if !no {
			if <-alive {
				return Alive
			}
			return Silent
		}
		grace := time.NewTimer(probeGrace)
		defer grace.Stop()
		select {
		case ok := <-alive:
			if ok {
				return Alive // TCP is closed on purpose, and QUIC works
			}
		case <-grace.C:
		}
		return Gone
	}
}

// allRefuse reports whether there are TCP addresses and every one of them refuses.
func allRefuse(ctx context.Context, addrs []ma.Multiaddr) bool {
	seen := make(map[string]bool)
	for _, m := range addrs {
		if network, address, err := manet.DialArgs(m); err == nil && (network == "tcp4" || network == "tcp6") {
			seen[address] = true
		}
	}
	if len(seen) == 0 || len(seen) > 16 {
		return false
	}
	results := make(chan bool, len(seen))
	for address := range seen {
		go func() { // ends with ctx
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				_ = c.Close()
			}
			results <- errors.Is(err, syscall.ECONNREFUSED)
		}()
	}
	all := true
	for range seen {
		all = <-results && all
	}
	return all
}

// pingOnce returns the round trip to a connected peer and notes it in the peerstore.
func (h *Host) pingOnce(ctx context.Context, id peer.ID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, ok := <-h.ping.Ping(network.WithNoDial(ctx, "ping"), id)
	if !ok {
		return 0, context.Cause(ctx)
	}
	return r.RTT, r.Error
}

// connected measures the latency of a new peer, once; [Host.MedianRTT] lives on it.
func (h *Host) connected(_ network.Network, c network.Conn) {
	id := c.RemotePeer()
	if h.host.Peerstore().LatencyEWMA(id) > 0 || !h.begin() {
		return
	}
	go func() { // ends with the host's context, which Close waits for
		defer h.running.Done()
		ctx, cancel := context.WithTimeout(h.ctx, pingTimeout)
		defer cancel()
		if _, err := h.pingOnce(ctx, id); err != nil {
			h.log.Debug("ping of new peer without answer", "peer", id.String(), "err", err)
		}
	}()
}

// MedianRTT returns the median round trip to the connected peers whose latency is known, and false if there are none.
func (h *Host) MedianRTT() (time.Duration, bool) {
	var all []time.Duration
	for _, id := range h.host.Network().Peers() {
		if d := h.host.Peerstore().LatencyEWMA(id); d > 0 {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}
