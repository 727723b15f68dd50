package ledger_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// deal is a lease with four receipts, the last one final, and two vouchers over all of them.
func deal(tb testing.TB, renter, provider uint64) *markettest.Deal {
	tb.Helper()
	d := markettest.NewDeal(tb, renter, provider, nil)
	d.Run(10 * time.Second)
	d.Run(10 * time.Second)
	d.Pay()
	d.Run(10 * time.Second)
	d.Add(d.Next(3*time.Second, receipt.Final))
	d.Pay()
	d.End(market.CodeDone)
	return d
}

func encode(tb testing.TB, f ledger.File) []byte {
	tb.Helper()
	b, err := f.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestVerify(t *testing.T) {
	one := deal(t, 1, 2)
	two := markettest.NewDeal(t, 1, 3, nil)
	two.Run(10 * time.Second)
	two.Pay()
	two.Run(5 * time.Second) // not acknowledged, no outcome
	b := encode(t, markettest.File(one, two))
	got, err := ledger.Verify(b)
	if err != nil {
		t.Fatal(err)
	}
	open := func(d *markettest.Deal) market.Offer {
		o, err := attest.Decode[market.Offer](d.Offer)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	outcome := one.Outcome(market.CodeDone)
	want := ledger.Report{Network: markettest.Network, Receipts: 6, Due: 4800, Vouched: 4300, Leases: []ledger.LeaseReport{
		{Lease: one.ID, Terms: one.Lease, Offer: open(one), Receipts: 4, Acknowledged: 4, Head: one.Tail.ID, Cum: one.Tail.Last.Cum,
			Due: 3300, Vouched: 3300, Outcome: &outcome, Signers: 2},
		{Lease: two.ID, Terms: two.Lease, Offer: open(two), Receipts: 2, Acknowledged: 1, Head: two.Tail.ID, Cum: two.Tail.Last.Cum,
			Due: 1500, Vouched: 1000},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if !bytes.HasPrefix(b, []byte("LACR1\n")) {
		t.Errorf("a receipt file begins with %q", b[:6])
	}
}

func TestVerifyShortLives(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*markettest.Deal)
	}{
		{"never started", func(*markettest.Deal) {}},
		{"never started, ended in writing", func(d *markettest.Deal) { d.End(market.CodeRenterCancel) }},
		{"unpaid", func(d *markettest.Deal) { d.Run(time.Second); d.End(market.CodeUnpaid) }},
		{"one side's outcome", func(d *markettest.Deal) {
			d.Run(time.Second)
			d.End(market.CodeLost)
			d.Outcomes = d.Outcomes[1:]
		}},
		{"one side's outcome, written before the last receipt and voucher came", func(d *markettest.Deal) {
			d.Run(time.Second)
			d.Pay()
			d.End(market.CodeLost)
			d.Outcomes = d.Outcomes[:1]
			d.Run(time.Second)
			d.Pay()
		}},
		{"each side's own outcome", func(d *markettest.Deal) {
			d.Run(time.Second)
			d.End(market.CodeLost)
			d.Outcomes = d.Outcomes[:1]
			d.Run(time.Second)
			d.End(market.CodeLost)
			d.Outcomes = []attest.Envelope{d.Outcomes[0], d.Outcomes[2]}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := markettest.NewDeal(t, 1, 2, nil)
			tt.do(d)
			rep, err := ledger.Verify(encode(t, markettest.File(d)))
			if err != nil {
				t.Fatal(err)
			}
			if got := rep.Leases[0].Signers; got != len(d.Outcomes) || (rep.Leases[0].Outcome == nil) != (got == 0) {
				t.Errorf("%d signers, want %d", got, len(d.Outcomes))
			}
		})
	}
}

// Each single byte of a file counts.
func TestEveryByteIsHeld(t *testing.T) {
	b := encode(t, markettest.File(deal(t, 1, 2)))
	for i := range b {
		for _, flip := range []byte{0x01, 0x80} {
			b[i] ^= flip
			if _, err := ledger.Verify(b); !errors.Is(err, ledger.ErrProof) {
				t.Fatalf("byte %d changed by %#x: %v, want ErrProof", i, flip, err)
			}
			b[i] ^= flip
		}
	}
	for n := range b {
		if _, err := ledger.Verify(b[:n]); !errors.Is(err, ledger.ErrProof) {
			t.Fatalf("cut to %d bytes: %v, want ErrProof", n, err)
		}
	}
	if _, err := ledger.Verify(append(slices.Clone(b), 0)); !errors.Is(err, ledger.ErrProof) {
		t.Error("a byte too many was accepted")
	}
	if _, err := ledger.Verify(b); err != nil {
		t.Errorf("the file as it was: %v", err)
	}
}

// The digest at the end is no proof: who changes the file can write a new one. Then each byte is held by a signature or
// by what the objects say of each other.
func TestEveryByteIsHeldWithoutTheDigest(t *testing.T) {
	b := encode(t, markettest.File(deal(t, 1, 2)))
	body := b[:len(b)-32]
	for i := len(ledger.Magic); i < len(body); i++ {
		changed := slices.Clone(body)
		changed[i] ^= 0x01
		if _, err := ledger.Verify(seal(changed)); !errors.Is(err, ledger.ErrProof) {
			t.Fatalf("byte %d changed, digest renewed: %v, want ErrProof", i, err)
		}
	}
}

// seal appends the digest of a file's body.
func seal(body []byte) []byte {
	sum := attest.Sum(body)
	return append(slices.Clone(body), sum[:]...)
}

func TestTampering(t *testing.T) {
	type file = ledger.LeaseFile
	other := markettest.NewDeal(t, 1, 4, nil)
	other.Run(10 * time.Second)
	other.Pay()
	other.End(market.CodeDone)
	resign := func(t *testing.T, d *markettest.Deal, i int, change func(*receipt.Receipt)) attest.Envelope {
		r, err := attest.Decode[receipt.Receipt](d.Receipts[i])
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		return markettest.Sign(t, d.Provider, receipt.Domain, r)
	}
	revouch := func(t *testing.T, d *markettest.Deal, i int, change func(*market.Voucher)) attest.Envelope {
		v, err := attest.Decode[market.Voucher](d.Vouchers[i])
		if err != nil {
			t.Fatal(err)
		}
		change(&v)
		return markettest.Sign(t, d.Renter, market.VoucherDomain, v)
	}
	both := func(t *testing.T, d *markettest.Deal, change func(*market.Outcome)) []attest.Envelope {
		o := d.Outcome(market.CodeDone)
		change(&o)
		e := markettest.Sign(t, d.Renter, market.OutcomeRenterDomain, o)
		return []attest.Envelope{e, d.Provider.SignBytes(market.OutcomeProviderDomain, e.Payload)}
	}
	relet := func(t *testing.T, d *markettest.Deal, f *file, change func(*market.Lease)) {
		l := d.Lease
		change(&l)
		f.Award = markettest.Sign(t, d.Renter, market.AwardDomain, l)
		f.Accept = d.Provider.SignBytes(market.AcceptDomain, f.Award.Payload)
		f.Receipts, f.Vouchers, f.Outcomes = nil, nil, nil
	}
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *markettest.Deal, *file)
		want   string
	}{
		{"receipts swapped", func(_ *testing.T, _ *markettest.Deal, f *file) {
			f.Receipts[1], f.Receipts[2] = f.Receipts[2], f.Receipts[1]
		}, "receipt 3: chain broken"},
		{"receipt dropped", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Receipts = slices.Delete(f.Receipts, 1, 2) }, "receipt 3: chain broken: want number 2"},
		{"first receipt dropped", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Receipts = f.Receipts[1:] }, "receipt 2: chain broken: want number 1"},
		{"last receipt dropped", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Receipts = f.Receipts[:3] }, "voucher 2: voucher is void: it acknowledges receipt 4, which is missing"},
		{"receipt twice", func(_ *testing.T, _ *markettest.Deal, f *file) {
			f.Receipts = slices.Insert(f.Receipts, 1, f.Receipts[0])
		}, "receipt is known"},
		{"receipt of another lease", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Receipts[0] = other.Receipts[0] }, "receipt 1: signature does not hold: signed by"},
		{"receipt signed by the renter", func(_ *testing.T, d *markettest.Deal, f *file) {
			f.Receipts[0] = d.Renter.SignBytes(receipt.Domain, f.Receipts[0].Payload)
		}, "not by the provider"},
		{"receipt that bills more", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Receipts[3] = resign(t, d, 3, func(r *receipt.Receipt) {
				r.Units[gpu.BillableDeviceMS] += 1000
				r.Cum[gpu.BillableDeviceMS] += 1000
			})
		}, "voucher 2: voucher is void: it acknowledges an unknown receipt 4"},
		{"receipt that does not add up", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Receipts[3] = resign(t, d, 3, func(r *receipt.Receipt) { r.Cum[gpu.BillableDeviceMS]++ })
		}, "receipt 4: counters do not add up"},
		{"receipt over other times", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Receipts[3] = resign(t, d, 3, func(r *receipt.Receipt) { r.T0-- })
		}, "receipt 4: times do not fit"},
		{"receipt of real devices", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Receipts[3] = resign(t, d, 3, func(r *receipt.Receipt) { r.Simulated = false })
		}, "receipt 4: lease and receipt differ on whether"},
		{"receipt in a voucher's place", func(_ *testing.T, d *markettest.Deal, f *file) {
			f.Vouchers[0] = d.Renter.SignBytes(market.VoucherDomain, f.Receipts[0].Payload)
		}, "voucher 1: lacuna/voucher/renter/1: not canonical"},

		{"voucher lowered", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Vouchers[1] = revouch(t, d, 1, func(v *market.Voucher) { v.Total-- })
		}, "voucher 2: voucher is void: it promises"},
		{"voucher raised", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Vouchers[1] = revouch(t, d, 1, func(v *market.Voucher) { v.Total++ })
		}, "voucher 2: voucher is void: it promises"},
		{"vouchers swapped", func(_ *testing.T, _ *markettest.Deal, f *file) { slices.Reverse(f.Vouchers) }, "voucher 1: voucher was overtaken"},
		{"voucher twice", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Vouchers[1] = f.Vouchers[0] }, "voucher 1: voucher was overtaken"},
		{"last voucher dropped", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Vouchers = f.Vouchers[:1] }, "outcome"},
		{"all vouchers dropped", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Vouchers = nil }, "outcome"},
		{"voucher signed by the provider", func(_ *testing.T, d *markettest.Deal, f *file) {
			f.Vouchers[0] = d.Provider.SignBytes(market.VoucherDomain, f.Vouchers[0].Payload)
		}, "voucher 1: signature does not hold"},
		{"voucher of another lease", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Vouchers[0] = revouch(t, d, 0, func(v *market.Voucher) { v.Lease = other.ID })
		}, "it belongs to another lease"},

		{"other offer", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Offer = other.Offer }, "offer: not signed by the provider of the lease"},
		{"other offer of the same provider", func(t *testing.T, d *markettest.Deal, f *file) {
			o := markettest.Offer(d.Provider.Key(), d.Bid.ID())
			o.Price--
			f.Offer = markettest.Sign(t, d.Provider, market.OfferDomain, o)
		}, "lease: differs from the offer"},
		{"lease at another price", func(t *testing.T, d *markettest.Deal, f *file) {
			relet(t, d, f, func(l *market.Lease) { l.Price++ })
		}, "lease: differs from the offer"},
		{"award signed by another", func(_ *testing.T, _ *markettest.Deal, f *file) {
			f.Award = markettest.Signer(9).SignBytes(market.AwardDomain, f.Award.Payload)
		}, "award: signature does not hold"},
		{"accept signed by the renter", func(_ *testing.T, d *markettest.Deal, f *file) {
			f.Accept = d.Renter.SignBytes(market.AcceptDomain, f.Award.Payload)
		}, "accept: signature does not hold"},
		{"award in the accept's place", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Accept = f.Award }, "accept: signed as another object"},
		{"accept over other terms", func(t *testing.T, d *markettest.Deal, f *file) {
			l := d.Lease
			l.Budget++
			f.Accept = markettest.Sign(t, d.Provider, market.AcceptDomain, l)
		}, "award and accept are not over the same lease"},
		{"more due than the budget", func(t *testing.T, d *markettest.Deal, f *file) {
			small := markettest.NewDeal(t, 1, 2, nil)
			relet(t, small, f, func(l *market.Lease) { l.Budget = 999 })
			small.ID = f.Award.ID()
			small.Tail.Lease = small.ID
			small.Run(10 * time.Second)
			f.Receipts = small.Receipts
		}, "budget is 0.000999 USD"},

		{"outcome of more receipts", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.LastSeq++ })
		}, "outcome: it states 5 receipts"},
		{"outcome of fewer receipts", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.LastSeq-- })
		}, "outcome: it states 3"},
		{"outcome with another head", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.Head[0]++ })
		}, "outcome"},
		{"outcome with more due", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.Due++ })
		}, "outcome"},
		{"outcome with less vouched", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.Vouched-- })
		}, "outcome"},
		{"outcome with other usage", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.Cum = o.Cum.Add(gpu.Usage{gpu.EnergyMJ: 1}) })
		}, "outcome"},
		{"outcome with another voucher", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.LastVoucher[0]++ })
		}, "outcome"},
		{"outcome with other outputs", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { out := attest.Sum(nil); o.Out = &out })
		}, "outcome"},
		{"both agree on an earlier point", func(t *testing.T, d *markettest.Deal, f *file) {
			half := markettest.NewDeal(t, 1, 2, nil)
			half.Run(10 * time.Second)
			half.End(market.CodeDone)
			f.Outcomes = half.Outcomes
		}, "outcome: it states 1 receipts"},
		{"one side's false outcome", func(t *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = both(t, d, func(o *market.Outcome) { o.LastSeq--; o.Due -= 5; o.Vouched -= 10 })[:1]
		}, "outcome: receipt 3"},
		{"outcome of another lease", func(_ *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes = []attest.Envelope{d.Renter.SignBytes(market.OutcomeRenterDomain, other.Outcomes[0].Payload)}
		}, "outcome: of another lease"},
		{"outcome of a stranger", func(_ *testing.T, d *markettest.Deal, f *file) {
			f.Outcomes[0] = markettest.Signer(9).SignBytes(market.OutcomeRenterDomain, f.Outcomes[0].Payload)
		}, "who is not a party"},
		{"outcome of one side twice", func(_ *testing.T, _ *markettest.Deal, f *file) { f.Outcomes[1] = f.Outcomes[0] }, "one party signed two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := deal(t, 1, 2)
			f := markettest.File(d)
			tt.change(t, d, &f.Leases[0])
			_, err := ledger.Verify(encode(t, f))
			if !errors.Is(err, ledger.ErrProof) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTamperedFiles(t *testing.T) {
	d := deal(t, 1, 2)
	real := markettest.NewDeal(t, 1, 2, func(o *market.Offer) { o.Simulated = false })
	for _, tt := range []struct {
		name string
		f    ledger.File
		want string
	}{
		{"no lease", ledger.File{Network: markettest.Network}, "holds no lease"},
		{"a lease twice", markettest.File(d, real, d), "lease 3 of 3: the lease stands in the file twice"},
		{"another network", ledger.File{Network: "test-other", Leases: markettest.File(d).Leases}, "award: signature does not hold"},
		{"empty lease", ledger.File{Network: markettest.Network, Leases: make([]ledger.LeaseFile, 1)}, "award: signed as another object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ledger.Verify(encode(t, tt.f)); !errors.Is(err, ledger.ErrProof) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify = %v, want %q", err, tt.want)
			}
		})
	}
	good := encode(t, markettest.File(d))
	body := good[:len(good)-32]
	for name, b := range map[string][]byte{
		"empty": nil, "magic alone": []byte(ledger.Magic), "magic and a digest": seal([]byte(ledger.Magic)),
		"another version": seal(bytes.Replace(body, []byte("LACR1"), []byte("LACR2"), 1)),
		"not CBOR":        seal(append([]byte(ledger.Magic), "hello"...)), "trailing byte": seal(append(slices.Clone(body), 0)),
		"twice": append(slices.Clone(good), good...),
	} {
		if _, err := ledger.Verify(b); !errors.Is(err, ledger.ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
}

// Simulated devices prove nothing outside a test network.
func TestSimulatedDevicesNeedATestNetwork(t *testing.T) {
	const network = "main"
	id := attest.NetworkID(network)
	renter, provider := markettest.SignerOn(1, id), markettest.SignerOn(2, id)
	for _, simulated := range []bool{true, false} {
		o := markettest.Offer(provider.Key(), attest.Sum([]byte("bid")))
		o.Simulated = simulated
		offer := markettest.Sign(t, provider, market.OfferDomain, o)
		l := markettest.NewDeal(t, 1, 2, nil).Lease
		l.Network, l.Bid, l.Offer, l.Simulated = id, o.Bid, offer.ID(), simulated
		award := markettest.Sign(t, renter, market.AwardDomain, l)
		f := ledger.File{Network: network, Leases: []ledger.LeaseFile{{Offer: offer, Award: award,
			Accept: provider.SignBytes(market.AcceptDomain, award.Payload)}}}
		if _, err := ledger.Verify(encode(t, f)); (err != nil) != simulated {
			t.Errorf("simulated %v: %v", simulated, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	good := encode(f, markettest.File(deal(f, 1, 2)))
	f.Add(good[len(ledger.Magic) : len(good)-32])
	f.Add([]byte{0xa2, 0x01, 0x61, 't', 0x02, 0x80})
	f.Fuzz(func(t *testing.T, cbor []byte) {
		if _, err := ledger.Verify(cbor); err != nil && !errors.Is(err, ledger.ErrProof) {
			t.Errorf("%v, want ErrProof", err)
		}
		// With magic and digest in place, so that what lies behind them is reached.
		if _, err := ledger.Verify(seal(append([]byte(ledger.Magic), cbor...))); err != nil && !errors.Is(err, ledger.ErrProof) {
			t.Errorf("%v, want ErrProof", err)
		}
	})
}

func BenchmarkVerifyFile(b *testing.B) {
	d := markettest.NewDeal(b, 1, 2, nil)
	for range 100 {
		d.Run(10 * time.Second)
		d.Pay()
	}
	d.End(market.CodeDone)
	data := encode(b, markettest.File(d))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := ledger.Verify(data); err != nil {
			b.Fatal(err)
		}
	}
}
