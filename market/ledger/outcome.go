package ledger

import (
	"errors"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
)

// CheckOutcome holds an outcome of a lease against what one side has of it: last is receipt o.LastSeq, and is not looked
// at if that is 0; vouchers are all that are known. An outcome that does not hold must not be kept beside the chain,
// since a receipt file with both would prove nothing.
func CheckOutcome(o market.Outcome, l market.Lease, last attest.Envelope, vouchers []attest.Envelope) error {
	var r receipt.Receipt
	var head attest.Digest
	var err error
	if o.LastSeq > 0 {
		head = last.ID()
		if r, err = attest.Decode[receipt.Receipt](last); err != nil {
			return err
		}
	}
	due, err := market.Due(l.Price, r.Cum)
	switch {
	case err != nil:
		return err
	case r.Seq != o.LastSeq || o.Head != head || !o.Cum.Equal(r.Cum):
		return fmt.Errorf("outcome: receipt %d is not the one it names, or states other usage", o.LastSeq)
	case o.Due != due:
		return fmt.Errorf("outcome: it states %s due, the receipts cost %s", o.Due, due)
	case r.Out != nil && o.Out != nil && *r.Out != *o.Out:
		return errors.New("outcome: other outputs than the last receipt states")
	case o.LastVoucher.IsZero() && o.Vouched == 0:
		return nil
	}
	for _, e := range vouchers {
		if e.ID() != o.LastVoucher {
			continue
		}
		v, err := attest.Decode[market.Voucher](e)
		if err == nil && (v.Total != o.Vouched || v.AckSeq > o.LastSeq) {
			err = fmt.Errorf("outcome: it states %s vouched, the voucher it names %s", o.Vouched, v.Total)
		}
		return err
	}
	return errors.New("outcome: it names an unknown voucher")
}
