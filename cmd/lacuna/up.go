package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
)

const (
	// upTimeout bounds how long up -d waits for the peer to be ready.
	upTimeout = time.Minute
	// downTimeout bounds how long down waits for a peer that does not drain.
	downTimeout = time.Minute
	// poll is the time between two looks at a daemon that starts or ends.
	poll = 50 * time.Millisecond
)

// upFlags are the flags of up; each is a key of the config for this run.
type upFlags struct {
	detach, provide, private bool
	simulate, network, place string
	listen                   []string
}

func (c *cli) upCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use: "up", Short: "Start this machine's peer", Args: noArgs,
		Long: `Start this machine's peer in the foreground, or with -d in the background. The first
start makes the identity and a commented config file in the home.

Without --provide it rents, and sells nothing.

Simulated GPUs are described in JSON, a list of objects. Only model is needed; load and
idle are what the sensors show while it works and rests:

  [{"model": "RTX 4090", "count": 2, "price": "0.21 USD/h", "place": "eu/de/berlin",
    "load": [{"for": "10s", "util": 9500, "power_mw": 330000, "temp_c": 66}],
    "idle": {"util": 0, "power_mw": 21000, "temp_c": 38}}]`,
		Example: `  lacuna up -d                              rent from this machine
  lacuna up --provide --place eu/de         sell its devices
  lacuna up -d --network our-lab --private  start a private network; invite others with lacuna invite
  lacuna up --network test --provide --simulate-gpus gpus.json
                                            try it out with devices that do not exist`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			overrides, err := f.overrides(cmd.Flags())
			if err != nil {
				return err
			}
			if err := c.firstConfig(overrides["network.name"]); err != nil {
				return err
			}
			if f.private {
				if err := c.makePrivate(); err != nil {
					return err
				}
			}
			if f.detach {
				return c.upDetached(cmd, overrides)
			}
			return c.up(cmd.Context(), overrides)
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&f.detach, "detach", "d", false, "start it in the background and return when it is ready")
	fs.BoolVar(&f.provide, "provide", false, "sell this machine's devices")
	fs.StringVar(&f.simulate, "simulate-gpus", "", "sell the devices described in this `file`; test networks only")
	fs.StringVar(&f.network, "network", "", "`name` of the network to join; one that begins with test is a test network")
	fs.StringSliceVar(&f.listen, "listen", nil, "`address` to listen on, such as /ip4/0.0.0.0/tcp/4711, or auto; repeatable")
	fs.BoolVar(&f.private, "private", false, "give the network a key, without which nobody gets in; invites carry it; it costs QUIC")
	fs.StringVar(&f.place, "place", "", "where this machine stands, such as eu/de/berlin")
	return cmd
}

// overrides returns what the flags that were given set in the config.
func (f *upFlags) overrides(fs *pflag.FlagSet) (map[string]string, error) {
	o := map[string]string{}
	if fs.Changed("provide") {
		o["provide.enabled"] = fmt.Sprint(f.provide)
	}
	if f.simulate != "" {
		path, err := filepath.Abs(f.simulate)
		if err != nil {
			return nil, err
		}
		if !exists(path) {
			return nil, usageError("", "--simulate-gpus: %s: no such file", f.simulate)
		}
		o["provide.simulate_gpus"] = path
	}
	for key, v := range map[string]string{"network.name": f.network, "network.listen": strings.Join(f.listen, ","), "provide.place": f.place} {
		if v != "" {
			o[key] = v
		}
	}
	return o, nil
}

// firstConfig writes the config of a new home. The network it is made for stays in it, as the records in a home belong
// to one network.
func (c *cli) firstConfig(network string) error {
	h, err := c.homeDir()
	if err != nil || network == "" || exists(h.ConfigFile()) {
		return err
	}
	if _, err := c.config(map[string]string{"network.name": network}); err != nil {
		return err
	}
	if err := h.Create(); err != nil {
		return err
	}
	return config.Write(h.ConfigFile(), map[string]string{"network.name": network})
}

// makePrivate makes the key of the home's network, unless it has one.
func (c *cli) makePrivate() error {
	h, err := c.homeDir()
	if err != nil {
		return err
	}
	cfg, err := c.config(nil)
	if err != nil || cfg.Network.KeyFile != "" {
		return err
	}
	if err := h.Create(); err != nil {
		return err
	}
	if _, err := h.MakeNetworkKey(home.DefaultNetworkKey); err != nil && !errors.Is(err, home.ErrNetworkKeyExists) {
		return err
	}
	err = config.Set(h.ConfigFile(), map[string]string{"network.key_file": home.DefaultNetworkKey})
	if errors.Is(err, config.ErrByHand) {
		return byHand(err, h.ConfigFile())
	}
	return err
}

// up runs the peer until ctx ends.
func (c *cli) up(ctx context.Context, overrides map[string]string) error {
	return c.withNode(ctx, overrides, c.logger(slog.LevelInfo), func(d *api.Client, gone <-chan struct{}) error {
		st, err := d.Status(ctx)
		select {
		case <-gone: // stopped before it could be asked
			return nil
		default:
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stderr, "peer      %s\nnetwork   %s, %s\n", st.Peer, st.Network, st.Role)
		for _, a := range st.Addrs {
			fmt.Fprintf(c.stderr, "address   %s\n", a)
		}
		if len(st.Peers) == 0 {
			c.alone(ctx, d)
		}
		select {
		case <-ctx.Done(): // a signal, which is how a foreground peer is stopped
		case <-gone:
		}
		return nil
	})
}

