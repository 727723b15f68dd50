package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

// spec returns a training job.
func (d *demo) spec(name string, args ...string) (market.Spec, error) {
	dir := filepath.Join(d.dir, name)
	module, data := examples.Digits()
	wasm := filepath.Join(d.dir, "digits.wasm")
	input := filepath.Join(d.dir, "data")
	if _, err := os.Stat(wasm); errors.Is(err, os.ErrNotExist) {
		if err := errors.Join(os.WriteFile(wasm, module, 0o600), os.CopyFS(input, data)); err != nil {
			return market.Spec{}, err
		}
	}
	return market.Spec{Name: name, Module: wasm, Args: args, GPUs: 1, MaxPrice: market.USD, Budget: market.USD, Duration: 5 * time.Minute, StartWithin: time.Minute,
		Interval: time.Second, Inputs: []market.Transfer{{From: input, To: "/data"}}, Outputs: []market.Transfer{{From: "/out", To: dir}},
		Checkpoint: "/ckpt", Every: time.Second, Grace: 5 * time.Second}, nil
}

// history runs a tiny job at each provider that can take the main one, so that the renter has experience of its own.
func (d *demo) history(ctx context.Context) error {
	d.title("1. A little history: one tiny job at each, so that the renter has experience of its own")
	d.screen.status("4 tiny jobs run at once")
	ctx, cancel := context.WithTimeout(ctx, demoJobWait)
	defer cancel()
	type tried struct {
		name string
		job  renter.Job
	}
	var jobs []tried
	for _, p := range demoProviders[:4] {
		s, err := d.spec("try-"+p.name, "-epochs", "1", "-images", "300")
		if err != nil {
			return err
		}
		s.Providers = []attest.Key{d.keys[p.name]}
		j, err := d.client.Submit(ctx, s, false)
		if err != nil {
			return err
		}
		jobs = append(jobs, tried{p.name, j})
	}
	defer d.screen.status("")
	dropped := 0
	for _, t := range jobs {
		j, err := d.client.Wait(ctx, t.job.ID)
		if err != nil {
			return err
		}
		verdict := "finished"
		switch j.State {
		case renter.JobSucceeded:
		case renter.JobNoOffer:
			verdict = "was too slow to answer" // a busy machine, nobody's fault
		default:
			verdict = "let the renter down: " + words(j.Reason)
			dropped++
		}
		rep, err := d.client.Reputation(ctx, d.keys[t.name])
		if err != nil {
			return err
		}
		d.say("  %-8s %-40s paid %-14s success rate %s", t.name, verdict, j.Vouched, percent(rep.MeanBP))
	}
	if dropped == 0 {
		return errors.New("no tiny job was dropped, one was to be: this machine is too busy for the demo, try again later")
	}
	return nil
}

// demoAuction is what one auction brought.
type demoAuction struct {
	bid      string
	offers   int
	declines []demoDecline
	answered map[attest.Key]bool
	closed   bool
}

// whole reports whether every provider answered before the auction closed.
func (a *demoAuction) whole() bool { return len(a.answered) == len(demoProviders) }

// note keeps what e says of the auction; of several auctions of a job, the last before an award.
func (a *demoAuction) note(e renter.Event) {
	if a.closed {
		return
	}
	switch e.Kind {
	case renter.EvBid:
		*a = demoAuction{bid: e.Bid.ID.String(), answered: map[attest.Key]bool{}}
	case renter.EvOffer:
		a.offers++
		a.answered[e.Offer.Peer] = true
	case renter.EvDecline:
		a.answered[e.Decline.Peer] = true
		for _, f := range e.Decline.Failures {
			a.declines = append(a.declines, demoDecline{e.Decline.Peer, f.Reason.String(), f.Wanted, f.Available})
		}
	case renter.EvAward:
		a.closed = true
	}
}

// rehearsals bounds how often the auction is rehearsed.
const rehearsals = 5

// rehearse holds the auction of s without an award until all providers answer before it closes. An auction is open for
// a few round trips, a quarter of a second here, and on a busy machine six processes do not always get their turn in
// that time.
func (d *demo) rehearse(ctx context.Context, s market.Spec) (demoAuction, error) {
	d.screen.status("rehearsing the auction")
	defer d.screen.status("")
	s.Name = "rehearsal"
	var a demoAuction
	for try := 0; try < rehearsals && !a.whole(); try++ {
		j, err := d.client.Submit(ctx, s, true)
		if err != nil {
			return a, err
		}
		if j, err = d.client.Wait(ctx, j.ID); err != nil {
			return a, err
		}
		if err := d.client.Events(ctx, j.ID, 0, false, func(e renter.Event) error { a.note(e); return nil }); err != nil {
			return a, err
		}
	}
	return a, nil
}

// mainJob posts the training job and follows it.
func (d *demo) mainJob(ctx context.Context) (renter.Job, error) {
	d.title("2. The auction: train on 4,000 digits, one GPU with 24 GiB")
	s, err := d.spec("digits", "-epochs", "12")
	if err != nil {
		return renter.Job{}, err
	}
	s.VRAMBytes = 24 << 30
	ctx, cancel := context.WithTimeout(ctx, demoJobWait)
	defer cancel()
	rehearsal, err := d.rehearse(ctx, s)
	if err != nil {
		return renter.Job{}, fmt.Errorf("rehearse the auction: %w", err)
	}
	j, err := d.client.Submit(ctx, s, false)
	if err != nil {
		return j, err
	}
	d.job = j.ID
	t := newCourse(d.c, d.screen)
	ended := make(chan error, 2)
	go func() {
		ended <- d.client.Events(ctx, j.ID, 0, true, func(e renter.Event) error {
			if err := t.event(e); err != nil {
				return err
			}
			return d.note(e)
		})
	}()
	go func() {
		ended <- d.client.Log(ctx, j.ID, 0, true, func(k joblog.Chunk) error { return d.log(k) })
	}()
	for range 2 {
		if err := <-ended; err != nil {
			cancel()
			return j, err
		}
	}
	if j, err = d.client.Wait(ctx, j.ID); err != nil {
		return j, err
	}
	if j.State != renter.JobSucceeded {
		return j, t.end(j)
	}
	if !d.auction.whole() && rehearsal.whole() {
		d.auction, d.rehearsed = rehearsal, true
	}
	return j, nil
}

