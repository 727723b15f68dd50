package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/jobfile"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

func (c *cli) submitCommand() *cobra.Command {
	var file string
	var dryRun, yes bool
	cmd := c.truncFlag(&cobra.Command{
		Use: "submit -f FILE|-", Short: "Post a job from a job file and return", Args: noArgs,
		Long: `Post a job from a job file (YAML or JSON) and print its id; ps, logs, wait and fetch
are the rest. Paths in the file are relative to its folder, or to this one for stdin and pipes.

With --dry-run, hold the auction but award nothing: who would take the job, at which
price, and why others would not. Exit code 3 if nobody would.`,
		Example: `  lacuna submit -f digits.yaml
  lacuna submit -f digits.yaml --dry-run

  # digits.yaml
  name: digits
  wasm: train.wasm
  inputs: [{from: ./data, to: /data}]
  outputs: [{from: /out, to: ./results}]
  resources: {gpus: 1, vram: 16GiB}
  limits: {price: 0.60 USD/h, budget: 5 USD, duration: 2h}`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError("see: lacuna submit --help", "name the job file: -f FILE, or -f - for stdin")
			}
			spec, err := c.readJob(cmd.Context(), file)
			if err != nil {
				return err
			}
			spec, rent, err := c.withRent(spec)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			d, err := c.dial()
			if err != nil {
				return err
			}
			if !dryRun {
				if err := c.confirm(ctx, spec, rent.ConfirmAbove, yes); err != nil {
					return err
				}
			}
			j, err := d.Submit(ctx, spec, dryRun)
			if err != nil {
				return err
			}
			if !dryRun {
				return c.print(j, func(t *table) { t.text(j.ID) })
			}
			t := newCourse(c, &screen{stdout: c.stdout, stderr: c.stderr, quiet: true, paint: c.paint})
			if err := d.Events(ctx, j.ID, 0, true, t.event); err != nil {
				return err
			}
			if j, err = d.Wait(ctx, j.ID); err != nil {
				return err
			}
			auctions, err := d.Auctions(ctx, j.ID)
			if err != nil {
				return err
			}
			if err := c.printAuctions(auctions); err != nil {
				return err
			}
			t.lookAround(ctx, d, j)
			return t.end(j)
		},
	})
	fs := cmd.Flags()
	fs.StringVarP(&file, "file", "f", "", "job `file`; - is stdin")
	fs.BoolVar(&dryRun, "dry-run", false, "hold the auction, but award nothing")
	fs.BoolVarP(&yes, "yes", "y", false, "never ask, whatever the job can cost")
	return cmd
}

// readJob reads a job file; paths in it become absolute, as the daemon has another folder.
func (c *cli) readJob(ctx context.Context, name string) (market.Spec, error) {
	data, err := c.readFile(ctx, name, strictyaml.MaxBytes, "")
	if err != nil {
		return market.Spec{}, err
	}
	shown, dir := name, filepath.Dir(name)
	if name == "-" {
		shown, dir = "stdin", "."
	} else if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		dir = "." // a pipe, which lies nowhere near what it names
	}
	spec, err := jobfile.Parse(data, shown)
	if err != nil {
		return spec, usageError("the fields of a job file: lacuna submit --help", "%w", err)
	}
	if dir, err = absolute(dir); err != nil {
		return spec, err
	}
	spec = jobfile.Resolve(spec, dir)
	for _, p := range append([]market.Transfer{{From: spec.Module}}, spec.Inputs...) {
		if _, err := os.Stat(p.From); err != nil {
			return spec, usageError("", "%s: %s: no such file or folder", shown, p.From)
		}
	}
	return spec, nil
}

// withRent fills what a job leaves open from the owner's config, then from the defaults, and checks the whole.
func (c *cli) withRent(s market.Spec) (market.Spec, config.Rent, error) {
	cfg, err := c.config(nil)
	if err != nil {
		return s, config.Rent{}, err
	}
	r := cfg.Rent
	if s.Survive == 0 {
		s.Survive = max(r.Survive, s.Interval) // whoever asks for rare receipts does not ask to be cut off sooner
	}
	s = jobfile.Defaults{MaxPrice: r.MaxPrice, Budget: r.Budget, Survive: r.Survive, Interval: r.Interval, Exclude: r.Exclude}.Apply(s).WithDefaults()
	if err := s.Validate(); err != nil {
		return s, r, usageError("", "%w", err)
	}
	return s, r, nil
}
