package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// metric returns the value of a counter in a peer's metrics, "" if it is not there.
func metric(t *testing.T, p *nodetest.Peer, name string) string {
	t.Helper()
	b, err := p.Client.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func dropped(t *testing.T, p *nodetest.Peer, kind string) string {
	return metric(t, p, `lacuna_provider_dropped_total{kind="`+kind+`"}`)
}

// TestVouchers pays with every kind of voucher that is none, and with those of a bad line.
func TestVouchers(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h","count":2}]`, nil)
	r := newRaw(t, noPorts())
	l := r.draft(p, 200*time.Millisecond, 2*time.Minute, "sleeps")
	l.begin()
	l.readTo(1)
	first := l.next() // for receipt 1
	l.readTo(2)
	other := r.draft(p, 200*time.Millisecond, 2*time.Minute, "sleeps")
	other.begin()
	other.readTo(1)

	bad := 0
	send := func(name string, e attest.Envelope) {
		t.Logf("voucher: %s", name)
		l.send(work.Frame{Voucher: &e})
		bad++
	}
	changed := func(f func(*market.Voucher)) attest.Envelope {
		v := l.next()
		f(&v)
		return l.vouch(v)
	}
	send("total too low", changed(func(v *market.Voucher) { v.Total-- }))
	send("total too high", changed(func(v *market.Voucher) { v.Total++ }))
	send("of another lease", other.vouch(other.next()))
	send("for a receipt that is not there", changed(func(v *market.Voucher) { v.AckSeq += 1000 }))
	send("for another receipt", changed(func(v *market.Voucher) { v.Ack[0]++ }))
	send("of another pair", changed(func(v *market.Voucher) { v.Channel[0]++ }))
	send("by a stranger", newRaw(t, noPorts()).sign(market.VoucherDomain, l.next()))
	send("in another role", l.sign(market.AwardDomain, l.next()))
	broken := l.vouch(l.next())
	broken.Sig[0]++
	send("with a broken signature", broken)

	good := l.pay()
	l.provider(func(acked uint64, vouched market.MicroUSD) bool {
		return acked == l.voucher.AckSeq && vouched == l.voucher.Total
	})
	if got := dropped(t, p, "voucher"); got != "9" || bad != 9 {
		t.Errorf("%s vouchers are counted as dropped, want %d", got, bad)
	}
	// Late, repeated and overtaken ones change nothing and are nobody's fault; one that contradicts is dropped.
	l.send(work.Frame{Voucher: &good})
	fork := *l.voucher
	fork.At++
	fork.Seq, fork.Challenge = 1, random16()
	e := l.vouch(fork)
	l.send(work.Frame{Voucher: &e})
	first.Seq = l.voucher.Seq
	e = l.vouch(first)
	l.send(work.Frame{Voucher: &e})
	before := *l.voucher
	l.readTo(before.AckSeq + 2)
	l.voucher = &market.Voucher{Seq: before.Seq + 3, AckSeq: before.AckSeq} // two were lost on the way
	l.pay()
	l.provider(func(acked uint64, _ market.MicroUSD) bool { return acked == l.voucher.AckSeq })
	e = l.vouch(before) // an old one, overtaken
	l.send(work.Frame{Voucher: &e})
	if got := dropped(t, p, "voucher"); got != "11" {
		t.Errorf("%s vouchers are counted as dropped, want 11: the fork and the fall", got)
	}

	l.send(work.Frame{Cancel: &work.Cancel{Reason: "stopped"}})
	if err := l.read(func(f work.Frame) bool { return f.Result == nil }); err != nil {
		t.Fatal(err)
	}
	l.pay()
	o := l.readToEnd()
	if o.Code != market.CodeRenterCancel || o.Vouched != o.Due || o.Due != l.due() {
		t.Errorf("outcome %s, %s due, %s vouched", o.Code, o.Due, o.Vouched)
	}
	file, err := p.Client.ExportLease(t.Context(), l.id.Hex())
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := ledger.Verify(file); err != nil || rep.Vouched != o.Due {
		t.Errorf("the provider's file: %s vouched, %v", rep.Vouched, err)
	}
}

// TestUnpaid stops vouching. The job stands still at the limit and ends, and at no time more than the limit is open.
func TestUnpaid(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	r := newRaw(t, noPorts())
	l := r.draft(p, 200*time.Millisecond, time.Second, "sleeps")
	l.begin()
	l.readTo(3)
	l.pay()
	begun := time.Now()
	if err := l.read(func(f work.Frame) bool { return f.Result == nil }); err != nil {
		t.Fatal(err)
	}
	const slack = time.Minute // for a slow machine
	if took, limit := time.Since(begun), time.Second+200*time.Millisecond+10*time.Second; took > limit+slack {
		t.Errorf("the job ended %s after the last voucher, want at most %s", took, limit)
	}
	// The device is offered again at once, although nothing was settled.
	if _, _, d := r.offer(p, time.Second); d != nil {
		t.Errorf("declined after the unpaid lease: %v", d.Failures)
	}
	v, err := p.Client.Lease(t.Context(), l.id.Hex())
	if err != nil || l.result.Code != market.CodeUnpaid || v.State != "failed" || v.Reason != "not_acknowledged" {
		t.Errorf("result %s, lease %s (%s), %v", l.result.Code, v.State, v.Reason, err)
	}
	if open := v.Due - v.Vouched; v.Vouched != l.voucher.Total || open == 0 || open > ledger.AckLimit(l.lease) {
		t.Errorf("%s open at the end, limit %s", open, ledger.AckLimit(l.lease))
	}
	if last := l.tail.Last; last.State != receipt.Failed {
		t.Errorf("last receipt is %s, want failed", last.State)
	}
}

// TestLatePayment lets a job stand still and pays then: it goes on, on the same chain.
func TestLatePayment(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	l := newRaw(t, noPorts()).draft(p, 200*time.Millisecond, 200*time.Millisecond, "sleeps")
	l.begin()
	l.readTo(2) // two intervals are the limit
	eventually(t, func() error { return leaseIs(t, p, l.id, "paused") })
	open := l.due()
	if open > ledger.AckLimit(l.lease) {
		t.Errorf("%s open, limit %s", open, ledger.AckLimit(l.lease))
	}
	l.pay()
	l.readTo(3)
	if err := leaseIs(t, p, l.id, "running"); err != nil {
		t.Error(err)
	}
	if gap := l.tail.Last.Units; l.due() > open+l.lease.IntervalCost()+1 {
		t.Errorf("the pause is billed: %v", gap)
	}
}

func TestTrialCap(t *testing.T) {
	t.Parallel()
	// 3.60 USD/h are 1000 micro-USD a second, 200 an interval.
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h","count":2}]`, map[string]string{"provide.trial_per_day": "0.006 USD"})
	const limit = 6000 // long enough for both to begin on a slow machine
	// A second renter has the same cap: it is one for all that never settled.
	r, r2 := newRaw(t, noPorts()), newRaw(t, noPorts())
	a := r.draft(p, 200*time.Millisecond, 2*time.Minute, "sleeps")
	a.begin()
	b := r2.draft(p, 200*time.Millisecond, 2*time.Minute, "sleeps")
	b.begin()
	ends := make(chan market.Outcome, 2)
	for _, l := range []*rawLease{a, b} {
		go func() {
			for l.outcome == nil {
				seq := l.tail.Seq
				if err := l.read(func(work.Frame) bool { return l.outcome == nil && l.tail.Seq == seq }); err != nil {
					break
				}
				if l.outcome == nil && l.tail.Seq > 0 {
					v, err := market.NewVoucher(l.lease, l.tail, l.voucher, time.Now().UnixMilli(), random16())
					if err != nil {
						break
					}
					e := l.vouch(v)
					l.voucher = &v
					_ = l.s.Send(work.Frame{Voucher: &e})
				}
			}
			if l.outcome == nil {
				l.outcome = &market.Outcome{}
			}
			ends <- *l.outcome
		}()
	}
	var due market.MicroUSD
	for range 2 {
		o := <-ends
		due += o.Due
		if o.Code != market.CodeUnpaid || o.Reason != "credit_exceeded" || o.Vouched != o.Due {
			t.Errorf("outcome %s (%s), %s due, %s vouched", o.Code, o.Reason, o.Due, o.Vouched)
		}
	}
	if due > limit || due < limit/2 {
		t.Errorf("%s due in all, the cap is %s", due, market.MicroUSD(limit))
	}
	_, _, d := r2.offer(p, time.Second)
	if d == nil || d.Failures[0].Reason != market.CreditExceeded || d.Failures[0].Wanted == "" || d.Failures[0].Available == "" {
		t.Errorf("answer at the cap: %+v, want credit_exceeded", d)
	}
}

// TestAwards sends awards that do not hold. Each is refused in writing, and holds no device.
func TestAwards(t *testing.T) {
	t.Parallel()
	p, logged := watched(t, map[string]string{"provide.max_duration": "1h", "provide.max_disk": "1GiB"})
	r := newRaw(t, noPorts())
	terms := func(change func(*market.Terms)) func(*rawLease) {
		return func(l *rawLease) {
			var w market.Terms
			if err := attest.Unmarshal(l.terms, &w); err != nil {
				t.Fatal(err)
			}
			change(&w)
			var err error
			if l.terms, err = attest.Marshal(w); err != nil {
				t.Fatal(err)
			}
			l.lease.Work = attest.Sum(l.terms)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(l *rawLease)
		want   market.Reason
	}{
		{"lower price", func(l *rawLease) { l.lease.Price-- }, market.TermsDiffer},
		{"other device", func(l *rawLease) { l.lease.Devices[0][0]++ }, market.TermsDiffer},
		{"other interval", func(l *rawLease) { l.lease.IntervalMS++ }, market.TermsDiffer},
		{"real devices", func(l *rawLease) { l.lease.Simulated = false }, market.TermsDiffer},
		{"unknown offer", func(l *rawLease) { l.lease.Offer[0]++ }, market.OfferGone},
		{"other terms", func(l *rawLease) { l.terms = append(l.terms, 0) }, market.TermsDiffer},
		{"terms that are none", func(l *rawLease) { l.terms = []byte{1}; l.lease.Work = attest.Sum(l.terms) }, market.TermsDiffer},
		{"too long", func(l *rawLease) { l.lease.DurationMS = 7_200_000 }, market.TooLong},
		{"to another provider", func(l *rawLease) { l.lease.Provider[0]++ }, market.TermsDiffer},
		{"in another's name", func(l *rawLease) { l.lease.Renter[0]++ }, market.TermsDiffer},
		{"other engine", terms(func(w *market.Terms) { w.Engine = "another" }), market.WorkloadNotAllowed},
		{"more disk than the owner gives", terms(func(w *market.Terms) { w.DiskBytes = 1 << 30 }), market.HostDisk},
		{"a log of more disk", terms(func(w *market.Terms) { w.LogBytes = 1 << 30 }), market.HostDisk},
		{"an input of more disk", terms(func(w *market.Terms) {
			w.Inputs = []market.File{{Path: "/data", Digest: attest.Sum(nil), Bytes: 1 << 30}}
		}), market.HostDisk},
		{"folders in one another", terms(func(w *market.Terms) { w.Checkpoint = "/out/state" }), market.TermsDiffer},
	} {
		l := r.draft(p, time.Second, 2*time.Minute, "sleeps")
		tt.change(l)
		if got := l.refusal(l.sendAward()); got != tt.want {
			t.Errorf("%s: refused for %s, want %s", tt.name, got, tt.want)
		}
	}
	// Of two awards for one device the first wins; the same one again has the same answer, once it is there.
	one, two := r.draft(p, time.Second, 2*time.Minute, "sleeps"), newRaw(t, noPorts()).draft(p, time.Second, 2*time.Minute, "sleeps")
	accept := one.sendAward()
	if accept.Domain != market.AcceptDomain {
		t.Fatalf("refused: %s", one.refusal(accept))
	}
	if got := two.refusal(two.sendAward()); got != market.Sold {
		t.Errorf("second award refused for %s, want sold", got)
	}
	again, err := r.deal.SendAward(t.Context(), p.Node.Key(), nil, one.award, one.terms)
	if diff := cmp.Diff(accept, again); err != nil || diff != "" {
		t.Errorf("the same award again: %v, (-first +again):\n%s", err, diff)
	}
	// No start comes: the device is free again within the time that the award holds it.
	eventually(t, func() error { return deviceIs(t, p, "free") })
	late := one.refusal(func() attest.Envelope {
		e, _ := r.deal.SendAward(t.Context(), p.Node.Key(), nil, one.award, one.terms)
		return e
	}())
	if late != market.Sold && late != market.OfferGone {
		t.Errorf("the award after its time: %s", late)
	}
	logged.quiet(t)
}

// TestRenterLies ends leases by outcomes that are not true. The provider keeps what proves the contrary and goes on.
func TestRenterLies(t *testing.T) {
	t.Parallel()
	p, logged := watched(t, nil)
	for _, tt := range []struct {
		name   string
		change func(o *market.Outcome)
	}{
		{"done", func(o *market.Outcome) { o.Code, o.ExitCode = market.CodeDone, new(uint64) }},
		{"other receipt", func(o *market.Outcome) { o.Head[0]++ }},
		{"more receipts", func(o *market.Outcome) { o.LastSeq += 10 }},
		{"less due", func(o *market.Outcome) { o.Due, o.Vouched = 0, 0 }},
		{"voucher that is not there", func(o *market.Outcome) { o.LastVoucher[0]++ }},
	} {
		l := newRaw(t, noPorts()).draft(p, 200*time.Millisecond, 2*time.Minute, "sleeps")
		l.begin()
		if tt.name != "done" { // that one is sent while the job is being staged: there is no process whose end it could be
			l.readTo(1)
		}
		o := market.Outcome{Version: 1, Lease: l.id, LastSeq: l.tail.Seq, Head: l.tail.ID, Due: l.due(), Cum: l.tail.Last.Cum,
			EndedAt: time.Now().UnixMilli(), Code: market.CodeLost}
		tt.change(&o)
		e := l.sign(market.OutcomeRenterDomain, o)
		l.send(work.Frame{Outcome: &e})
		eventually(t, func() error { return leaseIs(t, p, l.id, "failed") })
		file, err := p.Client.ExportLease(t.Context(), l.id.Hex())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Verify(file); err != nil {
			t.Errorf("%s: the provider's own file does not verify: %v", tt.name, err)
		}
		eventually(t, func() error { return deviceIs(t, p, "free") })
	}
	logged.quiet(t)
}
