package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
)

func (c *cli) gpuCommand() *cobra.Command {
	return group("gpu", "This machine's devices",
		c.truncFlag(&cobra.Command{
			Use: "ls", Short: "List this machine's devices and what each is doing", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				d, err := c.dial()
				if err != nil {
					return err
				}
				devices, err := d.Devices(cmd.Context())
				if err != nil {
					return err
				}
				return c.printDevices(devices)
			},
		}))
}

func (c *cli) printDevices(devices []api.DeviceView) error {
	return c.print(devices, func(t *table) {
		t.head = []string{"DEVICE", "MODEL", "MEMORY", "PRICE", "STATE", "LEASE", "BUSY", "USED", "POWER", "TEMP"}
		for _, d := range devices {
			id := d.ID.String()
			if !c.noTrunc {
				id = id[:12]
			}
			model := d.Model
			if d.Simulated {
				model += " (simulated)"
			}
			lease := ""
			if d.Lease != nil {
				lease = c.digest(*d.Lease)
			}
			busy, used, power, temp := readings(d.Telemetry)
			t.row(id, model, memOf(d.MemBytes), price(d.Price), words(d.State), lease, busy, used, power, temp)
		}
	})
}

// readings returns what a device's sensors say, unknown for what it cannot tell.
func readings(s *gpu.Sample) (busy, used, power, temp string) {
	if s == nil {
		s = &gpu.Sample{}
	}
	say := func(p *uint64, f func(uint64) string) string {
		if p == nil {
			return unknown
		}
		return f(*p)
	}
	return say(s.UtilBP, percent),
		say(s.MemUsedMiB, func(n uint64) string { return market.FormatBytes(n << 20) }),
		say(s.PowerMW, func(n uint64) string { return fmt.Sprintf("%dW", (n+500)/1000) }),
		say(s.TempC, func(n uint64) string { return fmt.Sprintf("%d°C", n) })
}

