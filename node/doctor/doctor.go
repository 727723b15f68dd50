// Package doctor finds out what keeps a peer from working, and says what to do about it.
//
// [Run] does all that follows. [Gather] looks at the home, the machine and, where one runs, the daemon, and changes
// nothing. [Judge] makes a [Finding] of each thing that was looked at: what was seen, why that is so, and what to do
// next. It reads neither clock nor disk, so each judgement is a row of a table in the tests. [Fix] mends what can be
// mended without harm. What can be known only from a running daemon (whether others can reach this peer, say) is said to
// be unknown without one.
//
// It is used by cmd. Its functions may be called concurrently.
package doctor

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
)

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	OK    Severity = "ok"
	Note  Severity = "note"  // good to know
	Warn  Severity = "warn"  // it works, but not as well as it could
	Fault Severity = "fault" // something does not work
)

// Finding is one thing that was looked at.
type Finding struct {
	Check    string   `json:"check"` // one word, stable
	Severity Severity `json:"severity"`
	Evidence string   `json:"evidence"` // what was seen
	Cause    *string  `json:"cause"`    // why it is so; null = nothing is wrong, or not known
	Next     *string  `json:"next"`     // what to do; null = nothing
	Fixed    *string  `json:"fixed"`    // what was mended just now; null = nothing
}

// Facts are what was seen.
type Facts struct {
	OS      string // as runtime.GOOS
	Home    HomeFacts
	Disk    DiskFacts
	Store   StoreFacts
	Config  ConfigFacts
	Ports   PortFacts
	IP      IPFacts
	Buffers BufferFacts
	Proxies []string    // variables that are set, as NAME=VALUE, without passwords
	PID     int         // of the process that holds the home; 0 = none, or not known
	Held    bool        // a process holds the home
	Status  *api.Status // of the daemon; nil = none answers
}

// HomeFacts are about the folder and the keys in it.
type HomeFacts struct {
	Dir    string
	Exists bool
	Mode   uint32     // permission bits; 0 where the system has none
	Err    string     // why it cannot be used, "" = it can
	Keys   []KeyFacts // of the identity and the private network, where there are such files
}

// KeyFacts are about one file with a secret.
type KeyFacts struct {
	File string
	What string // "identity" or "network key"
	Mode uint32
	Err  string // why it cannot be read, apart from its mode
}

// DiskFacts are about the disk that the home is on.
type DiskFacts struct {
	Free  uint64 // bytes
	Known bool
	Floor uint64 // store.min_free
}

// StoreFacts are about the records.
type StoreFacts struct {
	Exists bool
	Opened bool   // just now, or by the daemon
	Err    string // why it does not open
}

// ConfigFacts are about what the owner set.
type ConfigFacts struct {
	config.Config
	File   string
	Exists bool
	Err    string // what is wrong with it
}

// PortFacts are what listening would come to, where no daemon runs.
type PortFacts struct {
	Tried  bool
	Listen []string // bound for a moment
	Notes  []string
	Err    string // why it does not work
	Hint   string // what helps
}

// IPFacts are about the interfaces of this machine.
type IPFacts struct {
	V4, V6  bool   // an address beyond loopback and link-local
	Private string // an IPv4 address behind a router; "" = none
	Known   bool
}

// BufferFacts are about the receive buffer of UDP sockets.
type BufferFacts struct {
	Want, Got int // bytes
	OK        bool
}

// Run looks, mends with fix what [Fix] mends, and returns what was found.
func Run(ctx context.Context, o Options, fix bool) []Finding {
	f := Gather(ctx, o)
	if !fix {
		return Judge(f)
	}
	done := mend(o, &f)
	again := Gather(ctx, o)
	again.Store = f.Store
	findings := Judge(again)
	for i := range findings {
		if what, ok := done[findings[i].Check]; ok {
			findings[i].Fixed = &what
		}
	}
	return findings
}

// Judge returns a finding for each thing that was looked at, in the order in which a person would mend them.
func Judge(f Facts) []Finding {
	var out []Finding
	for _, judge := range []func(Facts) (Finding, bool){
		judgeHome, judgeKeys, judgeConfig, judgeDisk, judgeStore, judgeDaemon, judgePorts, judgeIP, judgeUDP, judgePeers, judgeReach, judgeRelays,
		judgeClock, judgeTwin, judgeBuffers, judgeProxy, judgeMDNS,
	} {
		if finding, ok := judge(f); ok {
			out = append(out, finding)
		}
	}
	return out
}

// Worst returns the highest severity among findings, OK for none.
func Worst(findings []Finding) Severity {
	order := []Severity{OK, Note, Warn, Fault}
	worst := 0
	for _, f := range findings {
		worst = max(worst, slices.Index(order, f.Severity))
	}
	return order[worst]
}

// see returns a finding with these words; an empty cause or next is none.
func see(check string, s Severity, evidence, cause, next string) (Finding, bool) {
	f := Finding{Check: check, Severity: s, Evidence: evidence}
	if cause != "" {
		f.Cause = &cause
	}
	if next != "" {
		f.Next = &next
	}
	return f, true
}

// none is no finding: what would have been looked at does not apply.
func none() (Finding, bool) { return Finding{}, false }

// Size returns a number of bytes for people, in powers of ten, to one decimal at most.
func Size(n uint64) string {
	value, unit := float64(n)/1e6, "MB"
	switch {
	case n < 1e6:
		value, unit = float64(n)/1e3, "kB"
	case n >= 1e12:
		value, unit = float64(n)/1e12, "TB"
	case n >= 1e9:
		value, unit = float64(n)/1e9, "GB"
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + " " + unit
}

func seconds(ms int64) string {
	d := (time.Duration(ms) * time.Millisecond).Abs()
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
