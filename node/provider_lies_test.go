package node_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// lying runs a job at a liar, which is the only provider that the job may go to, and returns it with the receipt file's
// report.
func lying(t *testing.T, r *nodetest.Peer, script func(*told)) (renter.Job, *liar, string) {
	t.Helper()
	l := newLiar(t, r, &liar{script: script})
	s := guest(t, "exit", "0")
	to := filepath.Join(t.TempDir(), "results")
	s.Outputs = []market.Transfer{{From: "/out", To: to}}
	s.Providers, s.DiskBytes, s.LogBytes, s.StartWithin = []attest.Key{l.signer.Key()}, 1<<20, 1000, time.Minute
	return run(t, r, s), l, to
}

// TestHonestByHand holds the harness: what the liars change is right before they change it.
func TestHonestByHand(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	j, _, to := lying(t, r, func(d *told) {
		d.ready()
		d.send(work.Frame{Log: &work.Log{Stream: work.Stdout, Data: []byte("hello")}})
		d.state(d.receipt(200, receipt.Running))
		d.paid()
		d.finish([]market.File{d.file("out/a/b", "result")}, nil, nil)
	})
	want(t, j, renter.JobSucceeded, "")
	if rep := paid(t, r, j.ID); rep.Receipts != 2 || below(t, to, "a/b") != "result" {
		t.Errorf("%d receipts, output %q", rep.Receipts, below(t, to, "a/b"))
	}
	if out, _ := output(t, r, j.ID); out != "hello" {
		t.Errorf("log %q", out)
	}
}

// TestBadReceipts sends one honest receipt and a bad one. The bad one is not paid, and the provider is to blame.
func TestBadReceipts(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	for _, tt := range []struct {
		name   string
		change func(d *told, r *receipt.Receipt)
	}{
		{"gap", func(_ *told, r *receipt.Receipt) { r.Seq++ }},
		{"other predecessor", func(_ *told, r *receipt.Receipt) { r.Prev[0]++ }},
		{"falling counter", func(_ *told, r *receipt.Receipt) { r.Cum = gpu.Usage{gpu.BillableDeviceMS: 100} }},
		{"sum that is none", func(_ *told, r *receipt.Receipt) { r.Cum = r.Cum.Add(gpu.Usage{gpu.BillableDeviceMS: 1}) }},
		{"more time than passed", func(d *told, r *receipt.Receipt) { *r = d.receipt(600_000, receipt.Running) }},
		{"more than the budget", func(d *told, r *receipt.Receipt) { *r = d.receipt(4_000_000, receipt.Running) }},
		{"time that runs back", func(_ *told, r *receipt.Receipt) { r.T0 -= 1000; r.T1 -= 1000 }},
		{"other challenge", func(_ *told, r *receipt.Receipt) { r.Challenge = random16() }},
		{"of another lease", func(_ *told, r *receipt.Receipt) { r.Lease[0]++ }},
		{"real devices", func(_ *told, r *receipt.Receipt) { r.Simulated = false }},
		{"second one with its number", func(d *told, r *receipt.Receipt) { *r = d.tail.Last; r.MonoMS++ }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j, l, _ := lying(t, r, func(d *told) {
				d.ready()
				d.state(d.receipt(200, receipt.Running))
				d.paid()
				bad := d.receipt(200, receipt.Running)
				tt.change(d, &bad)
				d.state(bad)
			})
			want(t, j, renter.JobStopped, "bad_receipt")
			refused(t, r, j, l, 1)
		})
	}
	for name, change := range map[string]func(*attest.Envelope, attest.Signer){
		"broken signature": func(e *attest.Envelope, _ attest.Signer) { e.Sig[0]++ },
		"other signer":     func(e *attest.Envelope, s attest.Signer) { *e = s.SignBytes(receipt.Domain, e.Payload) },
		"other role":       func(e *attest.Envelope, _ attest.Signer) { e.Domain = market.VoucherDomain },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := newRaw(t, noPorts()).signer
			j, l, _ := lying(t, r, func(d *told) {
				d.ready()
				d.state(d.receipt(200, receipt.Running))
				d.paid()
				e := d.sign(receipt.Domain, d.receipt(200, receipt.Running))
				change(&e, other)
				d.send(work.Frame{Receipt: &e})
			})
			want(t, j, renter.JobStopped, "bad_receipt")
			refused(t, r, j, l, 1)
		})
	}
	t.Run("more than there were intervals", func(t *testing.T) {
		const most = 1000 // far above what there is time for
		l := newLiar(t, r, &liar{script: func(d *told) {
			d.ready()
			for range most {
				d.state(d.receipt(1, receipt.Running))
				if v, _ := d.paid(); v.Version == 0 {
					return // the renter has ended the stream
				}
			}
		}})
		s := guest(t, "exit", "0")
		s.Providers, s.Interval = []attest.Key{l.signer.Key()}, 10*time.Second
		j := run(t, r, s)
		want(t, j, renter.JobStopped, "bad_receipt")
		if j.Receipts < 16 || j.Receipts >= most/2 {
			t.Errorf("%d receipts were accepted", j.Receipts)
		}
	})
	t.Run("before the job was said to run", func(t *testing.T) {
		j, l, _ := lying(t, r, func(d *told) { d.state(d.receipt(200, receipt.Running)) })
		want(t, j, renter.JobStopped, "bad_receipt")
		refused(t, r, j, l, 0)
	})
	t.Run("repeated", func(t *testing.T) { // is nobody's fault
		j, _, _ := lying(t, r, func(d *told) {
			d.ready()
			e := d.state(d.receipt(200, receipt.Running))
			d.send(work.Frame{Receipt: &e})
			d.paid()
			d.send(work.Frame{Receipt: &e})
			d.finish(nil, nil, nil)
		})
		want(t, j, renter.JobSucceeded, "")
		paid(t, r, j.ID)
	})
}