func (c *cli) asksCommand() *cobra.Command {
	var q api.AskFilter
	var maxPrice, place string
	cmd := c.truncFlag(&cobra.Command{
		Use: "asks", Short: "Browse what is for sale, where, at which price, how reliable", Args: noArgs,
		Long: `Browse the standing asks of providers. Prices are the lowest each goes to; the
success rate is this peer's own experience, and unknown for strangers. A place is
impossible where the provider answers faster than light could come from there; -o json
says from where it was measured.`,
		Example: `  lacuna asks --model "RTX 4090" --place eu --max-price "0.40 USD/h"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if maxPrice != "" {
				m, err := market.ParsePrice(maxPrice)
				if err != nil {
					return usageError("", "--max-price: %w", err)
				}
				q.MaxPrice = m
			}
			if place != "" {
				p, err := market.ParsePlace(place)
				if err != nil {
					return usageError("", "--place: %w", err)
				}
				q.Place = p
			}
			d, err := c.dial()
			if err != nil {
				return err
			}
			asks := []api.AskView{}
			err = d.Asks(cmd.Context(), q, func(a api.AskView) error {
				if c.format == "jsonl" {
					return c.encode(a, "") // as they are found
				}
				asks = append(asks, a)
				return nil
			})
			if err != nil || c.format == "jsonl" {
				return err
			}
			if len(asks) == 0 {
				c.say("nothing is for sale on this network, as far as this peer can see; a peer is joined with: lacuna join INVITE")
			}
			return c.printAsks(asks)
		},
	})
	fs := cmd.Flags()
	fs.StringVar(&q.Model, "model", "", "GPU `model`, such as \"RTX 4090\"")
	fs.StringVar(&q.Class, "class", "", "class, such as nv-24g or cpu")
	fs.StringVar(&place, "place", "", "place, such as eu or eu/de")
	fs.StringVar(&maxPrice, "max-price", "", "highest `price` per device and hour")
	fs.IntVar(&q.Limit, "limit", api.DefaultAsks, "stop after so many asks")
	return cmd
}

func (c *cli) printAsks(asks []api.AskView) error {
	return c.print(asks, func(t *table) {
		t.head = []string{"PROVIDER", "MODEL", "MEMORY", "FREE", "PRICE", "PLACE", "REACH", "LATENCY", "TIERS", "SUCCESS", "EXPIRES"}
		for _, a := range asks {
			success := unknown
			if a.MeanBP != nil {
				success = percent(*a.MeanBP)
			}
			name := c.peer(a.Peer)
			if a.Self {
				name += " (this peer)"
			}
			where := placeOf(a.Place)
			if a.PlaceFault != nil {
				where += " (impossible)"
			}
			for _, l := range a.Lots {
				model := l.Model
				if l.Simulated {
					model += " (simulated)"
				}
				t.row(name, model, memOf(l.MemBytes), fmt.Sprintf("%d/%d", l.Free, l.Count), l.Price.PerHour(), where, a.Reach, latencyOf(a.LatencyMS),
					strings.Join(a.Tiers, ","), success, span(a.ExpiresAt.Sub(c.now())))
			}
		}
	})
}

// latencyOf returns a round trip that may be unknown.
func latencyOf(ms *float64) string {
	if ms == nil {
		return unknown
	}
	return fmt.Sprintf("%.3gms", *ms)
}

func placeOf(p *string) string {
	if p == nil {
		return unknown
	}
	return *p
}

func (c *cli) leasesCommand() *cobra.Command {
	var role, reason string
	ls := c.truncFlag(&cobra.Command{
		Use: "ls", Short: "List leases", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role != "" && role != "provider" && role != "renter" {
				return usageError("", "--role %q: want provider or renter", role)
			}
			d, err := c.dial()
			if err != nil {
				return err
			}
			leases, err := d.Leases(cmd.Context(), role)
			if err != nil {
				return err
			}
			return c.printLeases(leases)
		},
	})
	ls.Flags().StringVar(&role, "role", "", "only those where this peer is provider or renter")
	show := c.truncFlag(&cobra.Command{
		Use: "show LEASE", Short: "Show all about a lease", Args: exactArgs(1, "a lease, by id or the beginning of it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			l, err := d.Lease(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(l, func(t *table) { c.leaseFields(t, l) })
		},
	})
	end := &cobra.Command{
		Use: "end LEASE", Short: "End a lease at once", Args: exactArgs(1, "a lease, by id or the beginning of it"),
		Long: `End a lease that this peer serves, at once: the job gets no time to save its work, and
goes on elsewhere from its last checkpoint, if it has one. What it used until then is
paid. Ending it counts against this peer.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			l, err := d.EndLease(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.print(l, func(t *table) { t.text(c.digest(l.ID)) })
		},
	}
	end.Flags().StringVar(&reason, "reason", "", "what the renter is told, in snake_case")
	return group("leases", "The leases of this peer", ls, show, end)
}

func (c *cli) printLeases(leases []api.LeaseView) error {
	return c.print(leases, func(t *table) {
		t.head = []string{"LEASE", "ROLE", "WITH", "STATE", "PRICE", "RECEIPTS", "DUE", "VOUCHED", "AGE"}
		for _, l := range leases {
			with := l.Provider
			if l.Role == "provider" {
				with = l.Renter
			}
			state := words(l.State)
			if l.Reason != "" {
				state += " (" + words(l.Reason) + ")"
			}
			t.row(c.digest(l.ID), l.Role, c.peer(with), state, l.Price.PerHour(), fmt.Sprint(l.Receipts), l.Due.String(), l.Vouched.String(), c.age(l.AwardedAt))
		}
	})
}

func (c *cli) leaseFields(t *table, l api.LeaseView) {
	t.field("lease", l.ID.String()+simulated(l.Simulated))
	t.field("this peer is", l.Role)
	t.field("renter", c.peer(l.Renter))
	t.field("provider", c.peer(l.Provider))
	t.field("state", words(l.State))
	if l.Reason != "" {
		t.field("because", words(l.Reason))
	}
	if l.Job != "" {
		t.field("job", l.Job)
	}
	t.field("devices", fmt.Sprintf("%s at %s, %s", strings.Join(l.Models, ", "), l.Price.PerHour(), l.Tier))
	t.field("limits", fmt.Sprintf("%s, runs at most %s", l.Budget, millis(l.DurationMS)))
	t.field("receipts", fmt.Sprintf("%d, %d accepted, ran %s", l.Receipts, l.Acknowledged, millis(l.RanMS)))
	t.field("money", fmt.Sprintf("%s due, %s vouched", l.Due, l.Vouched))
	if l.Outcome != nil {
		t.field("outcome", outcomeText(l.Outcome.Code, l.Outcome.Reason, l.Due, l.Vouched, l.Outcome.Signers))
	}
	t.field("awarded", c.when(&l.AwardedAt))
	t.field("running since", c.when(l.ReadyAt))
	t.field("ended", c.when(l.EndedAt))
}

// when returns an instant and how long ago it was, "not yet" for none.
func (c *cli) when(t *time.Time) string {
	if t == nil {
		return "not yet"
	}
	return t.UTC().Format(timeLayout) + ", " + c.age(*t) + " ago"
}
