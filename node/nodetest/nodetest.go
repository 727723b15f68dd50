// Package nodetest runs whole peers in one process, on loopback, for tests.
//
// [Start] gives a running node with a home of its own; [Join] connects some. The jobs themselves still run in child
// processes, which are the test binary again, so a package's TestMain is [Main]. It is used by tests only.
package nodetest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
)

// Peer is a running node.
type Peer struct {
	Node   *node.Node
	Client *api.Client
	Home   string
	config map[string]string
	logger *slog.Logger // nil = by the environment
	t      testing.TB
	stop   func() error
}

// cacheVar names the folder of compiled modules that all peers of a test binary share: under the race detector one
// compilation takes half a minute.
const cacheVar = "LACUNA_TEST_CACHE"

// Main runs the tests of a package, or the sandbox of one of their jobs.
func Main(m *testing.M) int {
	if code, ok := wasm.ChildMain(); ok {
		return code
	}
	dir, err := os.MkdirTemp("", "lacuna-cache-")
	if err == nil {
		err = os.Setenv(cacheVar, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodetest:", err)
		return 1
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "nodetest:", err)
		return 1
	}
	return code
}

// Start runs a peer with these config values, by key. It is stopped when the test ends.
func Start(t testing.TB, values map[string]string) *Peer { return StartLogging(t, values, nil) }

// StartLogging is [Start] with a logger of the test's own.
func StartLogging(t testing.TB, values map[string]string, logger *slog.Logger) *Peer {
	t.Helper()
	dir, err := os.MkdirTemp("", "lacuna") // t.TempDir makes paths too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if shared := os.Getenv(cacheVar); shared != "" {
		if err := os.Symlink(shared, filepath.Join(dir, "cache")); err != nil {
			t.Fatal(err)
		}
	}
	p := &Peer{t: t, Home: dir, logger: logger, config: map[string]string{
		"network.name": "test-node", "network.listen": "/ip4/127.0.0.1/tcp/0,/ip4/127.0.0.1/udp/0/quic-v1"}}
	for k, v := range values {
		p.config[k] = v
	}
	p.start()
	t.Cleanup(func() { p.Stop() })
	return p
}

// StartProvider runs a peer that sells the simulated devices described by the JSON list.
func StartProvider(t testing.TB, gpus string, values map[string]string) *Peer {
	return StartProviderLogging(t, gpus, values, nil)
}

// StartProviderLogging is [StartProvider] with a logger of the test's own.
func StartProviderLogging(t testing.TB, gpus string, values map[string]string, logger *slog.Logger) *Peer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gpus.json")
	if err := os.WriteFile(file, []byte(gpus), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"provide.enabled": "true", "provide.simulate_gpus": file}
	for k, v := range values {
		all[k] = v
	}
	return StartLogging(t, all, logger)
}

func (p *Peer) start() {
	p.t.Helper()
	h, err := home.At(p.Home)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := config.Load(p.Home, func(string) string { return "" }, p.config)
	if err != nil {
		p.t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("LACUNA_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(p.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if p.logger != nil {
		logger = p.logger
	}
	n, err := node.New(node.Options{Home: h, Config: c, Version: "test", Logger: logger})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	select {
	case <-n.Ready():
	case err := <-done:
		cancel()
		p.t.Fatalf("run node: %v", err)
	}
	p.Node = n
	p.stop = func() error { cancel(); return <-done }
	if p.Client, err = api.Dial(n.Socket()); err != nil {
		p.t.Fatal(err)
	}
}

// Config returns the value of a config key that the peer was started with, "" if it was left at its default.
func (p *Peer) Config(key string) string { return p.config[key] }

// Stop ends the peer in order. A second call does nothing.
func (p *Peer) Stop() {
	p.t.Helper()
	if p.stop == nil {
		return
	}
	if err := p.stop(); err != nil {
		p.t.Errorf("stop node: %v", err)
	}
	p.stop = nil
}

// Restart stops the peer and starts it again in the same home.
func (p *Peer) Restart() {
	p.t.Helper()
	p.Stop()
	p.start()
}

// Join connects all peers to the first.
func Join(t testing.TB, first *Peer, others ...*Peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	invite, err := first.Client.Invite(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range others {
		if _, err := p.Client.Join(ctx, []string{invite}); err != nil {
			t.Fatal(err)
		}
	}
}
