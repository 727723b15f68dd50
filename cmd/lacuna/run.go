package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// stopTimeout bounds how long an interrupted run waits for its job to end in writing.
const stopTimeout = 30 * time.Second

func (c *cli) runCommand() *cobra.Command {
	var flags specFlags
	var detach, yes bool
	cmd := &cobra.Command{
		Use:   "run [flags] FILE.wasm [ARGS…]",
		Short: "Run a WebAssembly module on the network",
		Long: `Post a job to the network and run it at the provider with the lowest expected
cost: price, weighed by how reliably that provider ended work before. Shows the
offers, who declined and why, and the award; streams the job's output; brings its
files back; exits with the job's own exit code.

The module runs in a sandbox without network: it sees its arguments, its
environment, its inputs (-v, read-only) and the folders named by --out and
--checkpoint. Inputs and outputs go to the chosen provider alone. What it prints
comes to the terminal as it is, control characters too; pipe what you do not trust.

What it can cost is bounded three ways: --price per device and hour, --budget in
all, --duration in time. Each receipt is checked before it is paid.

Without a running daemon, a light peer is started for the job's time; a detached
job (-d) needs the daemon.

Ctrl-C stops the job, pays what it used and exits with 130; twice leaves at once.

On a terminal, a job that can cost more than rent.confirm_above is asked about first;
-y never asks, and neither does a script.

Exit codes: the job's own when it ran to its end. Else 203 no acceptable offer,
204 stopped (limit, deadline, provider), 202 wrong usage, 206 no daemon (with -d),
201 failed, or outputs that cannot be written here, 130 interrupted.`,
		Example: `  # on one CPU slot, the smallest there is
  lacuna run hello.wasm

  # a folder in, a folder out, an argument and a variable
  lacuna run -v ./data:/data --out /out:./results -e EPOCHS=3 train.wasm --fast

  # one GPU with at least 16 GiB in the EU, at most 0.60 USD an hour and 5 USD in all
  lacuna run --gpus 1 --vram 16GiB --region eu --price "0.60 USD/h" --budget "5 USD" train.wasm

  # one of these models, two hours, saved each minute so that it survives its provider
  lacuna run --gpu "RTX 4090,A100" --duration 2h --checkpoint /ckpt,every=1m train.wasm

  # in the background: the id is printed, the rest is ps, logs, wait, fetch
  id=$(lacuna run -d --name digits train.wasm); lacuna logs -f digits; lacuna wait digits

  # for scripts: the job's output goes to stderr, stdout is one JSON document
  lacuna run -q -o json hello.wasm | jq .cost_microusd`,
		Args:        someArgs("a .wasm file and its arguments"),
		Annotations: map[string]string{forJob: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := flags.spec(args, c.getenv)
			if err != nil {
				return err
			}
			return c.run(cmd.Context(), spec, flags, detach, yes)
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false) // what follows the file is the job's
	fs.SortFlags = false
	fs.BoolVarP(&detach, "detach", "d", false, "print the job's id and return")
	fs.BoolVarP(&yes, "yes", "y", false, "never ask, whatever the job can cost")
	flags.register(fs)
	return c.truncFlag(cmd)
}

// run posts the job and stays with it until it ends. Without a daemon it starts a light peer for that time.
func (c *cli) run(ctx context.Context, spec market.Spec, flags specFlags, detach, yes bool) error {
	spec, rent, err := c.withRent(spec)
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, spec, rent.ConfirmAbove, yes); err != nil {
		return err
	}
	post := func(d *api.Client) error {
		if err := c.namePeers(ctx, d, &spec, flags); err != nil {
			return err
		}
		j, err := d.Submit(ctx, spec, false)
		if err != nil {
			return err
		}
		if detach {
			return c.print(j, func(t *table) { t.text(j.ID) })
		}
		return c.follow(ctx, d, j)
	}
	d, err := c.dial()
	switch {
	case err == nil:
		return post(d)
	case detach || !notRunning(err):
		return err
	}
	return c.withNode(ctx, light(), c.logger(slog.LevelWarn), func(d *api.Client, _ <-chan struct{}) error { return post(d) })
}

