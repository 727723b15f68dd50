package main

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/node/api"
)

func (c *cli) receiptsCommand() *cobra.Command {
	ls := c.truncFlag(&cobra.Command{
		Use: "ls LEASE", Short: "List the receipts of a lease", Args: exactArgs(1, "a lease, by id or the beginning of it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			receipts, err := d.Receipts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printReceipts(receipts)
		},
	})
	show := c.truncFlag(&cobra.Command{
		Use: "show LEASE [NUMBER]", Short: "Show all that a receipt says, by default the last one", Args: rangeArgs(1, 2, "a lease and perhaps the number of a receipt"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n := 0
			if len(args) > 1 {
				var err error
				if n, err = strconv.Atoi(args[1]); err != nil || n < 1 {
					return usageError("", "receipt %q: want a number from 1", args[1])
				}
			}
			d, err := c.dial()
			if err != nil {
				return err
			}
			receipts, err := d.Receipts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if n == 0 {
				n = len(receipts)
			}
			if n == 0 || n > len(receipts) {
				return fmt.Errorf("show receipt: the lease has %s", count(len(receipts), "receipt"))
			}
			r := receipts[n-1]
			return c.print(r, func(t *table) { c.receiptFields(t, r) })
		},
	})
	return group("receipts", "Signed statements of what was used", ls, show, c.verifyCommand(), c.exportCommand())
}

func (c *cli) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "export LEASE|JOB [FILE|-]", Short: "Write all that proves a lease, or all leases of a job, into one file",
		Long: `Write a lease, or all leases of a job, with offers, receipts, vouchers and outcomes
into one file that anybody can verify offline. Without FILE it is named after the lease
or job; - is stdout.`,
		Example: "  lacuna receipts export digits\n  lacuna receipts export 1f3a9c - | ssh host lacuna receipts verify -",
		Args:    rangeArgs(1, 2, "a lease or a job, and perhaps a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.dial()
			if err != nil {
				return err
			}
			data, err := d.ExportJob(cmd.Context(), args[0])
			var sent *api.Error
			if errors.As(err, &sent) && sent.Code == "no_job" {
				data, err = d.ExportLease(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			file := args[0] + ".receipts"
			if len(args) > 1 {
				file = args[1]
			}
			if file == "-" {
				_, err := c.stdout.Write(data)
				return err
			}
			if err := os.WriteFile(file, data, 0o644); err != nil {
				return fmt.Errorf("write %s: %w", file, pathCause(err))
			}
			v := struct {
				File  string `json:"file"`
				Bytes int    `json:"bytes"`
			}{file, len(data)}
			return c.print(v, func(t *table) { t.text(file) })
		},
	}
}

func (c *cli) printReceipts(receipts []api.ReceiptView) error {
	return c.print(receipts, func(t *table) {
		t.head = []string{"NUMBER", "STATE", "INTERVAL", "RAN", "COST", "TOTAL", "BUSY", "ENERGY", "ACCEPTED", "ID"}
		for _, r := range receipts {
			accepted := "no"
			if r.Acknowledged {
				accepted = "yes"
			}
			busy, energy := unknown, unknown
			if bp, ok := r.Telemetry[gpu.UtilAvgBP.String()]; ok {
				busy = percent(bp)
			}
			if mj, ok := r.Units[gpu.EnergyMJ.String()]; ok {
				energy = fmt.Sprintf("%d.%dJ", mj/1000, mj%1000/100)
			}
			t.row(fmt.Sprint(r.Seq), r.State, millis(uint64(max(r.T1.Sub(r.T0).Milliseconds(), 0))), millisOf(r.RanMS), r.Cost.String(), r.Total.String(), busy, energy, accepted, c.digest(r.ID))
		}
	})
}

func (c *cli) receiptFields(t *table, r api.ReceiptView) {
	t.field("receipt", fmt.Sprintf("%d%s", r.Seq, simulated(r.Simulated)))
	t.field("id", r.ID.String())
	t.field("state", r.State)
	t.field("from", r.T0.UTC().Format(timeLayout))
	t.field("to", r.T1.UTC().Format(timeLayout))
	t.field("ran", millisOf(r.RanMS))
	t.field("cost", fmt.Sprintf("%s, %s in all", r.Cost, r.Total))
	t.field("accepted", map[bool]string{true: "yes, by a voucher", false: "not yet"}[r.Acknowledged])
	t.field("used", note(counters(r.Units), unknown))
	t.field("sensors", note(counters(r.Telemetry), unknown))
}

const timeLayout = "2006-01-02 15:04:05.000 UTC"

// counters returns named numbers in the order of their names.
func counters(m map[string]uint64) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%s %d", k, v))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
