// Package testnet runs real peers as processes on one machine.
//
// [Up] makes a home for each peer, starts the binary on it, waits until each is ready and joins all to the first. The
// [Net] it returns knows their pids and clients, can kill, stop and start single peers, and leaves nothing behind when
// it is closed: no process, no folder. A net that is kept outlives its starter; [List] and [Down] find it by the state
// file in its folder.
//
// Each peer has a process group of its own, so that a Ctrl-C meant for the starter does not reach it before the starter
// stops it in order; on Linux the peers of a net that is not kept die with their starter. A process is only ever
// signalled if its start time is the one written down, so that a pid that was used again is safe.
//
// The package knows the binary's flags (up --home --provide --simulate-gpus) and its local API; it is used by cmd
// (testnet, demo) and by tests. A Net is safe for concurrent use.
package testnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
)

// PeerSpec is one peer to run.
type PeerSpec struct {
	Name    string            // folder of its home; letters, digits, - and _
	Provide bool              // it sells
	GPUs    string            // JSON list of simulated devices, "" = none
	Args    []string          // further flags of `up`
	Config  map[string]string // keys of the config file, such as "rent.interval": "1s"
}

// Options set up a net.
type Options struct {
	Dir     string     // of the net; must be empty or not there; "" = a temporary one
	Binary  string     // the program to run
	Network string     // name of a test network, "test…"
	Peers   []PeerSpec // the first is the one that the others join
	Env     []string   // further environment of the peers, NAME=VALUE; LACUNA_… of this process is not passed on
	Keep    bool       // the peers outlive this process

	Timeout time.Duration // until all are ready and joined; 0 = 60 s
	Grace   time.Duration // that a peer has between SIGTERM and SIGKILL; 0 = 10 s
	Logger  *slog.Logger  // nil discards
}

// ErrNetExists means that a net was started in that folder and not ended.
var ErrNetExists = errors.New("a testnet is there already")

// stopGrace is how long a peer has between SIGTERM and SIGKILL.
const stopGrace = 10 * time.Second

// poll is how often a starting or dying peer is looked at.
const poll = 50 * time.Millisecond

// Peer is one running peer.
type Peer struct {
	Name    string
	PID     int // 0 = not running
	Home    string
	Provide bool
	Client  *api.Client
}

// Net is a running net. Use [Up].
type Net struct {
	o       Options
	dir     string
	created bool // the folder was made by Up

	mu     sync.Mutex
	peers  []*member
	up     bool
	closed bool
}

// member is a peer and its process.
type member struct {
	spec   PeerSpec
	home   home.Home
	client *api.Client
	proc   *process // nil = not running
}

// Up starts a net and returns when all peers are ready and have joined. If that fails, or ctx ends before, nothing of it
// is left; the error holds the end of the log of the peer that failed.
func Up(ctx context.Context, o Options) (*Net, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("start testnet: %w", err)
	}
	n := &Net{o: o, dir: o.Dir}
	if err := n.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("start testnet: %w", err), n.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := n.startAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start testnet: %w", err), n.Close())
	}
	n.mu.Lock()
	n.up = true
	n.mu.Unlock()
	return n, nil
}

// complete checks the options and fills in what was left out.
func (o *Options) complete() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Binary == "" {
		fail("no binary")
	}
	if err := config.CheckNetwork(o.Network); err != nil {
		errs = append(errs, err)
	} else if !market.IsTestNetwork(o.Network) {
		fail("network %q: want a name that begins with test", o.Network)
	}
	if len(o.Peers) == 0 {
		fail("no peers")
	}
	seen := map[string]bool{}
	for _, p := range o.Peers {
		if !safeName(p.Name) || seen[p.Name] {
			fail("peer %q: want a name of letters, digits, - and _ that no other has", p.Name)
		}
		seen[p.Name] = true
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Grace == 0 {
		o.Grace = stopGrace
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Keep && !canKeep {
		fail("a net cannot be kept on this system")
	}
	return errors.Join(errs...)
}

func safeName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == "" && s[0] != '-'
}

