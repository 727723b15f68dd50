package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// unknown stands where nothing is known; it is never 0.
const unknown = "unknown"

// peer returns a peer's name: the last 8 characters, or all with --no-trunc.
func (c *cli) peer(k attest.Key) string {
	if name, ok := c.names[k]; ok {
		return name
	}
	if c.noTrunc {
		return k.String()
	}
	return k.Short()
}

// digest returns an object's name: 12 hex digits, or all with --no-trunc.
func (c *cli) digest(d attest.Digest) string {
	switch {
	case d.IsZero():
		return ""
	case c.noTrunc:
		return d.String()
	}
	return d.Short()
}

// age returns how long ago t was, in one unit, as kubectl does: "12s", "3m", "5h", "9d".
func (c *cli) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(c.now().Sub(t))
}

// span returns a duration in one unit.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// millis returns a span in milliseconds for people: "480ms", "1.2s", "3m20s".
func millis(ms uint64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return strictyaml.FormatDuration(d.Round(time.Second))
}

// millisOf returns a span that may be unknown.
func millisOf(ms *uint64) string {
	if ms == nil {
		return unknown
	}
	return millis(*ms)
}

// percent returns basis points in percent, with one decimal.
func percent[T int | uint64](bp T) string { return fmt.Sprintf("%d.%d%%", bp/100, bp%100/10) }

// mem returns a size, unknown for 0, which stands for that in devices.
func mem(n uint64) string {
	if n == 0 {
		return unknown
	}
	return market.FormatBytes(n)
}

// memOf returns a size that may be unknown.
func memOf(n *uint64) string {
	if n == nil {
		return unknown
	}
	return mem(*n)
}

// price returns a price, "-" for none.
func price(m market.MicroUSD) string {
	if m == 0 {
		return ""
	}
	return m.PerHour()
}

// count returns "1 offer", "2 offers".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// words turns a snake_case code into words.
func words(code string) string { return strings.ReplaceAll(code, "_", " ") }
