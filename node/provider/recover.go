package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// keepUnclaimed is how long what a lease left waits for its renter.
const keepUnclaimed = 24 * time.Hour

// recover takes up what a restart left behind. A lease that was in force is released in writing: its process died with
// the daemon, nothing new is signed on its chain, and the renter is told. What a finished lease left stays claimable.
func (p *Provider) recover(ctx context.Context) error {
	var open []*tenancy
	err := p.o.Store.Leases(func(id attest.Digest, value []byte, err error) error {
		var rec ledger.Record
		if err == nil {
			err = attest.Unmarshal(value, &rec)
		}
		if err == nil && (rec.Role != ledger.Provider || rec.Reason == ledger.Abandoned) {
			return nil
		}
		if err != nil {
			p.log.Error("lease is not taken up", "lease", id.Short(), "err", err)
			return nil
		}
		t, err := p.load(id, rec)
		if err != nil {
			return p.abandon(id, rec, err)
		}
		if rec.State == market.Void || t.claimed() {
			return nil
		}
		if rec.State.Final() && time.Since(time.UnixMilli(rec.EndedAt)) > keepUnclaimed {
			return nil
		}
		open = append(open, t)
		return nil
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	for _, t := range open {
		p.tenancies[t.id] = t
	}
	p.mu.Unlock()
	if err := p.sweep(); err != nil {
		return err
	}
	for _, t := range open {
		if err := p.release(t); err != nil {
			return fmt.Errorf("release lease %s: %w", t.id.Short(), err)
		}
		if t.void() {
			p.discard(t)
			continue
		}
		p.group.Go(func() error { p.deliver(ctx, t); return nil })
	}
	return nil
}

// abandon gives up a lease of which something cannot be read. Nothing is signed on it again; the other leases are no worse
// for it.
func (p *Provider) abandon(id attest.Digest, rec ledger.Record, why error) error {
	p.log.Error("lease is abandoned", "lease", id.Short(), "err", why)
	if rec.State.Final() {
		return nil
	}
	rec.Abandon(time.Now().UnixMilli())
	b, err := attest.Marshal(rec)
	if err != nil {
		return err
	}
	return p.o.Store.SaveLease(id, b)
}

// load reads a lease and what is signed on it, and books what its renter owes.
func (p *Provider) load(id attest.Digest, rec ledger.Record) (*tenancy, error) {
	l, err := rec.Lease()
	if err != nil {
		return nil, err
	}
	var w market.Terms
	if err := attest.Unmarshal(rec.Terms, &w); err != nil {
		return nil, err
	}
	t := newTenancy(p, id, l, w, rec)
	t.done, t.freed, t.challenge = true, true, rec.Challenge
	if rec.ReadyAt > 0 {
		t.readyAt = time.UnixMilli(rec.ReadyAt)
	}
	close(t.started)
	if _, env, err := p.o.Store.LastReceipt(id); err == nil {
		r, err := attest.Decode[receipt.Receipt](env)
		if err != nil {
			return nil, err
		}
		t.tail = receipt.Tail{Lease: id, Seq: r.Seq, ID: env.ID(), Last: r}
		if err := p.bookDue(id, l, rec, r); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if _, env, err := p.o.Store.LastVoucher(id); err == nil {
		v, err := attest.Decode[market.Voucher](env)
		if err != nil {
			return nil, err
		}
		t.voucher, t.voucherID = &v, env.ID()
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return t, t.loadEnd()
}

// bookDue books what the renter owes on a lease on the days on which it came to owe it.
func (p *Provider) bookDue(id attest.Digest, l market.Lease, rec ledger.Record, last receipt.Receipt) error {
	chain := []receipt.Receipt{last}
	if end := time.UnixMilli(last.T1); day(time.UnixMilli(rec.ReadyAt)) != day(end) && time.Since(end) < 48*time.Hour { // older days count no more
		envs, err := p.o.Store.Receipts(id)
		if err != nil {
			return err
		}
		chain = chain[:0]
		for _, env := range envs {
			r, err := attest.Decode[receipt.Receipt](env)
			if err != nil {
				return err
			}
			chain = append(chain, r)
		}
	}
	var booked market.MicroUSD
	for _, r := range chain {
		due, err := market.Due(l.Price, r.Cum)
		if err != nil {
			return err
		}
		p.credit.add(l.Renter, due-booked, time.UnixMilli(r.T1))
		booked = due
	}
	return nil
}

// loadEnd reads the outcomes, and the result that goes with this side's.
func (t *tenancy) loadEnd() error {
	envs, err := t.p.o.Store.Outcomes(t.id)
	if err != nil {
		return err
	}
	for _, env := range envs {
		if env.Signer == t.lease.Renter {
			t.theirs = &env
			continue
		}
		o, err := attest.Decode[market.Outcome](env)
		if err != nil {
			return err
		}
		t.mine = &env
		t.result = &work.Result{Code: o.Code, Reason: o.Reason, ExitCode: o.ExitCode}
	}
	t.dir = filepath.Join(t.p.o.JobsDir, t.id.Hex())
	if t.claimed() || t.rec.State == market.Void {
		return nil
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	if t.log, err = joblog.Open(filepath.Join(t.dir, "log")); err != nil {
		return err
	}
	if err := t.log.Close(); err != nil { // it can still be read
		return err
	}
	return t.loadManifest()
}

// manifestName is the file in a job's folder that keeps the encoded [work.Result], so that a renter can claim what a
// job left also after a restart.
const manifestName = "result"

func (t *tenancy) loadManifest() error {
	b, err := os.ReadFile(filepath.Join(t.dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var res work.Result
	if err == nil {
		err = attest.Unmarshal(b, &res)
	}
	if err != nil { // what the outcome says is all there is then
		t.p.log.Error("result of a lease is gone", "lease", t.id.Short(), "err", err)
		return nil
	}
	t.result = &res
	if res.Manifest == nil {
		return nil
	}
	var files []market.File
	raw, err := os.ReadFile(t.p.o.Files.Path(res.Manifest.Digest))
	if err == nil {
		err = attest.Unmarshal(raw, &files)
	}
	if err != nil { // the renter will not get them, but it gets the rest
		t.p.log.Error("outputs of a lease are gone", "lease", t.id.Short(), "err", err)
		return nil
	}
	t.blobs[res.Manifest.Digest] = true
	for _, f := range files {
		t.blobs[f.Digest] = true
	}
	return nil
}

// saveResult keeps the result for a renter that comes later.
func (t *tenancy) saveResult(res work.Result) error {
	b, err := attest.Marshal(res)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.dir, manifestName), b, 0o600)
}

// release ends a lease that the restart found in force.
func (p *Provider) release(t *tenancy) error {
	if t.rec.State == market.Awarded || t.rec.State == market.Offered {
		t.rec.Reason = "restart"
		return t.advance(market.EvExpire)
	}
	if t.mine != nil {
		return nil
	}
	res := work.Result{Code: market.CodeProviderAbort, Reason: "restart", LogBytes: t.log.Size()}
	if t.rec.State.Final() && t.result != nil {
		res = *t.result // the job had ended, the outcome was not signed yet
	}
	if !t.rec.State.Final() {
		t.rec.Reason = res.Reason
		if err := t.advance(market.EvStop); err != nil {
			return err
		}
	}
	if err := t.saveResult(res); err != nil {
		return err
	}
	t.update(func() { t.result = &res })
	return t.signOutcome(res)
}

// sweep removes job folders that belong to no lease in hand.
func (p *Provider) sweep() error {
	entries, err := os.ReadDir(p.o.JobsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, err := attest.ParseDigest(e.Name())
		if err != nil || p.tenancies[id] != nil {
			continue // not ours, or in use
		}
		if err := os.RemoveAll(filepath.Join(p.o.JobsDir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// deliveryPauses are the times between attempts to tell a renter how its lease ended.
var deliveryPauses = [...]time.Duration{0, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// deliver brings this side's outcome and unacknowledged receipts to a renter that was not there to take them, and takes
// its voucher and its own outcome back. What the lease left is thrown away when nobody claimed it in time.
func (p *Provider) deliver(ctx context.Context, t *tenancy) {
	if t.void() {
		return
	}
	for _, pause := range deliveryPauses {
		if !t.awaitAbsence(ctx, pause) {
			return
		}
		if err := p.deliverOnce(ctx, t); err != nil {
			p.log.Debug("outcome is not delivered yet", "lease", t.id.Short(), "err", err)
		}
	}
	t.mu.Lock()
	kept := time.Until(time.UnixMilli(t.rec.EndedAt).Add(keepUnclaimed))
	t.mu.Unlock()
	if t.awaitAbsence(ctx, kept) {
		p.discard(t)
	}
}

// awaitAbsence waits for that long, and then until no work stream is attached. It returns false when ctx ends or nothing
// is left to tell.
func (t *tenancy) awaitAbsence(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	waited := false
	for {
		t.mu.Lock()
		changed, sessions := t.changed, t.sessions
		t.mu.Unlock()
		if ctx.Err() != nil || t.settled() {
			return false
		}
		if waited && sessions == 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
			waited = true
		case <-changed:
		}
	}
}

func (p *Provider) deliverOnce(ctx context.Context, t *tenancy) error {
	t.mu.Lock()
	first, last, mine := uint64(1), t.tail.Seq, t.mine
	if t.voucher != nil {
		first = t.voucher.AckSeq + 1
	}
	t.mu.Unlock()
	if mine == nil {
		return errors.New("there is no outcome")
	}
	var receipts []attest.Envelope
	for seq := first; seq <= last; seq++ {
		env, err := p.o.Store.Receipt(t.id, seq)
		if err != nil {
			return err
		}
		receipts = append(receipts, env)
	}
	answer, err := p.o.Deal.SendOutcome(ctx, t.lease.Renter, t.rec.Addrs, deal.Ending{Outcome: *mine, Receipts: receipts})
	if err != nil {
		return err
	}
	if answer.Voucher != nil {
		if err := t.takeVoucher(*answer.Voucher); err != nil {
			return err
		}
	}
	if answer.Code == deal.Unknown {
		return fmt.Errorf("renter: %w lease", market.ErrUnknown)
	}
	if answer.Outcome != nil {
		if err := t.takeOutcome(*answer.Outcome); err != nil {
			return err
		}
		t.update(func() { t.delivered = true })
		p.drop(t)
	}
	return nil
}

// Outcome takes the renter's outcome of a lease that it ended while the two could not talk.
func (p *Provider) Outcome(ctx context.Context, from attest.Key, e deal.Ending) deal.Settlement {
	if !p.started(ctx) {
		return deal.Settlement{Code: deal.Closed}
	}
	o, err := attest.Open[market.Outcome](e.Outcome, p.network, market.OutcomeRenterDomain)
	if err != nil {
		return deal.Settlement{Code: deal.Refused}
	}
	p.mu.Lock()
	t := p.tenancies[o.Lease]
	p.mu.Unlock()
	if t == nil || t.lease.Renter != from {
		return deal.Settlement{Code: deal.Unknown}
	}
	if err := t.takeOutcome(e.Outcome); err != nil {
		p.log.Debug("outcome is not accepted", "lease", t.id.Short(), "err", err)
		return deal.Settlement{Code: deal.Refused}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return deal.Settlement{Code: deal.OK, Outcome: t.mine}
}
