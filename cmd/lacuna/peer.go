package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
)

// peerNode is what up and run need of a node.
type peerNode interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{} // closed when it serves the local API
}

func newNode(h home.Home, cfg config.Config, log *slog.Logger) (peerNode, error) {
	return node.New(node.Options{Home: h, Config: cfg, Version: version, Logger: log})
}

// homeDir returns the home that the flags, the environment or the system's custom name.
func (c *cli) homeDir() (home.Home, error) {
	h, err := home.Resolve(c.home, c.env)
	if err != nil {
		return h, usageError("", "%w", err)
	}
	return h, nil
}

// env returns a variable of the environment, "" if it is not set.
func (c *cli) env(name string) string { v, _ := c.getenv(name); return v }

// dial connects to the daemon of the home. Without one, the error wraps [api.ErrNotRunning].
func (c *cli) dial() (*api.Client, error) {
	d, err := c.connect()
	if !notRunning(err) {
		return d, err
	}
	h, herr := c.homeDir()
	if herr != nil {
		return nil, err
	}
	if pid, held := h.Running(); held { // starting another one would not help
		return nil, &exitError{exit: exitNotRunning, code: "socket_gone",
			err:  fmt.Errorf("a peer runs in the home %s (pid %d), but nobody answers on its socket", h.Dir(), pid),
			hint: fmt.Sprintf("it may be starting or ending just now; if not, its socket is gone: kill %d, and start it again: lacuna up -d", pid)}
	}
	return nil, err
}

// connect is dial for those who look again and again.
func (c *cli) connect() (*api.Client, error) {
	h, err := c.homeDir()
	if err != nil {
		return nil, err
	}
	socket := h.Socket()
	if cfg, err := c.config(nil); err == nil && cfg.API.Socket != "" {
		socket = cfg.API.Socket // a config that does not read stops nobody from asking the daemon that runs
	}
	return api.Dial(socket)
}

func notRunning(err error) bool { return errors.Is(err, api.ErrNotRunning) }

// withNode runs a peer in this process while f runs, then ends it. gone is closed when the peer ended by itself, as
// down asks it to.
func (c *cli) withNode(ctx context.Context, overrides map[string]string, log *slog.Logger, f func(d *api.Client, gone <-chan struct{}) error) error {
	h, err := c.homeDir()
	if err != nil {
		return err
	}
	cfg, err := c.config(overrides)
	if err != nil {
		return err
	}
	n, err := c.newNode(h, cfg, log)
	if err != nil {
		return err
	}
	on, cancel := context.WithCancel(context.WithoutCancel(ctx)) // f ends first
	defer cancel()
	var ended error // read after gone is closed
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended = n.Run(on)
	}()
	select {
	case <-n.Ready():
	case <-gone:
		return errors.Join(errors.New("the peer ended before it was ready"), ended)
	case <-ctx.Done():
		cancel()
		<-gone
		return errors.Join(ctx.Err(), ended)
	}
	d, err := c.dial()
	if err == nil {
		err = f(d, gone)
		d.Close()
	}
	cancel()
	<-gone
	return errors.Join(err, ended)
}

// shortPeer is the fewest last characters of a peer id that name a peer.
const shortPeer = 4

// findPeer returns the peer that a whole id names, or the last characters of one, as they are printed: among the peers
// that the daemon is connected to, those it knows from experience and those that sell.
func (c *cli) findPeer(ctx context.Context, d *api.Client, name string) (attest.Key, error) {
	k, whole := attest.ParseKey(name)
	if whole == nil {
		return k, nil
	}
	known := map[attest.Key]bool{}
	st, err := d.Status(ctx)
	if err != nil {
		return k, err
	}
	for _, p := range st.Peers {
		known[p.Peer] = true
	}
	reps, err := d.Reputations(ctx)
	if err != nil {
		return k, err
	}
	for _, r := range reps {
		known[r.Peer] = true
	}
	if err := d.Asks(ctx, api.AskFilter{Limit: api.DefaultAsks}, func(a api.AskView) error { known[a.Peer] = true; return nil }); err != nil {
		return k, err
	}
	var found []attest.Key
	for p := range known {
		if len(name) >= shortPeer && strings.HasSuffix(p.String(), name) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return k, fmt.Errorf("%w, or the last characters of one that is known here", whole)
	case 1:
		return found[0], nil
	}
	return k, fmt.Errorf("peer %q: %d known peers end like that", name, len(found))
}