// refused holds a job whose provider lied after that many honest receipts.
func refused(t *testing.T, r *nodetest.Peer, j renter.Job, l *liar, receipts int) {
	t.Helper()
	rep := proof(t, r, j.ID)
	if rep.Receipts != receipts || rep.Vouched != rep.Due {
		t.Errorf("%d receipts in the file, %s due, %s vouched; want %d", rep.Receipts, rep.Due, rep.Vouched, receipts)
	}
	v, err := r.Client.Reputation(t.Context(), l.signer.Key())
	if err != nil || len(v.Terms) != 1 || v.Terms[0].OK {
		t.Errorf("reputation %+v, %v; want one failure", v.Terms, err)
	}
}

func TestBadEnds(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	good := func(d *told) []market.File { return []market.File{d.file("out/a", "result")} }
	for _, tt := range []struct {
		name    string
		reason  string
		files   func(*told) []market.File
		result  func(*work.Result)
		outcome func(*market.Outcome)
	}{
		{"exit code that is not there", "bad_result", good, func(r *work.Result) { r.ExitCode = nil }, nil},
		{"outputs that are not there", "bad_result", good, func(r *work.Result) { r.Manifest = nil }, nil},
		{"unknown code", "bad_result", good, func(r *work.Result) { r.Code = 77 }, nil},
		{"other exit code", "bad_outcome", good, nil, func(o *market.Outcome) { *o.ExitCode = 1 }},
		{"other code", "bad_outcome", good, nil, func(o *market.Outcome) { o.Code = market.CodeLimit }},
		{"other sum", "bad_outcome", good, nil, func(o *market.Outcome) { o.Due++ }},
		{"less vouched", "bad_outcome", good, nil, func(o *market.Outcome) { o.Vouched-- }},
		{"other usage", "bad_outcome", good, nil, func(o *market.Outcome) { o.Cum = o.Cum.Add(gpu.Usage{gpu.EnergyMJ: 1}) }},
		{"other outputs", "bad_outcome", good, nil, func(o *market.Outcome) { d := *o.Out; d[0]++; o.Out = &d }},
		{"other head", "bad_outcome", good, nil, func(o *market.Outcome) { o.Head[0]++ }},
		{"fewer receipts", "bad_outcome", good, nil, func(o *market.Outcome) { o.LastSeq-- }},
		{"other voucher", "bad_outcome", good, nil, func(o *market.Outcome) { o.LastVoucher[0]++ }},
		{"of another lease", "bad_outcome", good, nil, func(o *market.Outcome) { o.Lease[0]++ }},

		{"path that leads out", "bad_outputs", func(d *told) []market.File { return []market.File{d.file("out/../../x", "result")} }, nil, nil},
		{"absolute path", "bad_outputs", func(d *told) []market.File { return []market.File{d.file("/out/x", "result")} }, nil, nil},
		{"another folder", "bad_outputs", func(d *told) []market.File { return []market.File{d.file("etc/x", "result")} }, nil, nil},
		{"larger than said", "bad_outputs", func(d *told) []market.File { f := d.file("out/a", "result"); f.Bytes--; return []market.File{f} }, nil, nil},
		{"smaller than said", "bad_outputs", func(d *told) []market.File { f := d.file("out/a", "result"); f.Bytes++; return []market.File{f} }, nil, nil},
		{"above the limit", "bad_outputs", func(d *told) []market.File {
			f := d.file("out/a", "result")
			f.Bytes = 1<<20 + 1
			return []market.File{f}
		}, nil, nil},
		{"sizes that wrap", "bad_outputs", func(d *told) []market.File {
			a, b := d.file("out/a", "result"), d.file("out/b", "more")
			a.Bytes, b.Bytes = 1<<63, 1<<63
			return []market.File{a, b}
		}, nil, nil},
		{"file that is not there", "bad_outputs", func(d *told) []market.File { f := d.file("out/a", "result"); f.Digest[0]++; return []market.File{f} }, nil, nil},
		{"list that is none", "bad_outputs", good, func(r *work.Result) { r.Manifest.Digest[0]++ }, nil},
		{"list of endless length", "bad_outputs", good, func(r *work.Result) { r.Manifest.Bytes = 1 << 40 }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j, l, to := lying(t, r, func(d *told) {
				d.ready()
				d.finish(tt.files(d), tt.result, tt.outcome)
			})
			want(t, j, renter.JobStopped, tt.reason)
			refused(t, r, j, l, 1)
			for _, p := range []string{filepath.Join(to, "..", "x"), filepath.Join(filepath.Dir(filepath.Dir(to)), "x")} {
				if _, err := os.Stat(p); err == nil {
					t.Errorf("the provider wrote %s", p)
				}
			}
		})
	}
	t.Run("wrong bytes", func(t *testing.T) {
		j, l, to := lying(t, r, func(d *told) {
			d.ready()
			f := d.file("out/a", "bytes that no other job of this renter has")
			if err := os.WriteFile(d.files.Path(f.Digest), []byte("forged"), 0o600); err != nil {
				d.t.Error(err)
			}
			d.finish([]market.File{f}, nil, nil)
		})
		want(t, j, renter.JobStopped, "bad_outputs")
		refused(t, r, j, l, 1)
		if got := below(t, to, "a"); got != "" {
			t.Errorf("forged output %q is there", got)
		}
	})
	t.Run("before its last receipt", func(t *testing.T) {
		j, l, _ := lying(t, r, func(d *told) {
			d.ready()
			d.state(d.receipt(200, receipt.Running))
			d.paid()
			f := d.file("manifest", "\x80")
			d.send(work.Frame{Result: &work.Result{Code: market.CodeDone, ExitCode: new(uint64), Manifest: &f}})
		})
		want(t, j, renter.JobStopped, "bad_result")
		refused(t, r, j, l, 1)
	})
}

