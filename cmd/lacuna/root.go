package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// forJob marks commands whose exit code is a job's.
const forJob = "for-job"

// The groups of the help.
const (
	groupStart = "start"
	groupRent  = "rent"
	groupSell  = "sell"
	groupTrust = "trust"
	groupNode  = "node"
)

// root returns the whole command line.
func (c *cli) root() *cobra.Command {
	cobra.EnableCommandSorting = false // the help tells a story
	root := &cobra.Command{
		Use:   "lacuna",
		Short: "Sell idle GPUs and rent them, peer to peer",
		Long: `Lacuna sells the gaps of idle GPUs in a reverse auction between peers, runs the
job in a sandbox, and gives both sides signed receipts of what was used.

  lacuna up -d                        start this machine's peer
  lacuna run ./hello.wasm             rent: run a WebAssembly module on the network
  lacuna up --provide                 sell: put this machine's devices on offer
  lacuna receipts verify FILE         check what was paid for, offline

Results go to stdout, progress and logs to stderr. Every flag has a twin in the
environment: --log-level is LACUNA_LOG_LEVEL.`,
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: c.prepare,
		Args:              noArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("see: "+cmd.CommandPath()+" --help", "%w", err)
	})
	f := root.PersistentFlags()
	f.StringVar(&c.home, "home", "", "`folder` of the identity, the config and the records (default per system)")
	f.StringVarP(&c.format, "output", "o", "table", "`format` of results: "+strings.Join(formats, ", "))
	f.StringVar(&c.logLevel, "log-level", "", "debug, info, warn or error (default info for a daemon, else warn)")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.BoolVar(&c.noColor, "no-color", false, "no colours; the variable NO_COLOR does the same")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "results and errors only")
	root.AddGroup(
		&cobra.Group{ID: groupStart, Title: "Start:"},
		&cobra.Group{ID: groupRent, Title: "Rent:"},
		&cobra.Group{ID: groupSell, Title: "Sell:"},
		&cobra.Group{ID: groupTrust, Title: "Check:"},
		&cobra.Group{ID: groupNode, Title: "This peer:"},
	)
	for _, g := range c.commands() {
		for _, cmd := range g.commands {
			cmd.GroupID = g.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID(groupNode)
	root.SetVersionTemplate("lacuna {{.Version}}\n")
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || found == nil || len(rest) > 0 {
					return usageError("see: lacuna help", "there is no command %q", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
	root.SetCompletionCommandGroupID(groupNode)
	return root
}

type commandGroup struct {
	id       string
	commands []*cobra.Command
}

// commands returns every command; a new one is added here.
func (c *cli) commands() []commandGroup {
	return []commandGroup{
		{groupStart, []*cobra.Command{c.demoCommand(), c.upCommand(), c.downCommand(), c.statusCommand(), c.doctorCommand(), c.joinCommand(), c.inviteCommand()}},
		{groupRent, []*cobra.Command{c.asksCommand(), c.runCommand(), c.submitCommand(), c.psCommand(), c.logsCommand(),
			c.waitCommand(), c.stopCommand(), c.fetchCommand(), c.inspectCommand()}},
		{groupSell, []*cobra.Command{c.gpuCommand(), c.leasesCommand()}},
		{groupTrust, []*cobra.Command{c.receiptsCommand(), c.reputationCommand()}},
		{groupNode, []*cobra.Command{c.identityCommand(), c.configCommand(), c.testnetCommand(), c.versionCommand()}},
	}
}

// execute runs the command line and returns the exit code.
func (c *cli) execute(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var e *exitError
	if err != nil && !c.started && !errors.As(err, &e) {
		err = usageError("see: "+cmd.CommandPath()+" --help", "%w", err) // an unknown command or a wrong number of arguments
	}
	return c.report(err, cmd != nil && cmd.Annotations[forJob] != "")
}

// prepare takes flags from the environment and checks the global ones.
func (c *cli) prepare(cmd *cobra.Command, _ []string) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "LACUNA_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, ok := c.getenv(name); ok && v != "" && !f.Changed && f.Name != "help" {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", name, v, err))
			}
		}
	})
	if v, ok := c.getenv("NO_COLOR"); ok && v != "" {
		c.noColor = true
	}
	var level slog.Level
	if c.logLevel != "" && level.UnmarshalText([]byte(c.logLevel)) != nil {
		errs = append(errs, fmt.Errorf("--log-level %q: want debug, info, warn or error", c.logLevel))
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format %q: want text or json", c.logFormat))
	}
	if !slices.Contains(formats, c.format) {
		errs = append(errs, fmt.Errorf("--output %q: want %s", c.format, strings.Join(formats, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		return usageError("see: lacuna help", "%w", err)
	}
	c.started = true
	return nil
}

// noArgs refuses arguments, and names the command that was perhaps meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see: " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2 // letters that may differ
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean: " + cmd.CommandPath() + " " + near[0]
	}
	if cmd.HasSubCommands() {
		return usageError(hint, "unknown command %q for %q", args[0], cmd.CommandPath())
	}
	return usageError(hint, "%s takes no arguments, got %q", cmd.CommandPath(), args[0])
}

// group returns a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(commands...)
	return cmd
}

// truncFlag adds --no-trunc to a command that prints ids.
func (c *cli) truncFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&c.noTrunc, "no-trunc", false, "whole peer ids and digests")
	return cmd
}