// alone says what to do on a network of one.
func (c *cli) alone(ctx context.Context, d *api.Client) {
	fmt.Fprintln(c.stderr, "no peers  join a network with: lacuna join INVITE")
	invite, err := d.Invite(ctx)
	switch {
	case err != nil: // it has no address that others can use
	case secretOf(invite) != "": // what is printed here may go into a log
		fmt.Fprintln(c.stderr, "          or let another peer join this one by the line that lacuna invite prints")
	default:
		fmt.Fprintf(c.stderr, "          or let another peer join this one: lacuna join %s\n", invite)
	}
}

// upDetached starts this command again in a session of its own, without -d, and waits until it is ready.
func (c *cli) upDetached(cmd *cobra.Command, overrides map[string]string) error {
	if _, err := c.config(overrides); err != nil {
		return err
	}
	if d, err := c.connect(); err == nil {
		if st, err := d.Status(cmd.Context()); err == nil {
			return &exitError{exit: exitFailed, code: "running", err: fmt.Errorf("start a peer: one runs in this home already (pid %d)", st.PID), hint: "stop it with: lacuna down"}
		}
	}
	h, err := c.homeDir()
	if err != nil {
		return err
	}
	if err := h.Create(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	logPath := h.LogFile()
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	start, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	child := exec.Command(self, childArgs(cmd)...)
	child.Env = append(os.Environ(), "LACUNA_DETACH=false", home.EnvVar+"="+h.Dir())
	child.Stdout, child.Stderr, child.SysProcAttr = log, log, detached()
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the peer: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	ctx, cancel := context.WithTimeout(cmd.Context(), upTimeout)
	defer cancel()
	for {
		select {
		case <-ended:
			what, hint := lastError(logPath, start)
			if hint == "" {
				hint = "the whole log: " + logPath
			}
			return &exitError{exit: exitFailed, code: "failed", err: fmt.Errorf("start the peer: %s", what), hint: hint}
		case <-ctx.Done():
			_ = child.Process.Signal(os.Interrupt)
			if c.interrupted.Load() {
				return context.Canceled
			}
			return &exitError{exit: exitFailed, code: "failed", err: fmt.Errorf("start the peer: not ready after %s", upTimeout), hint: "the whole log: " + logPath}
		case <-time.After(poll):
		}
		d, err := c.connect()
		if err != nil {
			continue
		}
		if st, err := d.Status(ctx); err == nil && st.PID == child.Process.Pid && d.Ready(ctx) == nil {
			return c.print(st, func(t *table) { t.text(st.Peer.String()) })
		}
	}
}

// childArgs returns the arguments of up as they were given, without -d.
func childArgs(cmd *cobra.Command) []string {
	args := []string{"up"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "detach" || f.Name == "home" {
			return
		}
		if l, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range l.GetSlice() {
				args = append(args, "--"+f.Name+"="+v)
			}
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	return args
}

// lastError returns the last error in a log from an offset on with its hint, or its last line; the hint may be "".
func lastError(path string, from int64) (what, hint string) {
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) <= from {
		return "it ended without a word", ""
	}
	text := append([]byte("\n"), bytes.TrimSpace(data[from:])...)
	for _, mark := range []string{"\nfatal error: ", "\npanic: "} { // a crash is followed by its stack
		if _, after, ok := bytes.Cut(text, []byte(mark)); ok {
			line, _, _ := bytes.Cut(after, []byte("\n"))
			return "it crashed: " + string(line), ""
		}
	}
	if i := bytes.LastIndex(text, []byte("\nerror: ")); i >= 0 {
		what, hint, _ := bytes.Cut(text[i+len("\nerror: "):], []byte("\nhint:"))
		return string(what), string(bytes.TrimSpace(hint))
	}
	return string(text[bytes.LastIndexByte(text, '\n')+1:]), ""
}

func (c *cli) downCommand() *cobra.Command {
	var drain bool
	cmd := &cobra.Command{
		Use: "down", Short: "Stop this machine's peer", Args: noArgs,
		Long: "Stop this machine's peer and wait until it has ended. With --drain it takes nothing new and lets running leases end first, for up to a day; jobs that this peer rents for go on at their providers, and are taken up again at the next start.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			d, err := c.dial()
			if err != nil {
				return err
			}
			if err := d.Down(ctx, drain); err != nil {
				return err
			}
			if !drain {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, downTimeout)
				defer cancel()
			}
			return c.awaitEnd(ctx)
		},
	}
	cmd.Flags().BoolVar(&drain, "drain", false, "let running leases end first")
	return cmd
}

// awaitEnd returns when no peer holds the home any more. That comes a moment after its API is gone: the store closes
// last, and whoever starts or removes the home before would be in its way.
func (c *cli) awaitEnd(ctx context.Context) error {
	h, err := c.homeDir()
	if err != nil {
		return err
	}
	for {
		lock, err := h.Lock()
		if err == nil {
			return lock.Close()
		}
		var used *home.InUseError
		if !errors.As(err, &used) {
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if c.interrupted.Load() {
				return context.Canceled
			}
			return fmt.Errorf("stop the peer: it still runs after %s (pid %d)", downTimeout, used.PID)
		}
	}
}
