package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

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
