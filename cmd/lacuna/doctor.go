package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/doctor"
)

func (c *cli) doctorCommand() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find out what keeps this peer from working, and what helps", Args: noArgs,
		Long: `Look at the home, the machine and the network, and say of each thing what was seen,
why it is so, and what to do next. It works with and without a running peer; what
others see of a peer is known only while it runs.

It changes nothing. With --fix it mends what does no harm: it makes the home, and takes
away what other users may do with it and with the keys; while no peer runs, it opens the
records, which repairs what a crash left half written. The exit code is 1 if something
is at fault.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := c.homeDir()
			if err != nil {
				return err
			}
			cfg, cfgErr := config.Load(h.Dir(), c.env, nil)
			o := doctor.Options{Home: h, Config: cfg, ConfigErr: cfgErr, Env: c.env}
			if d, err := c.connect(); err == nil {
				defer d.Close()
				o.Client = d
			}
			findings := doctor.Run(cmd.Context(), o, fix)
			if err := c.printFindings(findings); err != nil {
				return err
			}
			if doctor.Worst(findings) == doctor.Fault {
				return found{}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what can be mended without harm")
	return cmd
}

// found ends doctor when something is at fault; all about it was printed.
type found struct{}

func (found) Error() string { return "something is at fault" }

func (c *cli) printFindings(findings []doctor.Finding) error {
	if !c.human() {
		return c.print(findings, nil)
	}
	var b strings.Builder
	counts := map[doctor.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		fmt.Fprintf(&b, "%s  %-12s %s\n", c.mark(f.Severity), f.Check, f.Evidence)
		for _, more := range []struct {
			name string
			text *string
		}{{"why", f.Cause}, {"next", f.Next}, {"done", f.Fixed}} {
			if more.text != nil {
				fmt.Fprintf(&b, "       %12s %s\n", more.name, strings.ReplaceAll(*more.text, "\n", "\n"+strings.Repeat(" ", 20)))
			}
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %s, %s\n", counts[doctor.OK], count(counts[doctor.Note], "note"), count(counts[doctor.Warn], "warning"), count(counts[doctor.Fault], "fault"))
	_, err := c.stdout.Write([]byte(b.String()))
	return err
}

// mark returns a severity five characters wide, coloured on a terminal.
func (c *cli) mark(s doctor.Severity) string {
	text := fmt.Sprintf("%-5s", s)
	colour := map[doctor.Severity]string{doctor.OK: green, doctor.Note: dim, doctor.Warn: yellow, doctor.Fault: red}[s]
	if c.noColor || !c.outTTY {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
