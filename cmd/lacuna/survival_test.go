package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
	"github.com/lacuna-network/lacuna/node/testnet"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

// survivalLimit is how long one of the tests below may take on a slow machine. None needs it.
const survivalLimit = 4 * time.Minute

// world is a net of processes: two sellers, of which "one" is cheaper, and a renter.
type world struct {
	t      *testing.T
	ctx    context.Context
	binary string
	net    *testnet.Net
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ls") // short: a path in it is a socket's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, binary: filepath.Join(dir, "lacuna")}
	if err := copyFile(self, w.binary); err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(t.Context(), survivalLimit)
	t.Cleanup(cancel)
	w.net, err = testnet.Up(w.ctx, testnet.Options{Dir: filepath.Join(dir, "net"), Binary: w.binary, Network: "test-survival", Peers: []testnet.PeerSpec{
		{Name: "two", Provide: true, GPUs: `[{"model":"RTX 4090","price":"0.72 USD/h"}]`}, // stays, so the others join it
		{Name: "one", Provide: true, GPUs: `[{"model":"RTX 4090","price":"0.36 USD/h"}]`},
		{Name: "renter"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.net.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) client(name string) *api.Client {
	w.t.Helper()
	p, err := w.net.Peer(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Client
}

func (w *world) key(name string) attest.Key {
	w.t.Helper()
	s, err := w.client(name).Status(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Peer
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// spec is a job that trains for some seconds and saves its state after each epoch.
func (w *world) spec(epochs string) market.Spec {
	w.t.Helper()
	dir := w.t.TempDir()
	module, data := filepath.Join(dir, "digits.wasm"), filepath.Join(dir, "data")
	code, files := examples.Digits()
	w.must(errors.Join(os.WriteFile(module, code, 0o600), os.CopyFS(data, files)))
	return market.Spec{Name: "digits", Module: module, Args: []string{"-epochs", epochs, "-images", "2000"}, GPUs: 1,
		Duration: 5 * time.Minute, Interval: 200 * time.Millisecond, StartWithin: 20 * time.Second,
		Inputs:     []market.Transfer{{From: data, To: "/data"}},
		Outputs:    []market.Transfer{{From: "/out", To: filepath.Join(dir, "results")}},
		Checkpoint: "/ckpt", Every: 100 * time.Millisecond}
}

func (w *world) submit(s market.Spec) renter.Job {
	w.t.Helper()
	j, err := w.client("renter").Submit(w.ctx, s, false)
	w.must(err)
	return j
}

func (w *world) wait(id string, state renter.JobState) renter.Job {
	w.t.Helper()
	j, err := w.client("renter").Wait(w.ctx, id)
	w.must(err)
	if j.State != state {
		w.t.Fatalf("job is %s (%s, %s), want %s", j.State, j.Reason, j.Detail, state)
	}
	return j
}

var errFound = errors.New("found")

// until waits for an event of a job.
func (w *world) until(id string, f func(renter.Event) bool) {
	w.t.Helper()
	err := w.client("renter").Events(w.ctx, id, 0, true, func(e renter.Event) error {
		if f(e) {
			return errFound
		}
		return nil
	})
	if !errors.Is(err, errFound) {
		j, _ := w.client("renter").Job(w.ctx, id)
		w.t.Fatalf("the event did not come: %v; job is %s (%s, %s)", err, j.State, j.Reason, j.Detail)
	}
}

// lease waits until a peer sees a lease as f wants it.
func (w *world) lease(name string, id attest.Digest, f func(api.LeaseView) bool) api.LeaseView {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		v, err := w.client(name).Lease(w.ctx, id.Hex())
		if err == nil && f(v) {
			return v
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("%s sees lease %s as %s (%s), %s due, %s vouched, outcome %+v, %v", name, id.Short(), v.State, v.Reason, v.Due, v.Vouched, v.Outcome, err)
		case <-tick.C:
		}
	}
}

func closed(v api.LeaseView) bool {
	return v.Outcome != nil && v.Outcome.Signers == 2 && v.Due == v.Vouched
}

// verify holds the receipt file of a job against the job's own figures.
func (w *world) verify(j renter.Job) ledger.Report {
	w.t.Helper()
	b, err := w.client("renter").ExportJob(w.ctx, j.ID)
	w.must(err)
	rep, err := ledger.Verify(b)
	w.must(err)
	now, err := w.client("renter").Job(w.ctx, j.ID)
	w.must(err)
	if rep.Due != now.Cost || rep.Vouched != now.Vouched || rep.Receipts != now.Receipts || rep.Due != rep.Vouched {
		w.t.Errorf("file: %d receipts, %s due, %s vouched; job: %d, %s, %s", rep.Receipts, rep.Due, rep.Vouched, now.Receipts, now.Cost, now.Vouched)
	}
	return rep
}

// sameChain fails unless renter and provider hold the same receipts of a lease, and both files verify.
func (w *world) sameChain(name string, id attest.Digest) {
	w.t.Helper()
	var ids [2][]attest.Digest
	for i, peer := range []string{"renter", name} {
		b, err := w.client(peer).ExportLease(w.ctx, id.Hex())
		w.must(err)
		if _, err := ledger.Verify(b); err != nil {
			w.t.Errorf("file of %s: %v", peer, err)
		}
		list, err := w.client(peer).Receipts(w.ctx, id.Hex())
		w.must(err)
		for _, r := range list {
			ids[i] = append(ids[i], r.ID)
		}
	}
	if len(ids[0]) != len(ids[1]) {
		w.t.Fatalf("the renter has %d receipts, %s has %d", len(ids[0]), name, len(ids[1]))
	}
	for i := range ids[0] {
		if ids[0][i] != ids[1][i] {
			w.t.Errorf("receipt %d: the renter has %s, %s has %s", i+1, ids[0][i].Short(), name, ids[1][i].Short())
		}
	}
}

// sandboxes returns how many sandbox processes of this world live.
func (w *world) sandboxes() int {
	w.t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	w.must(err)
	n := 0
	for _, p := range procs {
		exe, err := os.Readlink(filepath.Join(p, "exe"))
		if err != nil || !strings.HasPrefix(exe, w.binary) {
			continue // gone, or not of this world
		}
		if line, err := os.ReadFile(filepath.Join(p, "cmdline")); err == nil && strings.HasPrefix(string(line), wasm.ChildName) {
			n++
		}
	}
	return n
}

// TestProviderKilledInMidJob is the demo's story told exactly: the job finishes elsewhere from its checkpoint with the
// outputs of an undisturbed run, and the killed provider gets what it is owed and nothing more.
func TestProviderKilledInMidJob(t *testing.T) {
	w := newWorld(t)
	whole := w.wait(w.submit(w.spec("5")).ID, renter.JobSucceeded)
	j := w.submit(w.spec("5"))
	var first attest.Digest
	w.until(j.ID, func(e renter.Event) bool {
		if e.Kind == renter.EvAward {
			first = e.Award.Lease
		}
		return e.Kind == renter.EvCheckpoint && e.Checkpoint.Seq >= 2
	})
	one := w.key("one")
	before, err := w.client("renter").Reputation(w.ctx, one)
	w.must(err)
	w.must(w.net.Kill("one"))
	killed := time.Now()
	w.until(j.ID, func(e renter.Event) bool { return e.Kind == renter.EvLost })
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("noticed after %s, want at most 5 s", took)
	}
	if n := w.sandboxes(); n > 1 { // the job's new one at most
		t.Errorf("%d sandboxes live", n)
	}
	j = w.wait(j.ID, renter.JobSucceeded)
	if len(j.Leases) != 2 || *j.OutputsDigest != *whole.OutputsDigest {
		t.Errorf("%d leases, outputs %s; want 2 and %s", len(j.Leases), j.OutputsDigest, whole.OutputsDigest)
	}
	var log strings.Builder
	w.must(w.client("renter").Log(w.ctx, j.ID, 0, false, func(c renter.LogChunk) error {
		if c.Offset != uint64(log.Len()) {
			t.Errorf("the log goes on at %d, want %d", c.Offset, log.Len())
		}
		log.Write(c.Data)
		return nil
	}))
	if text := log.String(); !strings.Contains(text, "resumed after epoch") || !strings.Contains(text, "epoch 5/5") {
		t.Errorf("log:\n%s", text)
	}
	after, err := w.client("renter").Reputation(w.ctx, one)
	w.must(err)
	if after.ScoreBP >= before.ScoreBP {
		t.Errorf("score of the lost provider went from %d to %d", before.ScoreBP, after.ScoreBP)
	}
	w.verify(j)

	w.must(w.net.Start(w.ctx, "one"))
	v := w.lease("one", first, closed)
	if v.State != "failed" || v.Reason != "restart" {
		t.Errorf("after its restart the provider sees the lease as %s (%s)", v.State, v.Reason)
	}
	w.lease("renter", first, closed)
	w.sameChain("one", first)
	w.verify(j)
	if n := w.sandboxes(); n != 0 {
		t.Errorf("%d sandboxes live", n)
	}
	left, err := os.ReadDir(filepath.Join(w.home("one"), "jobs", "leased"))
	if err != nil || len(left) > 0 {
		t.Errorf("%d folders of leases are left, %v", len(left), err)
	}
}

func (w *world) home(name string) string {
	p, err := w.net.Peer(name)
	w.must(err)
	return p.Home
}

// TestProviderStoppedInMidJob ends the provider in order: the lease ends in writing, signed by both.
func TestProviderStoppedInMidJob(t *testing.T) {
	w := newWorld(t)
	j := w.submit(w.spec("4"))
	w.until(j.ID, func(e renter.Event) bool { return e.Kind == renter.EvCheckpoint })
	w.must(w.net.Stop("one"))
	j = w.wait(j.ID, renter.JobSucceeded)
	if len(j.Leases) != 2 {
		t.Fatalf("%d leases, want 2", len(j.Leases))
	}
	v := w.lease("renter", j.Leases[0], closed)
	if v.Outcome.Code != "provider_abort" || v.Outcome.Reason != "provider_stopped" {
		t.Errorf("outcome %+v", v.Outcome)
	}
	w.verify(j)
	w.must(w.net.Start(w.ctx, "one"))
	w.lease("one", j.Leases[0], closed)
	w.sameChain("one", j.Leases[0])
}

// TestRenterKilledInMidJob kills the renter three times. The job never notices.
func TestRenterKilledInMidJob(t *testing.T) {
	w := newWorld(t)
	j := w.submit(w.spec("8"))
	for round := range 3 {
		now, err := w.client("renter").Job(w.ctx, j.ID)
		w.must(err)
		if round > 0 && now.State.Final() {
			break // a fast machine
		}
		w.until(j.ID, func(e renter.Event) bool { return e.Kind == renter.EvReceipt && e.Receipt.Seq >= uint64(3*round+2) })
		w.must(w.net.Kill("renter"))
		w.must(w.net.Start(w.ctx, "renter"))
	}
	j = w.wait(j.ID, renter.JobSucceeded)
	if len(j.Leases) != 1 || j.ExitCode == nil || *j.ExitCode != 0 || !j.Fetched {
		t.Errorf("%d leases, exit code %v, fetched %v", len(j.Leases), j.ExitCode, j.Fetched)
	}
	w.lease("renter", j.Leases[0], closed)
	w.lease("one", j.Leases[0], closed)
	w.verify(j)
	w.sameChain("one", j.Leases[0])
}

// TestReceiptsSurviveKills kills the provider in the middle of its receipts, again and again. Whatever moment is hit, no
// number is signed twice, what was acknowledged is there, and both sides agree in the end.
func TestReceiptsSurviveKills(t *testing.T) {
	w := newWorld(t)
	one := w.key("one")
	for round := range 4 {
		s := w.spec("1000")
		s.Providers, s.StartWithin = []attest.Key{one}, 3*time.Second
		j := w.submit(s)
		w.until(j.ID, func(e renter.Event) bool { return e.Kind == renter.EvReceipt && e.Receipt.Seq >= uint64(round+1) })
		w.must(w.net.Kill("one"))
		j = w.wait(j.ID, renter.JobStopped)
		w.must(w.net.Start(w.ctx, "one"))
		w.lease("one", j.Leases[0], closed)
		w.lease("renter", j.Leases[0], closed)
		w.sameChain("one", j.Leases[0])
		w.verify(j)
	}
}
