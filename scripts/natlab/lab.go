//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// lab is one run: a world, and peers in it.
type lab struct {
	world  *world
	dir    string // of this run: binary, homes, the job
	binary string
	say    func(format string, args ...any)

	hubs   []*peer
	invite string // by the first hub, and naming all

	mu    sync.Mutex
	peers map[string]*peer // beside the hubs, by name
	next  int              // public address of the next place

	stop  context.CancelFunc // of the proxies
	ctx   context.Context    // of the proxies
	group sync.WaitGroup     // proxies
}

// hubCount is how many hubs stand in the open, with both families, on public addresses from hubFirst on.
const (
	hubCount = 3
	hubFirst = 201
)

// newLab makes the world; binary is the program to test, "" = what the source tree at root builds. The caller closes the
// lab, also after an error.
func newLab(ctx context.Context, root, binary string, progress io.Writer) (l *lab, err error) {
	began := time.Now()
	l = &lab{binary: binary, peers: map[string]*peer{}, next: 1, say: func(format string, args ...any) {
		fmt.Fprintf(progress, "%5.1f s  "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
	}}
	l.ctx, l.stop = context.WithCancel(ctx)
	if l.dir, err = os.MkdirTemp("", "natlab"); err != nil {
		return l, err
	}
	if err := l.writeJob(); err != nil {
		return l, err
	}
	if l.binary == "" {
		l.binary = filepath.Join(l.dir, "lacuna")
		l.say("building the binary")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", l.binary, "./cmd/lacuna")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return l, fmt.Errorf("build the binary: %w: %s", err, out)
		}
	}
	if l.world, err = newWorld(ctx); err != nil {
		return l, err
	}
	return l, l.openHubs(ctx)
}

// close ends everything and removes it.
func (l *lab) close() error {
	l.stop()
	l.group.Wait()
	var err error
	if l.world != nil {
		err = l.world.close() // and the daemons with it
	}
	if l.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// openHubs starts the hubs and joins them. The first serves WSS, where web servers do.
func (l *lab) openHubs(ctx context.Context) error {
	if err := writeCertificate(l.dir, []string{address4(hubFirst), address6(hubFirst)}); err != nil {
		return err
	}
	for i := range hubCount {
		name := fmt.Sprintf("hub%d", i+1)
		if err := errors.Join(l.world.space(ctx, name), l.world.online(ctx, name, hubFirst+i, true, true)); err != nil {
			return err
		}
		values := map[string]string{"network.profile": "hub"}
		if i == 0 {
			values["network.listen"] = "/ip4/0.0.0.0/tcp/4711, /ip4/0.0.0.0/udp/4711/quic-v1, /ip6/::/tcp/4711, /ip6/::/udp/4711/quic-v1, " +
				"/ip4/0.0.0.0/tcp/443/tls/ws, /ip6/::/tcp/443/tls/ws"
			values["network.tls_cert"], values["network.tls_key"] = filepath.Join(l.dir, certFile), filepath.Join(l.dir, keyFile)
		}
		h, err := l.newPeer(name, name, values)
		if err != nil {
			return err
		}
		l.hubs = append(l.hubs, h)
	}
	if err := each(l.hubs, func(h *peer) error { return h.up(ctx) }); err != nil {
		return err
	}
	invite, err := l.hubs[0].invite(ctx)
	if err != nil {
		return err
	}
	if err := each(l.hubs[1:], func(h *peer) error { return h.join(ctx, invite) }); err != nil {
		return err
	}
	l.invite, err = l.hubs[0].invite(ctx)
	return err
}

// roles that a peer may have; they begin its name.
const (
	provider = "p-"
	renting  = "r-"
)

// settle makes a machine of that kind with a peer on it that is not started yet.
func (l *lab) settle(ctx context.Context, k kind, name string, values map[string]string) (*peer, error) {
	l.mu.Lock()
	n := l.next
	l.next++
	l.mu.Unlock()
	if err := k.build(ctx, l.world, name, n); err != nil {
		return nil, err
	}
	p, err := l.newPeer(name, name, values)
	if err != nil {
		return nil, err
	}
	p.kind = k
	if k.proxy {
		p.env = append(p.env, fmt.Sprintf("HTTPS_PROXY=http://%s.1:%d", lanNet, proxyPort))
		err = serveProxy(l.ctx, l.world.prefix+router(name), lanNet+".1", &l.group)
	}
	l.mu.Lock()
	l.peers[name] = p
	l.mu.Unlock()
	return p, err
}

// begin makes a machine of that kind, and starts and joins a peer on it.
func (l *lab) begin(ctx context.Context, k kind, role, name string) (*peer, error) {
	values := map[string]string{"provide.enabled": fmt.Sprint(role == provider)}
	if role != provider || k.name != "public" {
		values["network.hub"] = "no" // so that it is known who relays: the hubs, and one more peer that outlives them
	}
	p, err := l.settle(ctx, k, role+name, values)
	if err != nil {
		return nil, err
	}
	if err := p.up(ctx); err != nil {
		return nil, err
	}
	return p, p.join(ctx, l.invite)
}

// peer returns the one peer of that role in a place of that kind. It begins when first asked for.
func (l *lab) peer(ctx context.Context, role, kindName string) (*peer, error) {
	l.mu.Lock()
	p := l.peers[role+kindName]
	l.mu.Unlock()
	if p != nil {
		return p, nil
	}
	k, ok := kindOf(kindName)
	if !ok {
		return nil, fmt.Errorf("no such kind of place: %s", kindName)
	}
	return l.begin(ctx, k, role, kindName)
}

// settled returns the same once the peer knows how others reach it.
func (l *lab) settled(ctx context.Context, role, kindName string) (*peer, error) {
	p, err := l.peer(ctx, role, kindName)
	if err != nil {
		return nil, err
	}
	_, _, err = p.verdict(ctx, verdictWait)
	return p, err
}

// all returns the peers beside the hubs, by name.
func (l *lab) all() []*peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*peer
	for _, name := range slices.Sorted(maps.Keys(l.peers)) {
		out = append(out, l.peers[name])
	}
	return out
}

// atOnce is how many daemons start, or jobs run, at the same time: much of a job is waiting.
const atOnce = 4

// each calls f for all of a list, some at a time, and returns all errors.
func each[T any](list []T, f func(T) error) error {
	errs := make([]error, len(list))
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, v := range list {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			errs[i] = f(v)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tail returns the last lines of a peer's log.
func (p *peer) tail(lines int) string {
	b, err := os.ReadFile(p.home.LogFile())
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
