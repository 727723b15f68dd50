//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
)

// peerPort is the port that every peer listens on.
const peerPort = 4711

// network is the name of the lab's network. It is no test network: those take every peer for reachable.
const network = "natlab"

// peer is a daemon in a namespace, driven by its command line.
type peer struct {
	name    string
	kind    kind   // zero for hubs
	space   string // whole name of the namespace
	binary  string
	home    home.Home
	config  map[string]string
	env     []string // NAME=VALUE, beside the usual
	client  *api.Client
	id      string // peer id
	started time.Time
}

// newPeer makes the home of a peer with these keys in its config.
func (l *lab) newPeer(name, space string, values map[string]string) (*peer, error) {
	h, err := home.At(filepath.Join(l.dir, name))
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"network.name": network, "network.lan": "no", // private addresses are of no use to anybody here
		"network.mdns":   "off", // and no two peers share a local network
		"network.tls_ca": filepath.Join(l.dir, certFile),
		// Nobody has paid anybody yet, and all sellers hear every bid.
		"provide.cpu_slots": "2", "provide.trial_devices": "0",
	}
	for k, v := range values {
		all[k] = v
	}
	if err := errors.Join(h.Create(), config.Write(h.ConfigFile(), all)); err != nil {
		return nil, fmt.Errorf("peer %s: %w", name, err)
	}
	return &peer{name: name, space: l.world.prefix + space, binary: l.binary, home: h, config: all, client: api.NewClient(h.Socket())}, nil
}

// said is what a command has printed.
type said struct {
	stdout []byte
	stderr string
	exit   int // 0 to 255
}

// lacuna runs the program in the peer's namespace and home. Its error is about running it, not its exit code.
func (p *peer) lacuna(ctx context.Context, args ...string) (said, error) {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", p.space, p.binary, "--home", p.home.Dir()}, args...)...)
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "LACUNA_") && !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, p.env...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	failure := cmd.Run()
	var exit *exec.ExitError
	if errors.As(failure, &exit) && ctx.Err() == nil {
		failure = nil
	}
	return said{out.Bytes(), err.String(), cmd.ProcessState.ExitCode()}, failure
}

// must runs the program and fails unless it exits with 0.
func (p *peer) must(ctx context.Context, args ...string) ([]byte, error) {
	s, err := p.lacuna(ctx, args...)
	if err == nil && s.exit != 0 {
		err = fmt.Errorf("exit code %d: %s", s.exit, strings.TrimSpace(s.stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: lacuna %s: %w", p.name, strings.Join(args, " "), err)
	}
	return s.stdout, nil
}

// up starts the daemon and returns when it is ready.
func (p *peer) up(ctx context.Context) error {
	p.started = time.Now()
	out, err := p.must(ctx, "up", "-d", "--log-level", "debug")
	p.id = strings.TrimSpace(string(out))
	return err
}

// join joins a network by an invite.
func (p *peer) join(ctx context.Context, invite string) error {
	_, err := p.must(ctx, "join", invite)
	return err
}

// invite returns an invite of this peer.
func (p *peer) invite(ctx context.Context) (string, error) {
	out, err := p.must(ctx, "invite")
	return strings.TrimSpace(string(out)), err
}

// status is what this program reads of a peer's status.
type status struct {
	Addrs []string `json:"addrs"`
	Peers []struct {
		Peer string `json:"peer"`
		Addr string `json:"addr"`
		Path string `json:"path"`
	} `json:"peers"`
	Reachability struct {
		Verdict string   `json:"verdict"`
		UDP     string   `json:"udp"`
		TCP     string   `json:"tcp"`
		Relays  []string `json:"relays"`
	} `json:"reachability"`
}

// status asks the daemon for its status. It asks its API, as starting a program each second for each of many peers
// would take the machine's time away from them.
func (p *peer) status(ctx context.Context) (status, error) {
	var s status
	all, err := p.client.Status(ctx)
	if err != nil {
		return s, fmt.Errorf("%s: %w", p.name, err)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// path returns how the best connection from this peer to another one runs, "none" without one.
func (p *peer) path(ctx context.Context, other *peer) (string, error) {
	s, err := p.status(ctx)
	if err != nil {
		return "", err
	}
	path := "none"
	for _, c := range s.Peers {
		switch {
		case c.Peer != other.id:
		case c.Path != "":
			return c.Path, nil
		case strings.Contains(c.Addr, "/p2p-circuit"):
			path = "limited"
		default:
			return "direct", nil
		}
	}
	return path, nil
}

// verdict waits until the peer knows how others reach it, and returns that and the time since its start.
func (p *peer) verdict(ctx context.Context, within time.Duration) (string, time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, p.started.Add(within))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := p.status(ctx)
		if err != nil && ctx.Err() == nil {
			return "", 0, err
		}
		if v := s.Reachability.Verdict; err == nil && v != "unknown" {
			return v, time.Since(p.started), nil
		}
		select {
		case <-ctx.Done():
			return "unknown", within, nil
		case <-tick.C:
		}
	}
}
