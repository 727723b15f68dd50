package main

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/node/api"
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
		t.field("reachable", note(words(st.Reachability.Verdict), unknown))
		for i, a := range st.Addrs {
			name := "address"
			if i > 0 {
				name = ""
			}
			t.field(name, a)
		}
		t.field("peers", c.peerLine(st))
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

// peerLine names the nearest peers; one screen has no room for all.
func (c *cli) peerLine(st api.Status) string {
	const most = 4
	if len(st.Peers) == 0 {
		return "none; join a network with: lacuna join INVITE"
	}
	var names []string
	for _, p := range st.Peers[:min(most, len(st.Peers))] {
		latency := unknown
		if p.LatencyMS != nil {
			latency = fmt.Sprintf("%.3gms", *p.LatencyMS)
		}
		names = append(names, c.peer(p.Peer)+" ("+latency+")")
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

func (c *cli) joinCommand() *cobra.Command {
	return c.truncFlag(&cobra.Command{
		Use: "join INVITE|ADDR…", Short: "Join a network by an invite or the address of a peer",
		Example: "  lacuna join lacuna1…\n  lacuna join /ip4/192.0.2.1/tcp/4711/p2p/12D3KooW…",
		Args:    someArgs("invites or addresses"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			v, err := d.Join(cmd.Context(), args)
			if err != nil {
				return err
			}
			return c.print(v, func(t *table) {
				for _, p := range v.Joined {
					t.text("joined " + c.peer(p.Peer) + " at " + p.Addr + " on network " + v.Network)
				}
			})
		},
	})
}

func (c *cli) inviteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "invite", Short: "Print an invite that another machine can paste", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			invite, err := d.Invite(cmd.Context())
			if err != nil {
				return err
			}
			v := struct {
				Invite string `json:"invite"`
			}{invite}
			return c.print(v, func(t *table) { t.text(invite) })
		},
	}
}