func TestBadLogs(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	for name, tt := range map[string]struct {
		frame  work.Log
		reason string
	}{
		"gap":      {work.Log{Stream: 1, Offset: 6, Data: []byte("x")}, "bad_log"},
		"too long": {work.Log{Stream: 1, Offset: 1000 + work.MaxLogData, Data: []byte("x")}, "log_too_long"},
		"far out":  {work.Log{Stream: 1, Offset: market.MaxBytes, Data: []byte("x")}, "log_too_long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, l, _ := lying(t, r, func(d *told) {
				d.ready()
				d.state(d.receipt(200, receipt.Running))
				d.paid()
				d.send(work.Frame{Log: &work.Log{Stream: 1, Data: []byte("hello")}})
				d.send(work.Frame{Log: &work.Log{Stream: 1, Offset: 3, Data: []byte("lo")}}) // repeated: fine
				d.send(work.Frame{Log: &tt.frame})
			})
			want(t, j, renter.JobStopped, tt.reason)
			refused(t, r, j, l, 1)
			if out, _ := output(t, r, j.ID); out != "hello" {
				t.Errorf("log %q", out)
			}
		})
	}
}

// TestNoProgress hires a provider that is there, prints, and does no work.
func TestNoProgress(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	begun := time.Now()
	j, l, _ := lying(t, r, func(d *told) {
		d.ready()
		d.send(work.Frame{Log: &work.Log{Stream: 1, Data: []byte("working hard")}})
	})
	want(t, j, renter.JobStopped, "no_progress")
	refused(t, r, j, l, 0)
	if took := time.Since(begun); took > patience {
		t.Errorf("noticed after %s", took)
	}
}

