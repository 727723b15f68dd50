package p2p

import (
	"context"
	"errors"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lacuna-network/lacuna/attest"
)

// ErrLimited means that a peer can be reached only through a relay that carries signalling alone.
var ErrLimited = errors.New("only a limited relay leads there")

// Path is how the best connection to a peer runs.
type Path uint8

// The paths, worst first.
const (
	PathNone    Path = iota // no connection
	PathLimited             // through a relay that carries signalling only
	PathRelayed             // through a relay whose owner lets bulk data pass
	PathPunched             // straight, after a relay has introduced both sides
	PathDirect              // straight, dialled
)

var pathNames = [...]string{"none", "limited", "relayed", "hole-punched", "direct"}

// String returns the path in lower case.
func (p Path) String() string { return pathNames[min(int(p), len(pathNames)-1)] }

// Bulk reports whether data, logs and tunnels may use the path.
func (p Path) Bulk() bool { return p >= PathRelayed }

// Path returns how the best connection to the peer runs now.
func (h *Host) Path(key attest.Key) Path {
	switch h.host.Network().Connectedness(PeerID(key)) {
	case network.Connected:
		return PathDirect
	case network.Limited:
		return PathLimited
	}
	return PathNone
}

// Widen makes sure that bulk data can flow to the peer: it connects, and where that gives a limited relay only, it waits
// for a hole punch or another path until ctx ends. It returns the best path there is; the error wraps [ErrLimited] or
// [ErrUnreachable] if that does not carry bulk data.
func (h *Host) Widen(ctx context.Context, key attest.Key, addrs []string) (Path, error) {
	if err := h.Connect(ctx, key, addrs); err != nil {
		return PathNone, err
	}
	return h.Path(key), nil
}