// log shows the job's output, with the time from outside: the job's own clock is fixed.
func (d *demo) log(k joblog.Chunk) error {
	for _, l := range strings.Split(strings.TrimRight(string(k.Data), "\n"), "\n") {
		d.screen.line("  %s  %s", d.c.paint(dim, fmt.Sprintf("%6.1fs", d.c.now().Sub(d.start).Seconds())), l)
	}
	return nil
}

// note keeps what the JSON result needs, and kills the winner where that is the fault.
func (d *demo) note(e renter.Event) error {
	d.auction.note(e)
	switch e.Kind {
	case renter.EvAward:
		if d.killed == "" {
			d.title("3. The job at %s", d.c.peer(e.Award.Peer))
		}
	case renter.EvReputation:
		r := *e.Reputation
		if earlier, ok := d.reputation[r.Peer]; ok {
			r.BeforeBP = earlier.BeforeBP
		}
		d.reputation[r.Peer] = r
	case renter.EvCheckpoint:
		if d.fault == killWinner && d.killed == "" && e.Checkpoint.Seq >= 2 {
			j, err := d.client.Job(context.Background(), d.job)
			if err != nil {
				return err
			}
			d.killed = d.names[*j.Provider]
			d.say("%s", d.c.paint(red, "  kill -9 "+d.killed))
			return d.net.Kill(d.killed)
		}
	}
	return nil
}

// verify exports the receipts of the job and checks them as a stranger would: from the file alone.
func (d *demo) verify(ctx context.Context, j renter.Job) (ledger.Report, error) {
	d.title("4. Proof")
	data, err := d.client.ExportJob(ctx, j.ID)
	if err != nil {
		return ledger.Report{}, err
	}
	if err := os.WriteFile(d.receipts, data, 0o644); err != nil {
		return ledger.Report{}, fmt.Errorf("write receipts: %w", err)
	}
	if data, err = os.ReadFile(d.receipts); err != nil {
		return ledger.Report{}, err
	}
	report, err := ledger.Verify(data)
	if err != nil {
		return report, err
	}
	d.say("  %s of %s verified: signatures, chains, prices", count(report.Receipts, "receipt"), count(len(report.Leases), "lease"))
	d.say("  due by the receipts %s = promised by the vouchers %s", report.Due, report.Vouched)
	d.say("  %s", d.c.paint(dim, "check it again, without network or daemon: lacuna receipts verify "+d.receipts))
	return report, nil
}

// finish prints the result.
func (d *demo) finish(j renter.Job, report ledger.Report) error {
	result, err := os.ReadFile(filepath.Join(d.dir, "digits", "metrics.json"))
	if err != nil {
		return fmt.Errorf("read the job's metrics: %w", err)
	}
	r := demoResult{Peers: len(demoProviders) + 1, BidID: d.auction.bid, Offers: d.auction.offers, Declines: d.auction.declines, Rehearsal: d.rehearsed, Winner: *j.Provider, Price: j.Price,
		AuctionMS: j.AuctionMS, ToRunMS: j.ToRunMS, Job: demoJob{State: string(j.State), ExitCode: j.ExitCode, OutputsDigest: j.OutputsDigest},
		Receipts: demoReceipts{Count: j.Receipts, Verified: report.Receipts, Head: report.Leases[len(report.Leases)-1].Head, File: d.receipts},
		Cost:     j.Cost, Vouched: report.Vouched, Simulated: j.Simulated, Fault: d.fault, Leases: len(report.Leases),
		TookMS: d.c.now().Sub(d.start).Milliseconds(), NetworkName: d.net.Network()}
	if err := json.Unmarshal(result, &r.Job.Result); err != nil {
		return fmt.Errorf("read the job's metrics: %w", err)
	}
	if rep, ok := d.reputation[*j.Provider]; ok {
		r.Reputation = demoReputation{rep.BeforeBP, &rep.AfterBP}
	}
	d.say("\n%s", d.c.paint(bold, fmt.Sprintf("Done in %s: accuracy %v, paid %s.", millis(uint64(r.TookMS)), r.Job.Result["accuracy"], r.Cost)))
	if d.keep {
		d.tour(j)
	}
	if d.c.human() {
		return nil
	}
	return d.c.print(r, nil)
}

// tour prints commands to try on a network that stays up.
func (d *demo) tour(j renter.Job) {
	p, err := d.net.Peer("renter")
	if err != nil {
		return
	}
	d.say("\nThe network stays up in %s. Try:", d.net.Dir())
	for _, args := range []string{"ps", "inspect " + j.Name + " --auction", "asks", "receipts ls " + j.Name, "reputation " + j.Provider.String() + " --explain"} {
		d.say("  lacuna --home %s %s", p.Home, args)
	}
	d.say("  lacuna testnet down %s", d.net.Network())
}