// TestMovesOn runs a job at a liar that has the better price. It finishes at the honest provider.
func TestMovesOn(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h","count":8}]`, nil)
	broken := func(l *liar, award attest.Envelope) attest.Envelope {
		return l.signer.SignBytes(market.AcceptDomain, append([]byte{}, award.Payload...))
	}
	for _, tt := range []struct {
		name string
		l    *liar
	}{
		{"accept of other bytes", &liar{accept: func(l *liar, award attest.Envelope) attest.Envelope {
			lease, err := attest.Decode[market.Lease](award)
			if err != nil {
				l.t.Error(err)
			}
			lease.Price *= 2
			return l.sign(market.AcceptDomain, lease)
		}}},
		{"accept with a broken signature", &liar{accept: func(l *liar, award attest.Envelope) attest.Envelope {
			e := broken(l, award)
			e.Sig[0]++
			return e
		}}},
		{"refusal that is about something else", &liar{accept: func(l *liar, award attest.Envelope) attest.Envelope {
			return l.sign(market.DeclineDomain, market.Decline{Version: 1, About: attest.Digest{1}, Provider: l.signer.Key(), At: 1,
				Failures: []market.Failure{{Reason: market.Sold}}})
		}}},
		{"gap in the receipts", &liar{script: func(d *told) { d.ready(); r := d.receipt(200, receipt.Running); r.Seq = 2; d.state(r) }}},
		{"stream that ends at once", &liar{script: func(d *told) { d.s.Abort(); go d.host.Close() }}},
		{"frame that is none", &liar{script: func(d *told) { d.send(work.Frame{Cancel: &work.Cancel{Reason: "no"}}) }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.l.script == nil {
				tt.l.script = func(*told) { t.Error("the lease was started") }
			}
			t.Parallel()
			r := nodetest.Start(t, nil) // one that knows nobody yet, so that the auction waits for all offers
			nodetest.Join(t, p, r)
			tt.l.price = market.USD / 10
			l := newLiar(t, r, tt.l)
			s := guest(t, "files")
			s.Outputs = []market.Transfer{{From: "/out", To: t.TempDir()}}
			s.Providers = []attest.Key{l.signer.Key(), p.Node.Key()}
			var j renter.Job
			asked := false
			for range 10 { // on a slow machine the liar's offer may come too late to win
				j = run(t, r, s)
				want(t, j, renter.JobSucceeded, "")
				l.mu.Lock()
				asked = l.awards > 0
				l.mu.Unlock()
				if asked {
					break
				}
			}
			if *j.Provider != p.Node.Key() {
				t.Errorf("the job ended at %s", j.Provider)
			}
			if !asked {
				t.Error("the liar was not asked first")
			}
			views, err := r.Client.Auctions(t.Context(), j.ID)
			if err != nil || len(views) != j.Attempts {
				t.Fatalf("%d auctions of %d, %v", len(views), j.Attempts, err)
			}
			for i, v := range views { // each choice is explained, also one among the runners-up
				if !v.Recomputed {
					t.Errorf("auction %d: award %+v is not explained: %s", i, v.Award, v.RecomputeError)
				}
			}
			if last := views[len(views)-1]; last.Award == nil || last.Award.Lease == nil || *last.Award.Lease != *j.Lease {
				t.Errorf("the last auction does not explain the last lease: %+v", last.Award)
			}
			if rep := proof(t, r, j.ID); rep.Vouched != rep.Due {
				t.Errorf("%s due, %s vouched", rep.Due, rep.Vouched)
			}
		})
	}
}

// TestLateOutcomeThatLies sends the renter an end of a lease that is not what it has. What the renter can prove stays.
func TestLateOutcomeThatLies(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	var d *told
	j, l, _ := lying(t, r, func(s *told) {
		d = s
		d.ready()
		d.state(d.receipt(200, receipt.Running))
		d.paid()
		d.send(work.Frame{Cancel: &work.Cancel{Reason: "no"}})
	})
	want(t, j, renter.JobStopped, "provider_forgot")
	o := d.outcome(market.CodeDone, market.Voucher{}, attest.Digest{})
	o.Due, o.Vouched, o.LastVoucher = 1, 1, attest.Digest{1}
	for _, e := range []attest.Envelope{l.sign(market.OutcomeProviderDomain, o), newRaw(t, noPorts()).sign(market.OutcomeProviderDomain, o)} {
		if _, err := l.deal.SendOutcome(t.Context(), r.Node.Key(), nil, dealEnding(e)); err != nil {
			t.Fatal(err)
		}
		if rep := proof(t, r, j.ID); rep.Leases[0].Signers != 1 {
			t.Errorf("%d signers, want the renter alone", rep.Leases[0].Signers)
		}
	}
	// A receipt that holds is paid even now, and the voucher comes with the answer each time.
	late := l.sign(receipt.Domain, d.receipt(100, receipt.Failed))
	for range 2 {
		s, err := l.deal.SendOutcome(t.Context(), r.Node.Key(), nil, dealEnding(l.sign(market.OutcomeProviderDomain, o), late))
		if err != nil || s.Voucher == nil {
			t.Fatalf("settlement %+v, %v", s, err)
		}
		if v, err := attest.Decode[market.Voucher](*s.Voucher); err != nil || v.AckSeq != 2 {
			t.Errorf("voucher %+v, %v", v, err)
		}
	}
	var rep ledger.Report
	if rep = proof(t, r, j.ID); rep.Receipts != 2 || rep.Vouched != rep.Due {
		t.Errorf("%d receipts, %s due, %s vouched", rep.Receipts, rep.Due, rep.Vouched)
	}
}
