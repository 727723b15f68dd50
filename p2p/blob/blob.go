// Package blob keeps files by their SHA-256 and fetches them from other peers.
//
// [Store] is a folder of such files. [Service] serves those of them that [Options.Allow] lets a peer have, and
// [Service.Fetch] gets one from a peer into the store. What was fetched in part is kept and resumed, from the same peer
// or another one.
//
// One stream carries one file, the protocol "blob":
//
//	→ frame {1: digest, 2: offset}
//	← frame {1: code, 2: size of the whole file}, and if code is ok (1) size−offset raw bytes
//
// Codes are ok, not_found and not_allowed; a peer that may not have a file is not told whether it is there. The
// receiver believes nothing: it takes at most the size it was told, no more than its caller's limit, and a file enters
// the store only under the digest of its bytes.
//
// A store that is full is the caller's business: nothing is ever removed but by [Store.Remove]. The package knows no
// leases; whether a peer may have a file is for node to say, which is its caller. All of it is safe for concurrent use
// by one process; a folder belongs to one Store.
//
// History: 2026-11-30 version 1.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

const (
	// StallTimeout is how long a transfer may go without a byte. There is no limit on the whole: files may be large and
	// links slow. It is that long so that a re-routed or congested link recovers without a new dial.
	StallTimeout = 30 * time.Second
	// chunk is how much is read and written at once, in bytes. It is the window a yamux stream begins with.
	chunk = 256 << 10
	// requestTimeout bounds the exchange of request and header.
	requestTimeout = 10 * time.Second
)

// Protocol carries one file. Its timeout bounds request and header; the bytes after it move the deadline on. A job may
// have a thousand small inputs and outputs, each of them a stream.
var Protocol = p2p.Protocol{Name: "blob", Major: 1, Timeout: requestTimeout, MaxIn: 128, MaxPerPeer: 16, PerMinute: 6000, Bulk: true}

var (
	// ErrNotFound means that a file is not in the store, or not in that of the peer.
	ErrNotFound = errors.New("file not found")
	// ErrNotAllowed means that the peer does not let this one have the file.
	ErrNotAllowed = errors.New("file not allowed")
	// ErrTooLarge means that the file is larger than the caller's limit.
	ErrTooLarge = errors.New("file too large")
	// ErrStalled means that no byte came for [StallTimeout], or no answer to the request for 10 s.
	ErrStalled = errors.New("transfer stalled")
	// ErrCut means that the transfer ended early; what came is kept for the next time.
	ErrCut = errors.New("transfer cut short")
)

// DigestError means that bytes are not those of the digest they were asked for by. They are gone.
type DigestError struct {
	Want, Got attest.Digest
}

// Error names both digests.
func (e *DigestError) Error() string {
	return fmt.Sprintf("want bytes of %s, got those of %s", e.Want, e.Got)
}

// Options set up a [Service].
type Options struct {
	Host  *p2p.Host
	Store *Store
	// Allow says whether a peer may have a file. Nil allows none: the service only fetches.
	Allow func(peer attest.Key, d attest.Digest) bool
	// Sent is called, on many goroutines, each time some bytes of a file have gone out to a peer. Nil is not called.
	Sent func(peer attest.Key, d attest.Digest, bytes uint64)

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil: counters are kept but not exported
}

// Service serves files and fetches them. Use [New].
type Service struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	flights flights
}

// New registers the service with the host. It starts no goroutine.
func New(o Options) (*Service, error) {
	if o.Host == nil || o.Store == nil {
		return nil, errors.New("start blobs: no host or no store")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("start blobs: %w", err)
	}
	s := &Service{o: o, log: o.Logger, metrics: m, flights: flights{held: make(map[attest.Digest]*flight)}}
	if o.Allow != nil {
		o.Host.Handle(Protocol, s.serve)
	}
	return s, nil
}

// Close ends the service for new streams. Transfers that are under way end by themselves or with the host.
func (s *Service) Close() {
	if s.o.Allow != nil {
		s.o.Host.Unhandle(Protocol)
	}
	s.metrics.unregister()
}

// flights lets one goroutine at a time fetch a file.
type flights struct {
	mu   sync.Mutex
	held map[attest.Digest]*flight
}

type flight struct {
	token chan struct{} // holds one token while the file is being fetched
	users int           // guarded by flights.mu
}

// enter waits until no other goroutine fetches d. The caller must call leave, unless there is an error.
func (f *flights) enter(ctx context.Context, d attest.Digest) (leave func(), err error) {
	f.mu.Lock()
	one := f.held[d]
	if one == nil {
		one = &flight{token: make(chan struct{}, 1)}
		f.held[d] = one
	}
	one.users++
	f.mu.Unlock()
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(f.held, d)
		}
	}
	select {
	case one.token <- struct{}{}:
		return func() { <-one.token; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// stream is what a transfer needs of a stream.
type stream interface {
	io.ReadWriter
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}
