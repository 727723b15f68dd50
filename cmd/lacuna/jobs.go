package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

func (c *cli) psCommand() *cobra.Command {
	var all bool
	cmd := c.truncFlag(&cobra.Command{
		Use: "ps", Short: "List this peer's jobs", Args: noArgs,
		Long: "List the jobs that are under way; with --all, those that ended as well.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			jobs, err := d.Jobs(cmd.Context())
			if err != nil {
				return err
			}
			shown := []renter.Job{}
			for _, j := range jobs {
				if all || !j.State.Final() {
					shown = append(shown, j)
				}
			}
			if c.quiet {
				for _, j := range shown {
					fmt.Fprintln(c.stdout, j.ID)
				}
				return nil
			}
			return c.printJobs(shown)
		},
	})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also jobs that ended")
	return cmd
}

func (c *cli) printJobs(jobs []renter.Job) error {
	return c.print(jobs, func(t *table) {
		t.head = []string{"JOB", "NAME", "STATE", "PROVIDER", "PRICE", "RECEIPTS", "COST", "AGE"}
		for _, j := range jobs {
			provider := ""
			if j.Provider != nil {
				provider = c.peer(*j.Provider)
			}
			t.row(j.ID, j.Name, jobState(j), provider, price(j.Price), fmt.Sprint(j.Receipts), j.Cost.String(), c.age(j.CreatedAt))
		}
	})
}

// jobState returns the state with what belongs to it: "failed (1)", "stopped (budget limit)".
func jobState(j renter.Job) string {
	text := words(string(j.State))
	switch {
	case j.State == renter.JobFailed && j.ExitCode != nil:
		text += fmt.Sprintf(" (%d)", *j.ExitCode)
	case j.Reason != "" && j.Reason != string(j.State):
		text += " (" + words(j.Reason) + ")"
	}
	return text
}

func (c *cli) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs JOB", Short: "Show what a job printed", Args: exactArgs(1, "a job, by name or id"),
		Long:              "Show what a job printed: its stdout on stdout, its stderr on stderr. A job is named by its name, its id or the beginning of its id.",
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			return d.Log(cmd.Context(), args[0], 0, follow, func(k joblog.Chunk) error {
				if !c.human() {
					return c.encode(k, "") // one document per piece, as it comes
				}
				w := c.stdout
				if k.Stream == 2 {
					w = c.stderr
				}
				_, err := w.Write(k.Data)
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job ends")
	return cmd
}

func (c *cli) waitCommand() *cobra.Command {
	return &cobra.Command{
		Use: "wait JOB", Short: "Wait until a job ends, and exit as it did", Args: exactArgs(1, "a job, by name or id"),
		Long: `Wait until a job ends, print its exit code, and exit with it. If it did not run to
its end, the exit code is 203 (no acceptable offer), 204 (stopped) or 201 (failed).
It is 201 as well where its outputs could not be written.`,
		Annotations:       map[string]string{forJob: "yes"},
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			j, err := d.Wait(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			err = c.print(j, func(t *table) {
				if j.ExitCode != nil {
					t.row(fmt.Sprint(*j.ExitCode))
				}
			})
			if err != nil {
				return err
			}
			t := newCourse(c, &screen{stdout: c.stdout, stderr: c.stderr, quiet: true, paint: c.paint})
			if j.State == renter.JobNoOffer { // the reasons are in its events
				if err := d.Events(cmd.Context(), j.ID, 0, false, t.event); err != nil {
					return err
				}
			}
			t.lookAround(cmd.Context(), d, j)
			return t.end(j)
		},
	}
}

func (c *cli) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop JOB…", Short: "Stop jobs; what they used until then is paid",
		Args: someArgs("jobs, by name or id"), ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			jobs := []renter.Job{}
			for _, ref := range args {
				j, err := d.Stop(cmd.Context(), ref)
				if err != nil {
					return err
				}
				jobs = append(jobs, j)
			}
			return c.print(jobs, func(t *table) {
				for _, j := range jobs {
					t.row(j.ID)
				}
			})
		},
	}
}