// namePeers puts the peers that the flags name into the spec. What this command prints of a peer names it too.
func (c *cli) namePeers(ctx context.Context, d *api.Client, s *market.Spec, f specFlags) error {
	for _, list := range []struct {
		flag  string
		names []string
		to    *[]attest.Key
	}{{"--provider", f.providers, &s.Providers}, {"--exclude", f.exclude, &s.Exclude}} {
		for _, name := range list.names {
			k, err := c.findPeer(ctx, d, name)
			if err != nil {
				return usageError("whole peer ids: lacuna asks --no-trunc", "%s: %w", list.flag, err)
			}
			*list.to = append(*list.to, k)
		}
	}
	return nil
}

// light returns the settings of a peer that rents for the time of one job.
func light() map[string]string {
	return map[string]string{"provide.enabled": "false", "network.profile": "light", "network.listen": "/ip4/0.0.0.0/tcp/0,/ip4/0.0.0.0/udp/0/quic-v1"}
}

// confirm asks before a job that can cost more than rent.confirm_above, where somebody is there to answer.
func (c *cli) confirm(ctx context.Context, s market.Spec, limit market.MicroUSD, yes bool) error {
	if yes || !c.inTTY || !c.errTTY {
		return nil
	}
	worst := s.WorstCase(s.MaxPrice)
	if worst <= limit {
		return nil
	}
	fmt.Fprintf(c.stderr, "This job can cost up to %s (%d × %s for %s, at most %s in all). Go on? [y/N] ",
		worst, s.Count(), s.MaxPrice.PerHour(), strictyaml.FormatDuration(s.Duration), s.Budget)
	answer, err := readLine(ctx, c)
	if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return usageError("-y never asks; rent.confirm_above in the config sets from which amount on", "not confirmed, nothing was posted")
	}
	return nil
}

// readLine reads a line of stdin, or returns when ctx ends; then the process is about to end too.
func readLine(ctx context.Context, c *cli) (string, error) {
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.stdin).ReadString('\n')
		lines <- line
	}()
	select {
	case line := <-lines:
		return line, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// follow shows the course of a job and its output until it ends. When ctx ends, it stops the job and waits for its
// end, so that both sides sign the same outcome.
func (c *cli) follow(ctx context.Context, d *api.Client, j renter.Job) error {
	s := &screen{stdout: c.stdout, stderr: c.stderr, live: c.errTTY, quiet: c.quiet, paint: c.paint}
	if !c.human() {
		s.stdout = c.stderr // stdout is one document
	}
	t := newCourse(c, s)
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- d.Events(on, j.ID, 0, true, t.event) }()
	go func() {
		ended <- d.Log(on, j.ID, 0, true, func(k joblog.Chunk) error { return s.write(k.Stream, k.Data) })
	}()
	interrupt := ctx.Done()
	for open := 2; open > 0; {
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("follow job %s, which goes on: %w", j.ID, err)
			}
			open--
		case <-interrupt:
			interrupt = nil
			s.line("stopping the job; press Ctrl-C again to leave it")
			timer := time.AfterFunc(stopTimeout, cancel)
			defer timer.Stop()
			if _, err := d.Stop(on, j.ID); err != nil {
				s.line("stop the job: %s", err)
			}
		}
	}
	s.status("")
	j, err := d.Wait(on, j.ID)
	if err != nil {
		return err
	}
	s.line("%s", c.summary(j))
	if !c.human() {
		if err := c.print(j, nil); err != nil {
			return err
		}
	}
	if interrupt == nil && c.interrupted.Load() {
		return context.Canceled
	}
	t.lookAround(on, d, j)
	return t.end(j)
}