// prepare makes the folders and files of the net.
func (n *Net) prepare() error {
	switch {
	case n.dir == "":
		dir, err := os.MkdirTemp("", "lacuna-testnet-")
		if err != nil {
			return err
		}
		n.dir, n.created = dir, true
	default:
		entries, err := os.ReadDir(n.dir)
		if err == nil && len(entries) > 0 {
			dir := n.dir
			n.dir = "" // what lies there is not this net's, and stays
			if _, err := os.Stat(filepath.Join(dir, stateFile)); err == nil {
				return fmt.Errorf("%w: %s; end it with: lacuna testnet down", ErrNetExists, dir)
			}
			return fmt.Errorf("folder %s is not empty", dir)
		}
		n.created = errors.Is(err, os.ErrNotExist)
		if err := os.MkdirAll(n.dir, 0o700); err != nil {
			return err
		}
	}
	abs, err := filepath.Abs(n.dir)
	if err != nil {
		return err
	}
	n.dir = abs
	for _, spec := range n.o.Peers {
		h, err := home.At(filepath.Join(n.dir, spec.Name))
		if err != nil {
			return err
		}
		n.peers = append(n.peers, &member{spec: spec, home: h, client: api.NewClient(h.Socket())})
		if err := writeHome(h, n.o.Network, spec); err != nil {
			return fmt.Errorf("peer %s: %w", spec.Name, err)
		}
	}
	return n.save()
}

const gpusFile = "gpus.json"

func writeHome(h home.Home, network string, spec PeerSpec) error {
	if err := h.Create(); err != nil {
		return err
	}
	values := map[string]string{
		"network.name":   network,
		"network.listen": "/ip4/127.0.0.1/tcp/0, /ip4/127.0.0.1/udp/0/quic-v1",
	}
	for k, v := range spec.Config {
		values[k] = v
	}
	if err := config.Write(h.ConfigFile(), values); err != nil {
		return err
	}
	if spec.GPUs == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(h.Dir(), gpusFile), []byte(spec.GPUs), 0o600)
}

// args returns the command line of a peer.
func (m *member) args() []string {
	args := []string{"up", "--home", m.home.Dir()}
	if m.spec.Provide {
		args = append(args, "--provide")
	}
	if m.spec.GPUs != "" {
		args = append(args, "--simulate-gpus", filepath.Join(m.home.Dir(), gpusFile))
	}
	return append(args, m.spec.Args...)
}

// startAll starts all peers at once and joins them.
func (n *Net) startAll(ctx context.Context) error {
	if err := n.each(n.peers, func(m *member) error { return n.start(ctx, m) }); err != nil {
		return err
	}
	if len(n.peers) == 1 {
		return nil
	}
	invite, err := n.peers[0].client.Invite(ctx)
	if err != nil {
		return fmt.Errorf("invite of %s: %w", n.peers[0].spec.Name, err)
	}
	return n.each(n.peers[1:], func(m *member) error {
		if _, err := m.client.Join(ctx, []string{invite}); err != nil {
			return fmt.Errorf("peer %s: join: %w%s", m.spec.Name, err, tail(m.home.LogFile()))
		}
		return nil
	})
}

// each calls f for all members at once and returns all errors.
func (n *Net) each(members []*member, f func(*member) error) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// start launches a member's process and waits until it is ready.
func (n *Net) start(ctx context.Context, m *member) error {
	proc, err := launch(n.o.Binary, m.args(), n.environment(), m.home.LogFile(), n.o.Keep)
	if err != nil {
		return fmt.Errorf("peer %s: %w", m.spec.Name, err)
	}
	n.mu.Lock()
	m.proc = proc
	err = n.save()
	n.mu.Unlock()
	if err != nil {
		return err
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if err = m.client.Ready(ctx); err == nil {
			n.o.Logger.Info("peer is ready", "name", m.spec.Name, "pid", proc.pid)
			return nil
		}
		select {
		case <-proc.gone:
			return fmt.Errorf("peer %s ended before it was ready%s", m.spec.Name, tail(m.home.LogFile()))
		case <-ctx.Done():
			return fmt.Errorf("peer %s is not ready: %w (last: %w)%s", m.spec.Name, ctx.Err(), err, tail(m.home.LogFile()))
		case <-tick.C:
		}
	}
}

// environment returns what the peers see: this process's, without what would configure them.
func (n *Net) environment() []string {
	var out []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "LACUNA_") {
			out = append(out, e)
		}
	}
	return append(out, n.o.Env...)
}

// tail returns the last lines of a log, for an error message.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() // only read
	const most = 2 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd) // from the start then
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if text := strings.TrimSpace(string(b)); err == nil && text != "" {
		return "; the end of its log:\n" + text
	}
	return ""
}
