package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// crowdRTT is the round trip between any two peers of a memory network.
const crowdRTT = 80 * time.Millisecond

const (
	settleTime   = 20 * time.Second // from the start of all nodes to the first auction
	auctionPause = time.Second      // between two, for what is left of the one before
)

// memoryPeer is a whole node on a network in memory.
type memoryPeer struct {
	*node.Node
	do   api.Backend
	stop func() error
}

// memoryNet is a network of whole nodes in virtual time: renters, which are light clients, behind providers. All code is the
// daemon's but for three things: packets travel in memory, there is no local API, and jobs only wait until they are stopped.
type memoryNet struct {
	t         *testing.T
	sim       *p2ptest.Network
	peers     []*memoryPeer
	providers []*memoryPeer
	renters   []*memoryPeer
}

// newMemoryNet starts the providers, each with a device at a price of its own, and the renters. It must be called in a
// bubble.
func newMemoryNet(t *testing.T, providers, renters int) *memoryNet {
	m := &memoryNet{t: t, sim: p2ptest.New(t, 0, p2ptest.Options{Latency: crowdRTT / 2})}
	random := rand.New(rand.NewPCG(1, uint64(providers)))
	for i := range providers {
		values := map[string]string{"provide.enabled": "true"}
		values["provide.simulate_gpus"] = filepath.Join(t.TempDir(), "gpus.json")
		gpus := fmt.Sprintf(`[{"model":"RTX 4090","count":4,"price":"0.%02d USD/h","place":"eu/de"}]`, 20+i%40)
		if err := os.WriteFile(values["provide.simulate_gpus"], []byte(gpus), 0o600); err != nil {
			t.Fatal(err)
		}
		m.providers = append(m.providers, m.add(values, random))
	}
	for range renters {
		m.renters = append(m.renters, m.add(map[string]string{}, random))
	}
	var starting sync.WaitGroup
	for _, p := range m.peers {
		starting.Go(func() { p.start(t) })
	}
	starting.Wait()
	time.Sleep(settleTime)
	synctest.Wait()
	return m
}

// add makes a node that knows some that were made before.
func (m *memoryNet) add(values map[string]string, random *rand.Rand) *memoryPeer {
	m.t.Helper()
	var known []string
	for _, i := range random.Perm(len(m.providers))[:min(len(m.providers), 4)] {
		p := m.providers[i]
		known = append(known, p.Addrs()[0]+"/p2p/"+p.Key().String())
	}
	values["network.name"] = "test-crowd"
	if len(known) > 0 {
		values["network.bootstrap"] = known[0]
		for _, k := range known[1:] {
			values["network.bootstrap"] += "," + k
		}
	}
	dir := m.t.TempDir()
	h, err := home.At(dir)
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := config.Load(dir, func(string) string { return "" }, values)
	if err != nil {
		m.t.Fatal(err)
	}
	n, err := node.New(node.Options{Home: h, Config: c, Version: "test"}.InMemory(func(o p2p.Options) p2p.Options { return m.sim.Options(o) }, idler{}))
	if err != nil {
		m.t.Fatal(err)
	}
	p := &memoryPeer{Node: n, do: n.Backend()}
	m.peers = append(m.peers, p)
	return p
}

func (p *memoryPeer) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = func() error { cancel(); return <-done }
	select {
	case <-p.Ready():
	case err := <-done:
		t.Errorf("run node: %v", err)
		done <- err
	}
}

func (m *memoryNet) close() {
	var stopping sync.WaitGroup
	for _, p := range m.peers {
		stopping.Go(func() {
			if err := p.stop(); err != nil {
				m.t.Errorf("stop node: %v", err)
			}
		})
	}
	stopping.Wait()
	m.sim.Close()
}

// total returns the sum of a counter over all peers, of the series with that value of a label, "" for all.
func (m *memoryNet) total(name, label string) (sum float64) {
	m.t.Helper()
	for _, p := range m.peers {
		families, err := p.Metrics().Gather()
		if err != nil {
			m.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, c := range f.GetMetric() {
				match := label == ""
				for _, l := range c.GetLabel() {
					match = match || l.GetValue() == label
				}
				if match {
					sum += c.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// trust gives a renter good experience of a provider.
func (m *memoryNet) trust(p *memoryPeer, provider attest.Key) {
	m.t.Helper()
	value, err := attest.Marshal(struct {
		OK    bool            `cbor:"1,keyasint"`
		Value market.MicroUSD `cbor:"2,keyasint"`
		First bool            `cbor:"3,keyasint,omitempty"`
		What  string          `cbor:"4,keyasint"`
	}{true, market.USD, true, "done"})
	if err != nil {
		m.t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	if err := p.Store().AddEvidence(provider, now, attest.Sum(provider[:]), value); err != nil {
		m.t.Fatal(err)
	}
}

// raise makes a price above all others the renter's reference, so that any offer of a provider that it trusts is good
// enough. Its own awards lower the reference again.
func (m *memoryNet) raise(p *memoryPeer) {
	m.t.Helper()
	for range 15 { // as many as count
		if err := p.Store().AddPrice(gpu.ClassOf(gpu.NVIDIA, 24<<30), time.Now().UnixMilli(), uint64(market.USD)); err != nil {
			m.t.Fatal(err)
		}
	}
}

// idler is a runner whose jobs do nothing until they are killed.
type idler struct{}

// Start starts nothing.
func (idler) Start(ctx context.Context, _ runner.Job) (runner.Process, error) {
	p := &idleProcess{done: make(chan struct{})}
	context.AfterFunc(ctx, func() { p.Kill("context ended") })
	return p, nil
}

type idleProcess struct {
	once   sync.Once
	done   chan struct{}
	reason string
}

func (p *idleProcess) Pause() error  { return nil }
func (p *idleProcess) Resume() error { return nil }
func (p *idleProcess) Kill(reason string) {
	p.once.Do(func() { p.reason = reason; close(p.done) })
}
func (p *idleProcess) Usage() (runner.Usage, error) { return runner.Usage{}, nil }
func (p *idleProcess) Done() <-chan struct{}        { return p.done }
func (p *idleProcess) Result() runner.Result {
	<-p.done
	return runner.Result{State: runner.Killed, Reason: p.reason}
}
func (p *idleProcess) PID() int { return 0 }
