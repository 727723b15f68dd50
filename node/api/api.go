// Package api is how programs on this machine reach a running peer: HTTP and JSON over a unix socket, and the client for
// it.
//
// [Server] serves the routes of routes.go; what it shows and does comes from a [Backend], so that it knows no store, no
// network and no market. [Client] has one typed method per route. The types of answers stand in views.go, with the
// functions that make them of the market's own types in convert.go; jobs and their events are shown as node/renter keeps
// them. An OpenAPI document is made of the same table as the routes and served at /openapi.json.
//
// An error is a status and
//
//	{"error": {"code": "…", "message": "…", "hint": "…", "details": {…}}}
//
// Lists that are found or grow over time come as JSON lines, each flushed at once; an error after the first line is the
// last line. Whoever may open the socket may do everything: it has mode 0600 in a folder of its owner. A Server and a
// Client are safe for concurrent use. The package is used by node, cmd and node/testnet.
//
// History: 2026-11-30 version 1 (/v1).
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
)

// Backend is what the routes call. A nil function answers its route with [ErrNotAvailable]; a nil Ready is always
// ready. All of them are called from many goroutines, and end when their context does.
type Backend struct {
	Ready   func() error // nil = the peer serves
	Status  func(ctx context.Context) (Status, error)
	Refresh func(ctx context.Context)                   // looks again at how others reach this peer; returns when that is known, or after a while
	Down    func(ctx context.Context, drain bool) error // begins to stop and returns

	Devices func(ctx context.Context) ([]DeviceView, error)
	Asks    func(ctx context.Context, f AskFilter, found func(AskView) error) error

	Submit   func(ctx context.Context, spec market.Spec, dryRun bool) (renter.Job, error)
	Jobs     func(ctx context.Context) ([]renter.Job, error)
	Job      func(ctx context.Context, ref string) (renter.Job, error)
	Stop     func(ctx context.Context, ref string) (renter.Job, error)
	Wait     func(ctx context.Context, ref string) (renter.Job, error)
	Fetch    func(ctx context.Context, ref, to string) ([]string, error)
	Events   func(ctx context.Context, ref string, from uint64, follow bool, next func(renter.Event) error) error
	Log      func(ctx context.Context, ref string, offset uint64, follow bool, next func(joblog.Chunk) error) error
	Auctions func(ctx context.Context, ref string) ([]AuctionView, error)

	Leases   func(ctx context.Context, role string) ([]LeaseView, error) // "" = both roles
	Lease    func(ctx context.Context, ref string) (LeaseView, error)
	EndLease func(ctx context.Context, ref, reason string) (LeaseView, error)

	Receipts func(ctx context.Context, lease string) ([]ReceiptView, error)
	Export   func(ctx context.Context, lease, job string) ([]byte, error) // one of the two is set

	Reputations func(ctx context.Context) ([]ReputationView, error)
	Reputation  func(ctx context.Context, peer attest.Key) (ReputationView, error)

	Join   func(ctx context.Context, targets []string) (Joined, error)
	Invite func(ctx context.Context, withoutKey bool) (string, error)
	Config func() []config.Entry
}

// Options set up a [Server].
type Options struct {
	Backend  Backend
	Gatherer prometheus.Gatherer // for /metrics; nil serves none
	Codes    []Code              // of the backend's errors, tried before the package's own
	Logger   *slog.Logger        // nil discards
}

// Server answers requests. Use [New].
type Server struct {
	o       Options
	routes  []route
	handler http.Handler
	openapi []byte
}

// New returns a server that listens nowhere yet.
func New(o Options) (*Server, error) {
	for _, c := range o.Codes {
		if c.Err == nil || c.Code == "" || c.Status < 400 || c.Status > 599 {
			return nil, fmt.Errorf("new api: code %q for %v: want an error, a word and a status of 400 to 599", c.Code, c.Err)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o}
	s.routes = s.table()
	doc, err := document(s.routes)
	if err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	s.openapi = doc
	s.handler = s.mux()
	return s, nil
}

// Handler returns the routes, for a listener of another kind.
func (s *Server) Handler() http.Handler { return s.handler }

// Limits of a request.
const (
	maxBody      = 1 << 20
	maxHeader    = 64 << 10
	headerWait   = 5 * time.Second
	bodyWait     = 30 * time.Second
	idleWait     = 2 * time.Minute
	shutdownWait = 5 * time.Second
	dialWait     = time.Second
)

// ErrSocketInUse means that another process answers on a socket.
var ErrSocketInUse = errors.New("another process listens on the socket")

// Listen opens the unix socket at path with mode 0600. A socket that a dead process left is removed first; one that is
// answered is an error that wraps [ErrSocketInUse]. The folder must exist and be closed to others, since the mode is
// set a moment after the socket is there.
func Listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	case info.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("listen on %s: something that is no socket is in the way", path)
	default:
		if c, err := net.DialTimeout("unix", path, dialWait); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("listen on %s: %w", path, ErrSocketInUse)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: remove what a dead process left: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// Serve answers on l until ctx ends, then gives running requests a moment: their contexts end, and what does not return
// is cut off. It closes l, which removes the socket.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	srv := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve api: %w", err)
	case <-ctx.Done():
	}
	end()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		s.o.Logger.Warn("requests did not end in time", "err", err)
		_ = srv.Close() // cuts off what is left
	}
	<-served
	return nil
}
