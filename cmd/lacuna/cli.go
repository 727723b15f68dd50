package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
)

// cli is one run of the command: where it reads and prints, and its global flags.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) (string, bool)
	now            func() time.Time

	inTTY, outTTY, errTTY bool // which of them are terminals

	home, format        string
	logLevel, logFormat string
	noColor, quiet      bool
	noTrunc             bool
	names               map[attest.Key]string // names of peers, where they have some; nil = none

	interrupted atomic.Bool // a signal came
	started     bool        // a command runs; errors before that are errors of usage

	// newNode makes the peer that up and run run in this process.
	newNode func(h home.Home, cfg config.Config, log *slog.Logger) (peerNode, error)
}

// The formats of -o.
var formats = []string{"table", "json", "jsonl", "yaml"}

// The colours used, as ANSI codes.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
	dim    = "2"
)

// paint colours s for stderr, if that is a terminal and nobody objects.
func (c *cli) paint(code, s string) string {
	if c.noColor || !c.errTTY {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// logger returns the log on stderr as the flags want it; level counts where they say nothing.
func (c *cli) logger(level slog.Level) *slog.Logger {
	if c.logLevel != "" {
		_ = level.UnmarshalText([]byte(c.logLevel)) // was checked
	}
	o := &slog.HandlerOptions{Level: level}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.stderr, o))
	}
	return slog.New(slog.NewTextHandler(c.stderr, o))
}

// table is a table for people: a head, and rows of as many cells.
type table struct {
	head []string
	rows [][]string
}

// row adds a line. Empty cells are shown as "-".
func (t *table) row(cells ...string) {
	for i, s := range cells {
		if s == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

// field adds a line "name: value" to a table without a head; without a name it goes on with the field above.
func (t *table) field(name, value string) {
	if name != "" {
		name += ":"
	}
	t.rows = append(t.rows, []string{name, value})
}

// text adds a line of its own.
func (t *table) text(line string) { t.rows = append(t.rows, []string{line}) }

// print writes v on stdout in the format of -o; fill makes the table of it, which is not called otherwise.
func (c *cli) print(v any, fill func(t *table)) error {
	switch c.format {
	case "json":
		return c.encode(listOf(v), "  ")
	case "jsonl":
		if l := reflect.ValueOf(v); l.Kind() == reflect.Slice {
			for i := range l.Len() {
				if err := c.encode(l.Index(i).Interface(), ""); err != nil {
					return err
				}
			}
			return nil
		}
		return c.encode(v, "")
	case "yaml":
		b, err := json.Marshal(listOf(v))
		if err != nil {
			return err
		}
		if b, err = yaml.JSONToYAML(b); err != nil {
			return err
		}
		_, err = c.stdout.Write(b)
		return err
	}
	var t table
	fill(&t)
	return c.printTable(t)
}

func (c *cli) printTable(t table) error {
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 8, 3, ' ', 0)
	lines := t.rows
	if len(t.head) > 0 {
		lines = append([][]string{t.head}, t.rows...)
	}
	for _, cells := range lines {
		if _, err := io.WriteString(w, strings.Join(cells, "\t")+"\n"); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	text := buf.String()
	if head, rest, ok := strings.Cut(text, "\n"); ok && len(t.head) > 0 && c.outTTY && !c.noColor {
		text = "\x1b[" + dim + "m" + head + "\x1b[0m\n" + rest
	}
	_, err := io.WriteString(c.stdout, text)
	return err
}

// encode writes v as one JSON document.
func (c *cli) encode(v any, indent string) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// listOf returns v, and an empty list for a nil one: a list is an array in JSON, never null.
func listOf(v any) any {
	if l := reflect.ValueOf(v); l.Kind() == reflect.Slice && l.IsNil() {
		return []any{}
	}
	return v
}

// human reports whether results are printed for people.
func (c *cli) human() bool { return c.format == "table" || !slices.Contains(formats, c.format) }
