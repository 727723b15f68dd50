package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/testnet"
)

// idle is how long peers are left alone before their memory is read.
const idle = 20 * time.Second

// measureMemory reads the resident memory of peers that have nothing to do.
func (b *bench) measureMemory(ctx context.Context) (err error) {
	b.say("two providers and a light client, idle for %s", idle)
	asUsual := map[string]string{"network.profile": "provider"} // not the numbers of a test network
	net, err := testnet.Up(ctx, testnet.Options{Dir: filepath.Join(b.dir, "idle"), Binary: b.binary, Network: "test-bench", Timeout: netWait, Peers: []testnet.PeerSpec{
		{Name: "p1", Provide: true, GPUs: simulated, Config: asUsual},
		{Name: "p2", Provide: true, GPUs: simulated, Config: asUsual},
		{Name: "renter"},
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	if err := sleep(ctx, idle); err != nil {
		return err
	}
	var provider, light []float64
	for _, p := range net.Peers() {
		mb, err := residentMB(p.PID)
		switch {
		case err != nil:
			return err
		case p.Provide:
			provider = append(provider, mb)
		default:
			light = append(light, mb)
		}
	}
	def := fmt.Sprintf("VmRSS of the process, program text included, %s after the start of a network of two providers and a light client. 1 MB = 10⁶ bytes.", idle)
	b.report.add("idle provider", "MB", provider, &aim{AtMost: 80}, def)
	b.report.add("idle light client", "MB", light, &aim{AtMost: 50}, def)
	return nil
}

// residentMB returns the resident memory of a process.
func residentMB(pid int) (float64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == "VmRSS:" {
			kib, err := strconv.ParseUint(string(f[1]), 10, 64)
			return float64(kib) * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("read memory: no VmRSS in %s", path)
}

const (
	versionRuns = 21
	upRuns      = 7
)

// measureProgram measures size and start of the binary.
func (b *bench) measureProgram(ctx context.Context) error {
	b.say("size and start of the binary")
	plain := filepath.Join(b.dir, "lacuna-plain")
	if err := b.build(ctx, plain); err != nil {
		return err
	}
	for _, f := range []struct{ name, path string }{{"binary, stripped", b.binary}, {"binary, as built", plain}} {
		info, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		b.report.add(f.name, "MB", []float64{float64(info.Size()) / 1e6}, nil, "Size of the one binary, built with -trimpath; stripped is with -ldflags='-s -w'.")
	}
	var version, up []float64
	for range versionRuns {
		took, err := timed(func() error { return exec.CommandContext(ctx, b.binary, "version").Run() })
		if err != nil {
			return fmt.Errorf("lacuna version: %w", err)
		}
		version = append(version, ms(took))
	}
	for i := range upRuns {
		took, err := b.untilReady(ctx, filepath.Join(b.dir, fmt.Sprint("up", i)))
		if err != nil {
			return err
		}
		up = append(up, ms(took))
	}
	b.report.add("lacuna version", "ms", version, nil, "From the start of the command to its end.")
	b.report.add("lacuna up → ready", "ms", up, nil, "A provider in a new home, from the start of the command until the local API says that it serves.")
	return nil
}

// untilReady starts a provider in a new home and stops it when it is ready.
func (b *bench) untilReady(ctx context.Context, dir string) (took time.Duration, err error) {
	h, err := home.At(dir)
	if err != nil {
		return 0, err
	}
	gpus := filepath.Join(dir, "gpus.json")
	values := map[string]string{"network.name": "test-bench", "network.listen": "/ip4/127.0.0.1/tcp/0, /ip4/127.0.0.1/udp/0/quic-v1"}
	if err := errors.Join(h.Create(), config.Write(h.ConfigFile(), values), os.WriteFile(gpus, []byte(simulated), 0o600)); err != nil {
		return 0, err
	}
	client := api.NewClient(h.Socket())
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, jobWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, "up", "--home", dir, "--provide", "--simulate-gpus", gpus)
	var said tail
	cmd.Stderr = &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for err = client.Ready(ctx); err != nil && ctx.Err() == nil; err = client.Ready(ctx) {
		if serr := sleep(ctx, time.Millisecond); serr != nil {
			err = serr
			break
		}
	}
	took = time.Since(began)
	if err == nil {
		err = client.Down(ctx, false)
	}
	if err != nil {
		return took, errors.Join(fmt.Errorf("start and stop lacuna up: %w\n%s", err, said), cmd.Process.Kill(), cmd.Wait())
	}
	_ = cmd.Wait() // how it takes being stopped as soon as it serves is not what is measured
	return took, nil
}
