package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// verified is what receipts verify says of one lease in JSON.
type verified struct {
	Lease        attest.Digest   `json:"lease"`
	Renter       attest.Key      `json:"renter"`
	Provider     attest.Key      `json:"provider"`
	Devices      []verifiedCard  `json:"devices"`
	Simulated    bool            `json:"simulated"`
	Price        market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	Receipts     int             `json:"receipts"`
	Acknowledged int             `json:"acknowledged"`
	Head         *attest.Digest  `json:"head"` // null without receipts
	RanMS        uint64          `json:"billable_device_ms"`
	Due          market.MicroUSD `json:"due_microusd"`
	Vouched      market.MicroUSD `json:"vouched_microusd"`
	Outcome      *string         `json:"outcome"` // null while nobody signed one
	Reason       string          `json:"reason,omitempty"`
	ExitCode     *uint64         `json:"exit_code"`
	Signers      int             `json:"signers"`
}

type verifiedCard struct {
	Model    string  `json:"model"`
	MemBytes *uint64 `json:"mem_bytes"` // null = unknown
}

func (c *cli) verifyCommand() *cobra.Command {
	return c.truncFlag(&cobra.Command{
		Use:   "verify FILE|-",
		Short: "Check a receipt file; needs no daemon, no network, no store",
		Long: `Check every signature in a receipt file, the chain of its receipts, that each
voucher promises exactly what the receipts it accepts cost, and that the outcome
agrees with both. Exit code 5 and the reason if anything does not hold.`,
		Example: "  lacuna receipts verify digits.receipts\n  ssh host cat digits.receipts | lacuna receipts verify -",
		Args:    exactArgs(1, "a receipt file, or - for stdin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := c.readFile(cmd.Context(), args[0], ledger.MaxFileBytes, ledger.Magic)
			if err != nil {
				return err
			}
			rep, err := ledger.Verify(data)
			if err != nil {
				return err
			}
			return c.printVerified(rep)
		},
	})
}

func (c *cli) printVerified(rep ledger.Report) error {
	views := make([]verified, len(rep.Leases))
	for i, l := range rep.Leases {
		views[i] = verifiedLease(l)
	}
	v := struct {
		Verified bool            `json:"verified"`
		Network  string          `json:"network"`
		Receipts int             `json:"receipts"`
		Due      market.MicroUSD `json:"due_microusd"`
		Vouched  market.MicroUSD `json:"vouched_microusd"`
		Leases   []verified      `json:"leases"`
	}{true, rep.Network, rep.Receipts, rep.Due, rep.Vouched, views}
	return c.print(v, func(t *table) {
		for _, l := range rep.Leases {
			t.field("lease", c.digest(l.Lease)+simulated(l.Terms.Simulated))
			t.field("renter", c.peer(l.Terms.Renter))
			t.field("provider", c.peer(l.Terms.Provider))
			t.field("devices", cards(l.Offer.Devices)+" at "+l.Terms.Price.PerHour())
			t.field("receipts", fmt.Sprintf("%d of %d valid, %d accepted by vouchers", l.Receipts, l.Receipts, l.Acknowledged))
			money := fmt.Sprintf("%s due = vouched", l.Due)
			if l.Due != l.Vouched {
				money = fmt.Sprintf("%s due, %s vouched", l.Due, l.Vouched)
			}
			t.field("money", money)
			outcome := "none yet"
			if l.Outcome != nil {
				outcome = words(l.Outcome.Code.String())
				if l.Outcome.Reason != "" {
					outcome += " (" + words(l.Outcome.Reason) + ")"
				}
				outcome += ", " + signedBy(l.Signers)
			}
			t.field("outcome", outcome)
			t.text("")
		}
		t.field("verified", fmt.Sprintf("%s, %s, %s vouched, network %s", count(len(rep.Leases), "lease"), count(rep.Receipts, "receipt"), rep.Vouched, rep.Network))
	})
}

func verifiedLease(l ledger.LeaseReport) verified {
	v := verified{Lease: l.Lease, Renter: l.Terms.Renter, Provider: l.Terms.Provider, Simulated: l.Terms.Simulated,
		Price: l.Terms.Price, Receipts: l.Receipts, Acknowledged: l.Acknowledged, RanMS: billable(l.Cum),
		Due: l.Due, Vouched: l.Vouched, Signers: l.Signers, Devices: []verifiedCard{}}
	if l.Receipts > 0 {
		v.Head = &l.Head
	}
	for _, d := range l.Offer.Devices {
		card := verifiedCard{Model: d.Model}
		if d.MemBytes > 0 {
			card.MemBytes = &d.MemBytes
		}
		v.Devices = append(v.Devices, card)
	}
	if l.Outcome != nil {
		code := l.Outcome.Code.String()
		v.Outcome, v.Reason, v.ExitCode = &code, l.Outcome.Reason, l.Outcome.ExitCode
	}
	return v
}

func cards(ds []market.OfferedDevice) string {
	if len(ds) == 0 {
		return "none"
	}
	text := ds[0].Model
	if ds[0].MemBytes > 0 {
		text += " " + market.FormatBytes(ds[0].MemBytes)
	}
	if len(ds) > 1 {
		text = fmt.Sprintf("%d × %s", len(ds), text)
	}
	return text
}

// readFile reads a file of at most limit bytes, "-" for stdin; of a longer one, a byte more than that. What does not
// begin with begin is not read further, and is returned as far as it was. A pipe may never end; then ctx does.
func (c *cli) readFile(ctx context.Context, name string, limit int64, begin string) ([]byte, error) {
	var data []byte
	var err error
	read := make(chan struct{})
	go func() { // it outlives ctx where the system does not return; then the process is about to end
		defer close(read)
		data, err = c.readAll(name, limit, begin)
	}()
	select {
	case <-read:
		return data, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *cli) readAll(name string, limit int64, begin string) ([]byte, error) {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError("", "read %s: %w", name, pathCause(err))
		}
		defer f.Close()
		in = f
	}
	r := bufio.NewReader(io.LimitReader(in, limit+1))
	if first, err := r.Peek(len(begin)); string(first) != begin && (err == nil || errors.Is(err, io.EOF)) {
		return first, nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, pathCause(err))
	}
	return data, nil
}
