package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

func (c *cli) joinCommand() *cobra.Command {
	return c.truncFlag(&cobra.Command{
		Use: "join [INVITE|ADDR…]", Short: "Join a network by an invite or the address of a peer",
		Long: `Join a network by an invite, as lacuna invite prints it, or by the address of a peer.

If this machine's peer runs, it connects at once and remembers whom it was told of.
If not, its home is set up for that network: its name, the peers to join through and,
for a private network, the key. It joins when it is started with lacuna up.`,
		Example: "  lacuna join lacuna1…\n  lacuna join /ip4/192.0.2.1/tcp/4711/p2p/12D3KooW…",
		Args:    rangeArgs(0, 64, "invites or addresses"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exitError{exit: exitFailed, code: "no_hubs", err: errors.New("join a network: there is no public network yet, so no list of hubs comes with this program"),
					hint: "ask a peer that you know for the line that lacuna invite prints, then: lacuna join LINE; or start a network of your own: lacuna up"}
			}
			d, err := c.dial()
			if notRunning(err) && !c.held() {
				return c.joinLater(args)
			}
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

// held reports whether a process has the home, though nobody answers.
func (c *cli) held() bool {
	h, err := c.homeDir()
	if err != nil {
		return false
	}
	_, held := h.Running()
	return held
}

// joinLater sets the home up, so that the next start joins.
func (c *cli) joinLater(targets []string) error {
	h, err := c.homeDir()
	if err != nil {
		return err
	}
	cfg, err := c.config(nil)
	if err != nil {
		return err
	}
	v, err := node.Prepare(h, cfg, targets)
	switch {
	case errors.Is(err, p2p.ErrInvite), errors.Is(err, node.ErrTarget):
		return &exitError{exit: exitUsage, code: "bad_invite", err: err, hint: "paste the whole line that lacuna invite printed"}
	case errors.Is(err, node.ErrOwnInvite):
		return &exitError{exit: exitFailed, code: "own_invite", err: err, hint: "paste it on another machine; this one joins by the invite of another peer"}
	case errors.Is(err, node.ErrOtherNetwork), errors.Is(err, home.ErrNetworkKeyExists):
		return &exitError{exit: exitFailed, code: "other_network", err: err,
			hint: "the records of a home belong to one network; take another home for this one: lacuna --home DIR join …"}
	case errors.Is(err, config.ErrByHand):
		return byHand(err, h.ConfigFile())
	case err != nil:
		return err
	}
	if err := c.print(v, func(t *table) {
		t.text(fmt.Sprintf("set up for network %s, with %s to join through, in %s", v.Network, count(v.Peers, "peer"), v.Home))
	}); err != nil {
		return err
	}
	c.say("start it: lacuna up -d")
	return nil
}

func (c *cli) inviteCommand() *cobra.Command {
	var withoutKey bool
	cmd := &cobra.Command{
		Use: "invite", Short: "Print an invite that another machine can paste", Args: noArgs,
		Long: `Print one line that another machine can paste: lacuna join LINE. It names this peer and
up to four others, so it works as long as one of them is there. For a private network it
holds the key, and whoever has the line can join.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			ask := d.Invite
			if withoutKey {
				ask = d.InviteWithoutKey
			}
			invite, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			v := struct {
				Invite string `json:"invite"`
			}{invite}
			if err := c.print(v, func(t *table) { t.text(invite) }); err != nil {
				return err
			}
			if network := secretOf(invite); network != "" {
				c.say("this line holds the key of the private network %s: whoever has it can join", network)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&withoutKey, "without-key", false, "leave out the key of a private network; the other side needs it as a file: network.key_file")
	return cmd
}

// secretOf returns the name of the private network whose key an invite holds, "" if it holds none.
func secretOf(invite string) string {
	i, err := p2p.ParseInvite(invite)
	if err != nil || len(i.NetworkKey) == 0 {
		return ""
	}
	return i.Network
}
