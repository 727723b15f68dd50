package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/node/api"
)

func (c *cli) reputationCommand() *cobra.Command {
	var explain bool
	cmd := c.truncFlag(&cobra.Command{
		Use: "reputation [PEER]", Short: "Show how reliable peers were to this peer, and why",
		Long: `Show this peer's own score of the peers it dealt with, or of one peer. There is no
global score. With --explain, show every term behind it: each lease, what it counted,
and how much of that its age has left.`,
		Args: rangeArgs(0, 1, "at most one peer"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if explain && len(args) == 0 {
				return usageError("see: lacuna reputation --help", "--explain: name the peer")
			}
			d, err := c.dial()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				all, err := d.Reputations(cmd.Context())
				if err != nil {
					return err
				}
				return c.printReputations(all)
			}
			peer, err := c.findPeer(cmd.Context(), d, args[0])
			if err != nil {
				return usageError("whole peer ids: lacuna reputation --no-trunc", "%w", err)
			}
			r, err := d.Reputation(cmd.Context(), peer)
			if err != nil {
				return err
			}
			return c.printReputation(r, explain)
		},
	})
	cmd.Flags().BoolVar(&explain, "explain", false, "show every term")
	return cmd
}

func (c *cli) printReputations(all []api.ReputationView) error {
	return c.print(all, func(t *table) {
		t.head = []string{"PEER", "SCORE", "SUCCESS", "RECENT", "GOOD", "BAD", "LEASES"}
		for _, r := range all {
			t.row(c.peer(r.Peer), percent(r.ScoreBP), percent(r.MeanBP), percent(r.ShortBP), r.S, r.F, fmt.Sprint(len(r.Terms)))
		}
	})
}

func (c *cli) printReputation(r api.ReputationView, explain bool) error {
	return c.print(r, func(t *table) {
		t.field("peer", r.Peer.String())
		t.field("score", fmt.Sprintf("%s, what is fairly sure: the lower of %s by all evidence and %s by the recent", percent(r.ScoreBP), percent(r.QuantileBP), percent(r.ShortBP)))
		t.field("success", fmt.Sprintf("%s, the mean that auctions weigh prices with", percent(r.MeanBP)))
		t.field("strangers", fmt.Sprintf("%d of this peer's first %d leases went well, so that a stranger counts %s", r.Prior.OK, r.Prior.FirstLeases, percent(r.Prior.BP)))
		t.field("evidence", fmt.Sprintf("good %s, bad %s", r.S, r.F))
		if !explain {
			return
		}
		for _, x := range r.Terms {
			sign := "+"
			if !x.OK {
				sign = "−"
			}
			lease := unknown
			if x.Lease != nil {
				lease = c.digest(*x.Lease)
			}
			t.field("", fmt.Sprintf("%s%s  %s, worth %s  counts %s of %s, age leaves %s  lease %s, %s ago",
				sign, x.Decayed, words(x.What), x.Value, x.Capped, x.Raw, percent(x.DecayBP), lease, c.age(x.At)))
		}
	})
}
