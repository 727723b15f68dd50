package main

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/find"
)

const (
	fullPeers   = 200 // in one process
	dialsEach   = 6   // connections that each of them makes
	peersSettle = 20 * time.Second
	peersIdle   = 20 * time.Second

	// crowdVar makes this program the process that holds so many peers.
	crowdVar = "LACUNA_BENCH_PEERS"
)

// crowdCost is what the process with the peers prints.
type crowdCost struct {
	MBEach    float64 `json:"mb_each"`
	CPUEach   float64 `json:"cpu_ms_per_s_each"`
	Conns     float64 `json:"connections_each"`
	Goroutine float64 `json:"goroutines_each"`
}

// measurePeers measures what a peer on the network costs when nothing happens, without the store and the API around it.
func (b *bench) measurePeers(ctx context.Context) error {
	b.say("%d peers in one process, idle for %s", fullPeers, peersIdle)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), crowdVar+"="+strconv.Itoa(fullPeers))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run the process with the peers: %w", err)
	}
	var c crowdCost
	if err := json.Unmarshal(out, &c); err != nil {
		return fmt.Errorf("read what the peers cost: %w", err)
	}
	def := fmt.Sprintf("%d peers (host, DHT server, gossip on two topics) in one process over loopback TCP, each dialling %d others; growth of VmRSS per peer, "+
		"and processor time per peer over %s, after %s to settle. 1 MB = 10⁶ bytes.", fullPeers, dialsEach, peersIdle, peersSettle)
	b.report.add("full peer in one process", "MB", []float64{c.MBEach}, &aim{AtMost: 3}, def)
	b.report.add("idle full peer", "CPU ms/s", []float64{c.CPUEach}, &aim{AtMost: 1}, def)
	b.report.add("connections of a full peer", "", []float64{c.Conns}, nil, def)
	return nil
}

// runCrowd is the process with n peers: it starts them, leaves them alone, and prints what they cost.
func runCrowd(n int, stdout io.Writer) (err error) {
	before, err := residentMB(os.Getpid())
	if err != nil {
		return err
	}
	c, err := startCrowd(n)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return err
	}
	time.Sleep(peersSettle)
	debug.FreeOSMemory() // what the start has left behind is no cost of being there
	cpu := processorTime()
	began := time.Now()
	time.Sleep(peersIdle)
	cost := crowdCost{CPUEach: ms(processorTime()-cpu) / time.Since(began).Seconds() / float64(n)}
	after, err := residentMB(os.Getpid())
	if err != nil {
		return err
	}
	for _, h := range c.hosts {
		cost.Conns += float64(len(h.Peers())) / float64(n)
	}
	cost.MBEach, cost.Goroutine = (after-before)/float64(n), float64(runtime.NumGoroutine())/float64(n)
	return json.NewEncoder(stdout).Encode(cost)
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// crowd is many peers in this process.
type crowd struct {
	hosts   []*p2p.Host
	closers []func() error
}

func (c *crowd) close() error {
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	return errors.Join(errs...)
}

func startCrowd(n int) (*crowd, error) {
	c := &crowd{}
	for i := range n {
		h, err := p2p.New(p2p.Options{Key: benchKey(i), Network: "test-bench", Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
		if err != nil {
			return c, err
		}
		c.hosts, c.closers = append(c.hosts, h), append(c.closers, h.Close)
		f, err := find.New(find.Options{Host: h})
		if err != nil {
			return c, err
		}
		c.closers = append(c.closers, f.Close)
		g, err := bids.New(bids.Options{Host: h})
		if err != nil {
			return c, err
		}
		c.closers = append(c.closers, g.Close)
		if _, err := g.Subscribe(context.Background(), bids.TopicsFor(gpu.ClassCPU, market.Place{Continent: "eu"})...); err != nil {
			return c, err
		}
	}
	seeded := rand.New(rand.NewPCG(1, 2))
	for i, h := range c.hosts {
		for range dialsEach {
			other := c.hosts[seeded.IntN(n)]
			if other == h {
				continue
			}
			if err := h.Connect(context.Background(), other.Key(), other.Addrs()); err != nil {
				return c, fmt.Errorf("connect peer %d: %w", i, err)
			}
		}
	}
	return c, nil
}

func benchKey(i int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, "bench")
	binary.BigEndian.PutUint64(seed[24:], uint64(i))
	return ed25519.NewKeyFromSeed(seed)
}
