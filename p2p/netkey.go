package p2p

import (
	"errors"
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

// NetworkKeySize is the length of a private network's key in bytes.
const NetworkKeySize = 32

// ErrNetworkKey means that something answers where a peer should be, but no handshake comes about. On a network with a
// key that is all that can be seen from outside, and all that who is inside sees of others: each takes the other's bytes
// for noise.
var ErrNetworkKey = errors.New("it answers, but the handshake fails: the network may be private and its key missing here, or another")

// noHandshake begins the text of the library's error for a handshake that fails; it has no sentinel.
const noHandshake = "failed to negotiate security protocol"

// explainDial adds [ErrNetworkKey] to an error of a dial that got as far as the handshake at one address at least. Who
// speaks to another peer than the wanted one has no such problem.
func explainDial(err error) error {
	var dial *swarm.DialError
	if !errors.As(err, &dial) {
		return err
	}
	for _, e := range dial.DialErrors {
		var mismatch sec.ErrPeerIDMismatch
		if strings.HasPrefix(e.Cause.Error(), noHandshake) && !errors.As(e.Cause, &mismatch) {
			return fmt.Errorf("%w: %w", ErrNetworkKey, err)
		}
	}
	return err
}
