package provider

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// lastVoucherWait is how long a renter that is there may take to acknowledge the last receipt.
const lastVoucherWait = 10 * time.Second

// end writes down how the lease ended: outputs, last receipt, result, outcome. The devices are free before the renter
// has fetched anything.
func (t *tenancy) end(ctx context.Context, e ending) {
	res := &work.Result{Code: e.cause.code, Reason: e.cause.reason, LogBytes: t.log.Size()}
	state, out := receipt.Failed, (*attest.Digest)(nil)
	if e.cause.code == market.CodeDone {
		state = receipt.Final
		code := uint64(uint32(e.result.ExitCode))
		res.ExitCode = &code
		d, manifest, err := t.collect(e.job)
		if err != nil {
			t.p.log.Error("outputs cannot be collected", "lease", t.id.Short(), "err", err)
			state, res.Code, res.Reason, res.ExitCode = receipt.Failed, market.CodeProviderAbort, "outputs_lost", nil
		} else {
			out, res.Manifest = &d, &manifest
		}
	}
	if e.cut != nil {
		if err := e.cut(state, out); err != nil {
			t.p.log.Error("last receipt cannot be made", "lease", t.id.Short(), "err", err)
		}
	}
	t.log.Finish()
	if err := t.saveResult(*res); err != nil {
		t.p.log.Error("result is not kept", "lease", t.id.Short(), "err", err)
	}
	t.update(func() { t.result, t.rec.Reason = res, res.Reason })
	event := market.EvStop
	if res.Code == market.CodeDone {
		event = market.EvFinish
	}
	if err := t.advance(event); err != nil {
		t.p.log.Error("end of lease is not written", "lease", t.id.Short(), "err", err)
	}
	t.p.mu.Lock()
	t.p.plan.Release(t.id)
	t.p.wake()
	t.p.mu.Unlock()
	t.awaitLastVoucher(ctx)
	if err := t.signOutcome(*res); err != nil {
		t.p.log.Error("outcome cannot be signed", "lease", t.id.Short(), "err", err)
	}
}

// collect puts the outputs among the blobs and returns their digest and the manifest.
func (t *tenancy) collect(job runner.Job) (attest.Digest, market.File, error) {
	blobs := t.p.o.Files
	var files []market.File
	for _, guest := range t.terms.Outputs {
		dir := job.OutputDir(guest)
		_, list, err := runner.OutputsDigest(dir)
		if err != nil {
			return attest.Digest{}, market.File{}, err
		}
		for _, f := range list {
			d, n, err := blobs.PutFile(t.p.ctx, filepath.Join(dir, filepath.FromSlash(f.Path)))
			if err != nil {
				return attest.Digest{}, market.File{}, err
			}
			files = append(files, market.File{Path: strings.TrimPrefix(guest, "/") + "/" + f.Path, Digest: d, Bytes: n})
		}
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	encoded, err := attest.Marshal(files)
	if err != nil {
		return attest.Digest{}, market.File{}, err
	}
	d, n, err := blobs.Put(t.p.ctx, bytes.NewReader(encoded))
	if err != nil {
		return attest.Digest{}, market.File{}, err
	}
	t.allow(d)
	for _, f := range files {
		t.allow(f.Digest)
	}
	_ = os.RemoveAll(job.Dir) // the outputs are among the blobs now
	return market.OutputsDigest(files), market.File{Path: "manifest", Digest: d, Bytes: n}, nil
}

// awaitLastVoucher waits until the renter has acknowledged the last receipt, as long as it is there, or for a while if
// it is away.
func (t *tenancy) awaitLastVoucher(ctx context.Context) {
	deadline := time.Now().Add(t.p.o.Policy.ClaimWindow)
	present := time.Now().Add(lastVoucherWait)
	for {
		t.mu.Lock()
		changed, sessions := t.changed, t.sessions
		acked := t.tail.Seq == 0 || (t.voucher != nil && t.voucher.AckSeq == t.tail.Seq)
		ended := t.theirs != nil
		t.mu.Unlock()
		until := deadline
		if sessions > 0 {
			until = present
		} else {
			present = time.Now().Add(lastVoucherWait)
		}
		if acked || ended {
			return
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			return
		case <-changed:
			timer.Stop()
		}
	}
}

// signOutcome signs this side's word on how the lease ended.
func (t *tenancy) signOutcome(res work.Result) error {
	due, vouched := t.amounts()
	t.mu.Lock()
	o := market.Outcome{Version: 1, Lease: t.id, LastSeq: t.tail.Seq, Head: t.tail.ID, Due: due, Vouched: vouched,
		Cum: t.tail.Last.Cum, EndedAt: t.rec.EndedAt, Code: res.Code, Out: t.tail.Last.Out, LastVoucher: t.voucherID,
		ExitCode: res.ExitCode, Reason: res.Reason}
	t.mu.Unlock()
	env, err := t.p.o.Signer.Sign(market.OutcomeProviderDomain, o)
	if err != nil {
		return err
	}
	if err := t.p.o.Store.PutOutcome(t.id, env); err != nil {
		return err
	}
	t.update(func() { t.mine = &env })
	return nil
}
