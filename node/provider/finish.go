package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// lastVoucherWait is how long a renter that is there may take to acknowledge the last receipt.
const lastVoucherWait = 10 * time.Second

// handOver is how long a provider that stops lets a renter take the end of its lease.
const handOver = 2 * time.Second

// end writes down how the lease ended: outputs, last receipt, result, outcome. The devices are free before the renter
// has fetched anything.
func (t *tenancy) end(ctx context.Context, e ending) {
	res := &work.Result{Code: e.cause.code, Reason: e.cause.reason, LogBytes: t.log.Size()}
	state, out := receipt.Failed, (*attest.Digest)(nil)
	if e.cause.code == market.CodeDone { // only a process that ended by itself has this cause
		state = receipt.Final
		code := uint64(uint32(e.result.ExitCode))
		res.ExitCode = &code
		d, manifest, err := t.collect(e.job)
		switch {
		case err == nil:
			out, res.Manifest = &d, &manifest
		case errors.Is(err, errOutputName) || errors.Is(err, errOutputCount):
			t.p.log.Info("outputs cannot be carried", "lease", t.id.Short(), "err", err)
			res.Code, res.Reason = market.CodeLimit, errOutputName.Error()
			if errors.Is(err, errOutputCount) {
				res.Reason = errOutputCount.Error()
			}
		default:
			t.p.log.Error("outputs cannot be collected", "lease", t.id.Short(), "err", err)
			res.Code, res.Reason = market.CodeProviderAbort, "outputs_lost"
		}
		if err != nil {
			state, res.ExitCode = receipt.Failed, nil
		}
	}
	if e.cut != nil {
		if err := e.cut(state, out); err != nil {
			t.p.log.Error("last receipt cannot be made", "lease", t.id.Short(), "err", err)
		}
	}
	if err := t.log.Close(); err != nil { // it can still be read
		t.p.log.Warn("job log is not closed", "lease", t.id.Short(), "err", err)
	}
	if err := t.saveResult(*res); err != nil {
		t.p.log.Error("result is not kept", "lease", t.id.Short(), "err", err)
	}
	t.free() // before anyone hears that it is over
	t.update(func() { t.rec.Reason = res.Reason })
	event := market.EvStop
	if res.Code == market.CodeDone {
		event = market.EvFinish
	}
	if err := t.advance(event); err != nil {
		t.p.log.Error("end of lease is not written", "lease", t.id.Short(), "err", err)
	}
	t.update(func() { t.result = res })
	t.awaitRenter(ctx, func() bool { return t.acknowledged() || t.theirs != nil })
	if err := t.signOutcome(*res); err != nil {
		t.p.log.Error("outcome cannot be signed", "lease", t.id.Short(), "err", err)
	}
	if ctx.Err() != nil { // the renter takes the end with it before the connection goes
		t.awaitRenter(ctx, func() bool { return t.theirs != nil })
	}
}

// Outputs that no renter could be given: the job's own doing, not this provider's.
var (
	errOutputName  = errors.New("bad_output_name")
	errOutputCount = errors.New("too_many_outputs")
)

// storedAtOnce is how many outputs are stored at a time.
const storedAtOnce = 8

// collect puts the outputs among the blobs and returns their digest and the manifest.
func (t *tenancy) collect(job runner.Job) (attest.Digest, market.File, error) {
	files, err := t.listOutputs(job)
	if err != nil {
		return attest.Digest{}, market.File{}, err
	}
	blobs := t.p.o.Files
	t.p.beginStoring()
	defer t.p.endStoring()
	group, ctx := errgroup.WithContext(t.p.ctx)
	group.SetLimit(storedAtOnce)
	for i := range files {
		group.Go(func() (err error) {
			f := &files[i]
			f.Digest, f.Bytes, err = blobs.TakeFile(ctx, filepath.Join(job.WritableDir(), filepath.FromSlash(f.Path)))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return attest.Digest{}, market.File{}, err
	}
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

// listOutputs returns the regular files below the output folders, sorted by path and without their digests.
func (t *tenancy) listOutputs(job runner.Job) ([]market.File, error) {
	files := []market.File{}
	for _, guest := range t.terms.Outputs {
		err := filepath.WalkDir(job.OutputDir(guest), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(job.WritableDir(), p)
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			if err := market.CheckRelativePath(rel); err != nil {
				return fmt.Errorf("%w: %w", errOutputName, err)
			}
			if len(files) == market.MaxOutputFiles {
				return errOutputCount
			}
			files = append(files, market.File{Path: rel})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	return files, nil
}

// awaitRenter waits until done, which is called under t.mu, as long as the renter is there, or for a while if it is away.
// When this process ends, only a renter that is there is waited for, and not for long.
func (t *tenancy) awaitRenter(ctx context.Context, done func() bool) {
	deadline := time.Now().Add(t.p.o.Policy.ClaimWindow)
	present := time.Now().Add(lastVoucherWait)
	leaving := ctx.Done()
	for {
		t.mu.Lock()
		changed, sessions, over := t.changed, t.sessions, done()
		t.mu.Unlock()
		until := deadline
		switch {
		case sessions > 0:
			until = present
		case leaving == nil:
			return
		default:
			present = time.Now().Add(lastVoucherWait)
		}
		if over {
			return
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-leaving:
			leaving, present = nil, time.Now().Add(handOver)
		case <-timer.C:
			timer.Stop()
			return
		case <-changed:
		}
		timer.Stop()
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
