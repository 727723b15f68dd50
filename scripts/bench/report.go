package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// report is what a run prints.
type report struct {
	Machine machine  `json:"machine"`
	Figures []figure `json:"figures"`
}

type machine struct {
	Cores int       `json:"cores"`
	OS    string    `json:"os"`
	Arch  string    `json:"arch"`
	Go    string    `json:"go"`
	At    time.Time `json:"at"`
}

// figure is one line of the table.
type figure struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit"` // "" = a ratio or a count
	Median float64  `json:"median"`
	P95    *float64 `json:"p95"` // null = one measurement, or too few for a tail
	N      int      `json:"n"`   // measurements behind it
	Aim    *aim     `json:"aim"` // null = none
	Met    *bool    `json:"met"` // of the median; null without an aim
	Def    string   `json:"definition"`
}

// aim is a bound that a median should keep.
type aim struct {
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
}

func (a aim) met(v float64) bool {
	return (a.AtMost == 0 || v <= a.AtMost) && (a.AtLeast == 0 || v >= a.AtLeast)
}

func (a aim) String() string {
	if a.AtMost > 0 {
		return "≤ " + short(a.AtMost)
	}
	return "≥ " + short(a.AtLeast)
}

// tailFrom is how many measurements a 95th percentile needs: of fewer it is just the largest.
const tailFrom = 20

// add puts the figure of these measurements into the report.
func (r *report) add(name, unit string, values []float64, a *aim, def string) {
	if len(values) == 0 {
		return
	}
	f := figure{Name: name, Unit: unit, Median: quantile(values, 0.5), N: len(values), Aim: a, Def: def}
	if len(values) >= tailFrom {
		tail := quantile(values, 0.95)
		f.P95 = &tail
	}
	if a != nil {
		met := a.met(f.Median)
		f.Met = &met
	}
	r.Figures = append(r.Figures, f)
}

// quantile returns the smallest value that at least the share q of all values do not exceed. It panics without values.
func quantile(values []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(q*float64(len(s)))) - 1
	return s[min(max(i, 0), len(s)-1)]
}

// print writes the table and, below it, what each figure means.
func (r *report) print(out io.Writer) error {
	m := r.Machine
	fmt.Fprintf(out, "%d cores, %s/%s, %s, %s\n\n", m.Cores, m.OS, m.Arch, m.Go, m.At.Format(time.RFC3339))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tMEDIAN\tP95\tUNIT\tN\tAIM\tMET\tNOTE")
	notes := []string{}
	for _, f := range r.Figures {
		tail, bound, met := "–", "–", "–"
		if f.P95 != nil {
			tail = short(*f.P95)
		}
		if f.Aim != nil {
			bound, met = f.Aim.String(), "no"
			if *f.Met {
				met = "yes"
			}
		}
		i := slices.Index(notes, f.Def)
		if i < 0 {
			i, notes = len(notes), append(notes, f.Def)
		}
		unit := f.Unit
		if unit == "" {
			unit = "×"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\n", f.Name, short(f.Median), tail, unit, f.N, bound, met, i+1)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	fmt.Fprintln(out)
	for i, n := range notes {
		if _, err := fmt.Fprintf(out, "%2d  %s\n", i+1, n); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// short writes a number with three digits that count.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