func (c *cli) fetchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "fetch JOB [FOLDER]", Short: "Write a job's outputs again",
		Long:              "Write the outputs of a job to the places the job named, or below FOLDER. Prints the files.",
		Args:              rangeArgs(1, 2, "a job and perhaps a folder"),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			to := ""
			if len(args) > 1 {
				if to, err = absolute(args[1]); err != nil {
					return err
				}
			}
			files, err := d.Fetch(cmd.Context(), args[0], to)
			if err != nil {
				return err
			}
			v := struct {
				Files []string `json:"files"`
			}{append([]string{}, files...)}
			return c.print(v, func(t *table) {
				for _, f := range files {
					t.row(f)
				}
			})
		},
	}
}

func (c *cli) inspectCommand() *cobra.Command {
	var auction bool
	cmd := c.truncFlag(&cobra.Command{
		Use: "inspect JOB", Short: "Show all about a job, or why its provider was chosen",
		Long: `Show all that is known of a job. With --auction, show each of its auctions: the
offers in rank order with price, success rate and score, who declined and why, the
award, and whether computing it again from the signed offers gives the same.`,
		Args: exactArgs(1, "a job, by name or id"), ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			if auction {
				views, err := d.Auctions(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return c.printAuctions(views)
			}
			j, err := d.Job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(j, func(t *table) { c.jobFields(t, j) })
		},
	})
	cmd.Flags().BoolVar(&auction, "auction", false, "explain the award and compute it again")
	return cmd
}

func (c *cli) jobFields(t *table, j renter.Job) {
	t.field("job", j.ID)
	t.field("name", note(j.Name, "-"))
	t.field("state", jobState(j)+simulated(j.Simulated))
	if j.Detail != "" {
		t.field("because", j.Detail)
	}
	t.field("module", strings.Join(append([]string{j.Spec.Module}, j.Spec.Args...), " "))
	t.field("wants", wants(j.Spec))
	t.field("limits", fmt.Sprintf("%s, %s in all, %s, %s", j.Spec.MaxPrice.PerHour(), j.Spec.Budget, strictyaml.FormatDuration(j.Spec.Duration), j.Spec.Tier))
	if j.Provider != nil {
		t.field("provider", c.peer(*j.Provider)+" at "+j.Price.PerHour())
	}
	for _, l := range j.Leases {
		t.field("lease", c.digest(l))
	}
	t.field("receipts", fmt.Sprintf("%d, ran %s, cost %s, vouched %s", j.Receipts, millis(j.RanMS), j.Cost, j.Vouched))
	for _, f := range []struct {
		name string
		ms   *uint64
	}{{"auction", j.AuctionMS}, {"until running", j.ToRunMS}, {"until output", j.ToOutMS}} {
		if f.ms != nil {
			t.field(f.name, millis(*f.ms))
		} else {
			t.field(f.name, unknown)
		}
	}
	if j.Checkpoint != nil {
		t.field("checkpoint", fmt.Sprintf("%d, %s ago, %s", j.Checkpoint.Seq, c.age(j.Checkpoint.At), count(len(j.Checkpoint.Files), "file")))
	}
	if j.OutputsDigest != nil {
		t.field("outputs", fmt.Sprintf("%s, %s", count(len(j.Outputs), "file"), c.digest(*j.OutputsDigest)))
	}
	t.field("created", c.age(j.CreatedAt)+" ago")
}

// wants says what devices a job takes.
func wants(s market.Spec) string {
	if s.GPUs == 0 {
		return count(s.CPUs, "CPU slot") + ", memory " + market.FormatBytes(s.MemBytes)
	}
	text := count(s.GPUs, "GPU")
	if len(s.Models) > 0 {
		text += " (" + strings.Join(s.Models, " or ") + ")"
	}
	if s.VRAMBytes > 0 {
		text += " of " + market.FormatBytes(s.VRAMBytes)
	}
	return text + ", memory " + market.FormatBytes(s.MemBytes)
}

// completeJobs completes the names and ids of jobs, where a daemon runs.
func (c *cli) completeJobs(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	d, err := c.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	jobs, err := d.Jobs(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, j := range jobs {
		if name := jobName(j); strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
