package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/doctor"
	"github.com/lacuna-network/lacuna/p2p/hello"
)

func (c *cli) statusCommand() *cobra.Command {
	return c.truncFlag(&cobra.Command{
		Use: "status", Short: "Show this peer on one screen", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			st, err := d.Status(cmd.Context())
			if err != nil {
				return err
			}
			return c.printStatus(st)
		},
	})
}

func (c *cli) printStatus(st api.Status) error {
	return c.print(st, func(t *table) {
		t.field("peer", st.Peer.String())
		t.field("network", fmt.Sprintf("%s, as %s%s", st.Network, st.Role, simulated(st.Simulated)))
		t.field("version", fmt.Sprintf("%s, pid %d, up %s", st.Version, st.PID, span(time.Duration(st.UptimeMS)*time.Millisecond)))
		t.field("home", st.Home)
		t.field("reachable", c.reachLine(st))
		if r := st.Relaying; r != nil {
			t.field("relaying", fmt.Sprintf("for %s, %s now, %s since the start, at most %s a day", count(r.Places, "peer"), count(r.Circuits, "connection"),
				doctor.Size(r.Bytes), doctor.Size(r.DayMaxBytes)))
		}
		for i, a := range st.Addrs {
			name := "address"
			if i > 0 {
				name = ""
			}
			t.field(name, a)
		}
		for _, n := range st.Notes {
			t.field("note", n)
		}
		t.field("peers", c.peerLine(st))
		for _, p := range st.Peers {
			if p.Trouble != nil {
				t.field("trouble", c.peer(p.Peer)+": "+*p.Trouble)
			}
		}
		if w := clockWarning(st.Clock); w != "" {
			t.field("clock", w)
		}
		if st.Twin != nil {
			t.field("twin", c.twinLine(*st.Twin))
		}
		t.field("selling", fmt.Sprintf("%s, %s running", count(st.Devices, "device"), count(st.LeasesRunning, "lease")))
		t.field("renting", count(st.JobsRunning, "job")+" running")
		if st.Devices > 0 {
			t.field("last bid heard", c.lastBid(st))
		}
		t.field("earned", fmt.Sprintf("%s due to this peer, %s vouched for, %s received", st.PromisedMicroUSD, st.VouchedMicroUSD, st.ReceivedMicroUSD))
		t.field("owed", fmt.Sprintf("%s vouched by this peer, nothing settled", st.OwedMicroUSD))
		if len(st.Drops) > 0 {
			t.field("dropped", drops(st.Drops))
		}
	})
}

// reachLine says how others reach this peer, and who found it.
func (c *cli) reachLine(st api.Status) string {
	r := st.Reachability
	switch r.Verdict {
	case "direct":
		if len(r.By) == 0 {
			return "direct"
		}
		return "direct" + c.foundBy(r) + transports(r.AddrsWorked)
	case "hole-punched":
		return "by hole punching" + c.foundBy(r) + through(", introduced by ", c.peerNames(r.Relays))
	case "relayed":
		return "relayed" + through(" through ", c.peerNames(r.Relays)) + "; direct connections by hole punching are tried"
	case "unreachable":
		return "unreachable: nobody could dial this peer, and none relays for it; what helps: lacuna doctor"
	}
	if len(st.Peers) == 0 {
		return "not known: nobody is connected who could try"
	}
	return "not known yet"
}

// foundBy names who found the verdict, and when.
func (c *cli) foundBy(r api.Reachability) string {
	text := through(", found by ", c.peerNames(r.By))
	if text != "" && r.CheckedAt != nil {
		text += " " + c.age(*r.CheckedAt) + " ago"
	}
	return text
}

// peerNames names at most two peers.
func (c *cli) peerNames(keys []attest.Key) string {
	var names []string
	for _, k := range keys[:min(2, len(keys))] {
		names = append(names, c.peer(k))
	}
	if len(keys) > 2 {
		return strings.Join(names, ", ") + " and " + count(len(keys)-2, "other")
	}
	return strings.Join(names, " and ")
}

// through puts a lead before something, if there is something.
func through(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// transports says over which transports others have dialled.
func transports(addrs []string) string {
	udp := slices.ContainsFunc(addrs, func(a string) bool { return strings.Contains(a, "/udp/") })
	tcp := slices.ContainsFunc(addrs, func(a string) bool { return strings.Contains(a, "/tcp/") })
	switch {
	case udp && tcp:
		return " (udp and tcp)"
	case udp:
		return " (udp)"
	case tcp:
		return " (tcp)"
	}
	return ""
}

func clockWarning(c api.ClockView) string {
	if c.SkewMS == nil || max(*c.SkewMS, -*c.SkewMS) <= hello.SkewWarn.Milliseconds() {
		return ""
	}
	side := "behind"
	if *c.SkewMS < 0 {
		side = "ahead of"
	}
	return fmt.Sprintf("%s %s the median of %s; turn on the system's time synchronisation", millis(uint64(max(*c.SkewMS, -*c.SkewMS))), side, count(c.Peers, "peer"))
}

func (c *cli) twinLine(v api.TwinView) string {
	return "another process runs under this peer's key" + through(", at ", v.Addr) + ", seen " + c.age(v.SeenAt) + " ago; stop one of them: lacuna doctor"
}

// peerLine names the nearest peers; one screen has no room for all.
func (c *cli) peerLine(st api.Status) string {
	const most = 4
	switch {
	case len(st.Peers) == 0 && st.LastDialError != "":
		return "none; " + st.LastDialError
	case len(st.Peers) == 0:
		return "none; join a network with: lacuna join INVITE"
	}
	var names []string
	for _, p := range st.Peers[:min(most, len(st.Peers))] {
		about := latencyOf(p.LatencyMS)
		if p.Path == "limited" || p.Path == "relayed" {
			about += ", relayed"
		}
		names = append(names, c.peer(p.Peer)+" ("+about+")")
	}
	text := fmt.Sprintf("%d: %s", len(st.Peers), strings.Join(names, ", "))
	if len(st.Peers) > most {
		text += ", …"
	}
	return text
}

func (c *cli) lastBid(st api.Status) string {
	if st.LastBidHeardAt == nil {
		return "none yet"
	}
	return fmt.Sprintf("%s ago, %d in all", c.age(*st.LastBidHeardAt), st.BidsHeard)
}

func drops(m map[string]uint64) string {
	var parts []string
	for reason, n := range m {
		parts = append(parts, fmt.Sprintf("%s %d", words(reason), n))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
