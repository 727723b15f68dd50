package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

// What a dial failed of, in words; see [DialReason].
const (
	saidTimeout   = "timed out"
	saidRefused   = "refused"
	saidNoRoute   = "no route"
	saidOther     = "another peer answered"
	saidKey       = "the handshake failed, so its network may have another key or none"
	saidBarred    = "not dialled from here"
	saidNoRelay   = "its relay does not have it"
	reasonAddrs   = 4  // named with one reason
	reasonLetters = 80 // of a reason without a word of ours
)

// DialReason says in one line why [Host.Dial] did not reach a peer: which of its addresses failed of what. addrs are
// those that were to be tried, for an error that names none.
func DialReason(err error, addrs []string) string {
	var dial *swarm.DialError
	if !errors.As(err, &dial) || len(dial.DialErrors) == 0 {
		return dialWord(err) + addrList(addrs)
	}
	var reasons []string // in the order of their first address
	at := map[string][]string{}
	for _, e := range dial.DialErrors {
		word := dialWord(e.Cause)
		if at[word] == nil {
			reasons = append(reasons, word)
		}
		at[word] = append(at[word], e.Address.String())
	}
	for i, word := range reasons {
		reasons[i] = word + addrList(at[word])
	}
	return strings.Join(reasons, "; ")
}

func addrList(addrs []string) string {
	switch n := len(addrs) - reasonAddrs; {
	case len(addrs) == 0:
		return ""
	case n > 0:
		return fmt.Sprintf(": %s and %d more", strings.Join(addrs[:reasonAddrs], ", "), n)
	}
	return ": " + strings.Join(addrs, ", ")
}

func dialWord(err error) string {
	var mismatch sec.ErrPeerIDMismatch
	text := err.Error()
	switch {
	case errors.As(err, &mismatch):
		return saidOther
	case errors.Is(err, ErrNetworkKey), strings.HasPrefix(text, noHandshake):
		return saidKey
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(text, "connection refused"):
		return saidRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return saidNoRoute
	case strings.Contains(text, "NO_RESERVATION"):
		return saidNoRelay
	case errors.Is(err, swarm.ErrGaterDisallowedConnection), errors.Is(err, swarm.ErrNoTransport), errors.Is(err, swarm.ErrNoGoodAddresses):
		return saidBarred
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), strings.Contains(text, "timeout"), strings.Contains(text, "deadline exceeded"):
		return saidTimeout
	}
	text, _, _ = strings.Cut(text, "\n")
	parts := strings.Split(text, ": ")
	slices.Reverse(parts) // the end of a chain of errors says the most
	text = cmp.Or(parts[0], text)
	return string([]rune(text)[:min(len([]rune(text)), reasonLetters)])
}
