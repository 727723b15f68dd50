package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/p2p"
)

func TestDialReason(t *testing.T) {
	list := func(errs ...error) error {
		e := &swarm.DialError{}
		for i, err := range errs {
			e.DialErrors = append(e.DialErrors, swarm.TransportError{Address: ma.StringCast(fmt.Sprintf("/ip4/192.0.2.%d/tcp/1", i+1)), Cause: err})
		}
		return fmt.Errorf("connect: %w", e)
	}
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"one reason for two addresses", list(refused, syscall.EHOSTUNREACH, refused), "refused: /ip4/192.0.2.1/tcp/1, /ip4/192.0.2.3/tcp/1; no route: /ip4/192.0.2.2/tcp/1"},
		{"more addresses than a line holds", list(refused, refused, refused, refused, refused, refused),
			"refused: /ip4/192.0.2.1/tcp/1, /ip4/192.0.2.2/tcp/1, /ip4/192.0.2.3/tcp/1, /ip4/192.0.2.4/tcp/1 and 2 more"},
		{"another peer", list(fmt.Errorf("failed to negotiate security protocol: %w", sec.ErrPeerIDMismatch{})), "another peer answered: /ip4/192.0.2.1/tcp/1"},
		{"no handshake", list(errors.New("failed to negotiate security protocol: EOF")), "the handshake failed, so its network may have another key or none: /ip4/192.0.2.1/tcp/1"},
		{"a handshake that hangs", list(errors.New("failed to negotiate security protocol: i/o timeout")), "the handshake failed, so its network may have another key or none: /ip4/192.0.2.1/tcp/1"},
		{"the caller's time is over", fmt.Errorf("connect: %w", context.DeadlineExceeded), "timed out: /ip4/198.51.100.1/tcp/1"},
		{"barred", list(swarm.ErrGaterDisallowedConnection), "not dialled from here: /ip4/192.0.2.1/tcp/1"},
		{"no reservation", list(errors.New("error opening relay circuit: NO_RESERVATION (204)")), "its relay does not have it: /ip4/192.0.2.1/tcp/1"},
		{"anything else", list(errors.New("one: two: " + strings.Repeat("ä", 100) + "\nmore")), strings.Repeat("ä", 80) + ": /ip4/192.0.2.1/tcp/1"},
	} {
		if got := p2p.DialReason(tt.err, []string{"/ip4/198.51.100.1/tcp/1"}); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
