package ledger_test

import (
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/market/markettest"
)

func TestCheckOutcome(t *testing.T) {
	d := markettest.NewDeal(t, 1, 2, nil)
	d.Run(10 * time.Second)
	d.Run(10 * time.Second)
	d.Pay()
	good := d.Outcome(market.CodeLost)
	last := d.Receipts[len(d.Receipts)-1]
	early := market.Outcome{Version: 1, Lease: d.ID, EndedAt: good.EndedAt, Code: market.CodeLost}
	for _, tt := range []struct {
		name   string
		from   market.Outcome
		change func(*market.Outcome)
		ok     bool
	}{
		{"as it is", good, func(*market.Outcome) {}, true},
		{"before the first receipt", early, func(*market.Outcome) {}, true},
		{"before the voucher", good, func(o *market.Outcome) { o.Vouched, o.LastVoucher = 0, attest.Digest{} }, true},
		{"other number", good, func(o *market.Outcome) { o.LastSeq-- }, false},
		{"other head", good, func(o *market.Outcome) { o.Head[0]++ }, false},
		{"other usage", good, func(o *market.Outcome) { o.Cum = o.Cum.Add(gpu.Usage{gpu.EnergyMJ: 1}) }, false},
		{"more due", good, func(o *market.Outcome) { o.Due++ }, false},
		{"less vouched", good, func(o *market.Outcome) { o.Vouched-- }, false},
		{"unknown voucher", good, func(o *market.Outcome) { o.LastVoucher[0]++ }, false},
		{"vouched by nothing", good, func(o *market.Outcome) { o.LastVoucher = attest.Digest{} }, false},
		{"due before the first receipt", early, func(o *market.Outcome) { o.Due = 1 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.from
			tt.change(&o)
			if err := ledger.CheckOutcome(o, d.Lease, last, d.Vouchers); (err == nil) != tt.ok {
				t.Errorf("CheckOutcome = %v, want success: %v", err, tt.ok)
			}
		})
	}
}
