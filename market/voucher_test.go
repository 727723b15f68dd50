package market_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// vouchers is a lease with a voucher after each of n receipts of one second, which cost 100 micro-USD each.
func vouchers(tb testing.TB, n int) (*markettest.Deal, []market.Voucher) {
	tb.Helper()
	d := markettest.NewDeal(tb, 1, 2, nil)
	var out []market.Voucher
	for range n {
		d.Run(time.Second)
		d.Pay()
		out = append(out, *d.Last)
	}
	return d, out
}

// check calls CheckVoucher with the receipt that v acknowledges.
func check(tb testing.TB, d *markettest.Deal, v market.Voucher, last *market.Voucher) error {
	tb.Helper()
	if v.AckSeq == 0 || v.AckSeq > uint64(len(d.Receipts)) {
		tb.Fatalf("voucher acknowledges receipt %d of %d", v.AckSeq, len(d.Receipts))
	}
	e := d.Receipts[v.AckSeq-1]
	r, err := attest.Decode[receipt.Receipt](e)
	if err != nil {
		tb.Fatal(err)
	}
	return market.CheckVoucher(v, d.Lease, d.ID, r.Cum, e.ID(), last)
}

func TestVouchersAreExact(t *testing.T) {
	d, vs := vouchers(t, 3)
	for i, v := range vs {
		if want := market.MicroUSD(100 * (i + 1)); v.Total != want || v.Seq != uint64(i+1) || v.AckSeq != uint64(i+1) {
			t.Errorf("voucher %d = %+v, want a total of %d", i+1, v, want)
		}
		var last *market.Voucher
		if i > 0 {
			last = &vs[i-1]
		}
		if err := check(t, d, v, last); err != nil {
			t.Errorf("voucher %d: %v", i+1, err)
		}
	}
}

func TestCheckVoucher(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*market.Voucher)
		want   error
	}{
		{"good", func(*market.Voucher) {}, nil},
		{"number left out", func(v *market.Voucher) { v.Seq += 5 }, nil},
		{"1 less", func(v *market.Voucher) { v.Total-- }, market.ErrVoid},
		{"1 more", func(v *market.Voucher) { v.Total++ }, market.ErrVoid},
		{"nothing", func(v *market.Voucher) { v.Total = 0 }, market.ErrVoid},
		{"another receipt", func(v *market.Voucher) { v.Ack[0]++ }, market.ErrVoid},
		{"another lease", func(v *market.Voucher) { v.Lease[0]++ }, market.ErrVoid},
		{"another channel", func(v *market.Voucher) { v.Channel[0]++ }, market.ErrVoid},
		{"number of the last one", func(v *market.Voucher) { v.Seq = 2 }, market.ErrVoid},
		{"lower number, higher total", func(v *market.Voucher) { v.Seq = 1 }, market.ErrVoid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, vs := vouchers(t, 3)
			v := vs[2]
			tt.change(&v)
			if err := check(t, d, v, &vs[1]); !errors.Is(err, tt.want) || errors.Is(err, market.ErrStale) {
				t.Errorf("CheckVoucher = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestRegressionIsVoid(t *testing.T) {
	d, vs := vouchers(t, 3)
	fall := vs[1] // acknowledges 2, after 3 was acknowledged
	fall.Seq = 4
	if err := check(t, d, fall, &vs[2]); !errors.Is(err, market.ErrVoid) {
		t.Errorf("a higher number with a lower total: %v, want ErrVoid", err)
	}
	twice := vs[2]
	twice.Seq = 4
	if err := check(t, d, twice, &vs[2]); !errors.Is(err, market.ErrVoid) {
		t.Errorf("a higher number that acknowledges nothing new: %v, want ErrVoid", err)
	}
	other := vs[2]
	other.At++
	if err := check(t, d, other, &vs[2]); !errors.Is(err, market.ErrVoid) {
		t.Errorf("two vouchers of one number: %v, want ErrVoid", err)
	}
}

// Vouchers of 100, 200, 300 that arrive in any order, or several times, leave the highest one standing, and none of the
// late ones is a fault.
func TestReorderedVouchers(t *testing.T) {
	for _, order := range [][]int{{300, 100, 200}, {100, 300, 200}, {100, 200, 300}, {300}, {300, 300, 100, 300}, {200, 100, 300, 200}} {
		d, vs := vouchers(t, 3)
		var last *market.Voucher
		for _, total := range order {
			v := vs[total/100-1]
			switch err := check(t, d, v, last); {
			case err == nil:
				last = &v
			case !errors.Is(err, market.ErrStale) || errors.Is(err, market.ErrVoid):
				t.Errorf("%v: voucher %d: %v, want ErrStale", order, total, err)
			}
		}
		if last == nil || last.Total != 300 {
			t.Errorf("%v leaves %+v, want a total of 300", order, last)
		}
	}
}

func TestNewVoucherRefuses(t *testing.T) {
	d, vs := vouchers(t, 1)
	if _, err := market.NewVoucher(d.Lease, d.Tail, &vs[0], 1, receipt.Challenge{}); err == nil {
		t.Error("a receipt was acknowledged twice")
	}
	if _, err := market.NewVoucher(d.Lease, receipt.Tail{Lease: d.ID}, nil, 1, receipt.Challenge{}); err == nil {
		t.Error("a voucher without a receipt")
	}
	huge := d.Tail
	huge.Last.Cum = gpu.Usage{gpu.BillableDeviceMS: 1<<64 - 1}
	l := d.Lease
	l.Price = market.MaxAmount
	if _, err := market.NewVoucher(l, huge, nil, 1, receipt.Challenge{}); !errors.Is(err, market.ErrOverflow) {
		t.Errorf("an amount that does not fit: %v, want ErrOverflow", err)
	}
}

func TestOpenVoucher(t *testing.T) {
	d, _ := vouchers(t, 1)
	network := markettest.NetworkID()
	if _, err := market.OpenVoucher(d.Vouchers[0], network, d.Renter.Key()); err != nil {
		t.Error(err)
	}
	self := d.Provider.SignBytes(market.VoucherDomain, d.Vouchers[0].Payload)
	if _, err := market.OpenVoucher(self, network, d.Renter.Key()); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("a voucher signed by the provider: %v, want ErrSignature", err)
	}
}

func TestChannelIsOfOnePair(t *testing.T) {
	a, b := markettest.Signer(1).Key(), markettest.Signer(2).Key()
	there, back, again := market.Channel(a, b), market.Channel(b, a), market.Channel(a, b)
	if there == back || there != again {
		t.Error("a channel does not name its two sides")
	}
}
