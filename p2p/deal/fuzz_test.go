package deal_test

import (
	"bytes"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p/deal"
)

func FuzzMessages(f *testing.F) {
	for _, v := range []any{
		map[int]attest.Envelope{1: bid}, map[int]attest.Envelope{1: offer}, map[int]attest.Envelope{1: accept},
		map[int]any{1: award, 2: []byte("terms")}, map[int]int{1: 1}, map[int]int{},
		deal.Ending{Outcome: outcome, Receipts: receipts(2, 8)},
		deal.Settlement{Code: deal.OK, Voucher: &voucher, Outcome: &outcome},
	} {
		b, err := attest.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		accepted := 0
		for _, m := range deal.Messages() {
			if attest.Unmarshal(b, m) == nil {
				accepted++
			}
		}
		if accepted == 0 {
			f.Fatalf("%T is none of the messages", v)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range deal.Messages() {
			if attest.Unmarshal(b, m) != nil {
				continue
			}
			again, err := attest.Marshal(m)
			if err != nil || !bytes.Equal(b, again) {
				t.Fatalf("%T: %x encodes to %x, %v", m, b, again, err)
			}
		}
	})
}
