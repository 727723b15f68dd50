//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is what a run has found.
type report struct {
	Verdicts []verdict `json:"verdicts"`
	Cells    []cell    `json:"cells"`
	Scenes   []scene   `json:"scenes"`
}

// verdict is how a peer says that it is reached.
type verdict struct {
	Peer    string   `json:"peer"`
	Place   string   `json:"place"`
	Verdict string   `json:"verdict"`
	AfterMS int64    `json:"after_ms"` // from its start
	Later   string   `json:"later"`    // at the end of the table, as the rest
	UDP     string   `json:"udp"`
	TCP     string   `json:"tcp"`
	Relays  int      `json:"relays"`
	Faults  []string `json:"faults"`
}

// cell is one job.
type cell struct {
	Provider string   `json:"provider"` // kind of place
	Renter   string   `json:"renter"`
	Want     string   `json:"want"` // straight, relayed or refused
	Why      string   `json:"why"`
	State    string   `json:"state"`           // of the job
	Path     string   `json:"path"`            // of the connection, as the renter's status tells it
	OutputMS *uint64  `json:"first_output_ms"` // from the command to the first output; null = none
	TookMS   int64    `json:"took_ms"`         // the command
	Reason   string   `json:"reason"`          // of a refusal
	Faults   []string `json:"faults"`
}

// scene is one story.
type scene struct {
	Name   string   `json:"name"`
	Text   string   `json:"text"`
	TookMS int64    `json:"took_ms"`
	Notes  []string `json:"notes"` // what was measured
	Faults []string `json:"faults"`
}

// faults returns everything that is not as it must be.
func (r *report) faults() []string {
	var out []string
	for _, v := range r.Verdicts {
		for _, f := range v.Faults {
			out = append(out, v.Peer+": "+f)
		}
	}
	for _, c := range r.Cells {
		for _, f := range c.Faults {
			out = append(out, fmt.Sprintf("provider %s, renter %s: %s", c.Provider, c.Renter, f))
		}
	}
	for _, s := range r.Scenes {
		for _, f := range s.Faults {
			out = append(out, s.Name+": "+f)
		}
	}
	return out
}

// print writes the tables.
func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Verdicts) > 0 {
		fmt.Fprintln(t, "PEER\tVERDICT\tAFTER\tLATER\tUDP\tTCP\tRELAYS\t")
		for _, v := range r.Verdicts {
			fmt.Fprintf(t, "%s\t%s\t%.1f s\t%s\t%s\t%s\t%d\t%s\n", v.Peer, v.Verdict, float64(v.AfterMS)/1000, v.Later, v.UDP, v.TCP, v.Relays, mark(v.Faults))
		}
		fmt.Fprintln(t)
	}
	if len(r.Cells) > 0 {
		r.grid(t)
	}
	for _, s := range r.Scenes {
		fmt.Fprintf(t, "%s\t%.1f s\t%s %s\n", s.Name, float64(s.TookMS)/1000, strings.Join(s.Notes, "; "), mark(s.Faults))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range r.faults() {
		fmt.Fprintln(w, "FAULT", f)
	}
	return nil
}

func mark(faults []string) string {
	if len(faults) > 0 {
		return "(!)"
	}
	return ""
}

// grid prints providers as rows and renters as columns, each job with its path and the seconds to its first output, and
// below it why jobs are refused.
func (r *report) grid(w io.Writer) {
	var rows, columns, whys []string
	cells := map[[2]string]cell{}
	note := func(list *[]string, s string) int {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
		return slices.Index(*list, s)
	}
	for _, c := range r.Cells {
		note(&rows, c.Provider)
		note(&columns, c.Renter)
		cells[[2]string{c.Provider, c.Renter}] = c
	}
	byTable := func(a, b string) int { return place(a) - place(b) }
	slices.SortFunc(rows, byTable)
	slices.SortFunc(columns, byTable)
	fmt.Fprintf(w, "PROVIDER\\RENTER\t%s\n", strings.Join(columns, "\t"))
	for _, row := range rows {
		line := []string{row}
		for _, column := range columns {
			c, ok := cells[[2]string{row, column}]
			text := c.State
			switch {
			case !ok:
				text = ""
			case c.State == "succeeded" && c.OutputMS != nil:
				text = fmt.Sprintf("%s %.1f s", c.Path, float64(*c.OutputMS)/1000)
			case c.Want == refused:
				text = fmt.Sprintf("refused (%d)", note(&whys, c.Why)+1)
			}
			line = append(line, text+mark(c.Faults))
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	for i, why := range whys {
		fmt.Fprintf(w, "(%d) %s\n", i+1, why)
	}
	fmt.Fprintln(w)
}

// place returns where a kind stands in the table.
func place(name string) int {
	return slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name })
}
