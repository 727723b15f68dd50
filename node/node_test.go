package node_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue { // these tests wait more than they compute
		_ = f.Value.Set("6") // cannot fail for a number
	}
	code := nodetest.Main(m)
	if guestDir != "" {
		_ = os.RemoveAll(guestDir)
	}
	os.Exit(code)
}

// guestDir holds the module that buildGuest made, for all tests of the package.
var guestDir string

// buildGuest compiles the guest of the sandbox's own tests, which does the one thing that its first argument names.
var buildGuest = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lacuna-guest-")
	if err != nil {
		return "", err
	}
	guestDir = dir
	module := filepath.Join(dir, "guest.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, "./runner/wasm/testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build guest: %w\n%s", err, out)
	}
	return module, nil
})

// guest returns a job that runs the guest with these arguments.
func guest(t *testing.T, args ...string) market.Spec {
	t.Helper()
	module, err := buildGuest()
	if err != nil {
		t.Fatal(err)
	}
	return market.Spec{Module: module, Args: args, GPUs: 1, Interval: 200 * time.Millisecond, Survive: time.Minute,
		StartWithin: time.Minute, Duration: 10 * time.Minute, MaxPrice: 100 * market.USD}
}

// handMade returns a job whose module is one exported function with this body, put together by hand (WebAssembly core
// specification 2.0, chapter 5): no parameters, no results, no imports, one page of memory.
func handMade(t *testing.T, body ...byte) market.Spec {
	t.Helper()
	section := func(id byte, b ...byte) []byte { return append([]byte{id, byte(len(b))}, b...) }
	code := append(append([]byte{0}, body...), 0x0b)
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, section(1, 1, 0x60, 0, 0)...)
	m = append(m, section(3, 1, 0)...)
	m = append(m, section(5, 1, 0, 1)...)
	m = append(m, section(7, append([]byte{2, 6}, "memory\x02\x00\x06_start\x00\x00"...)...)...)
	m = append(m, section(10, append([]byte{1, byte(len(code))}, code...)...)...)
	s := guest(t, "hand-made")
	s.Args, s.Module = nil, filepath.Join(t.TempDir(), "hand.wasm")
	if err := os.WriteFile(s.Module, m, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// jobLimit is how long a test waits for one job. It is long for slow machines; no test needs it.
const jobLimit = 8 * time.Minute

func submit(t *testing.T, r *nodetest.Peer, s market.Spec) renter.Job {
	t.Helper()
	j, err := r.Client.Submit(within(t, jobLimit), s, false)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func wait(t *testing.T, r *nodetest.Peer, id string) renter.Job {
	t.Helper()
	j, err := r.Client.Wait(within(t, jobLimit), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// run submits a job and waits for its end.
func run(t *testing.T, r *nodetest.Peer, s market.Spec) renter.Job {
	t.Helper()
	return wait(t, r, submit(t, r, s).ID)
}

// errSeen ends the following of events.
var errSeen = errors.New("seen")

// until follows a job's events to the first one that f wants.
func until(t *testing.T, r *nodetest.Peer, id string, f func(renter.Event) bool) renter.Event {
	t.Helper()
	var got renter.Event
	err := r.Client.Events(within(t, jobLimit), id, 0, true, func(e renter.Event) error {
		if !f(e) {
			return nil
		}
		got = e
		return errSeen
	})
	if !errors.Is(err, errSeen) {
		j, _ := r.Client.Job(t.Context(), id)
		t.Fatalf("the event did not come (%v); job is %s (%s %s)", err, j.State, j.Reason, j.Detail)
	}
	return got
}

func receiptNo(n uint64) func(renter.Event) bool {
	return func(e renter.Event) bool { return e.Kind == renter.EvReceipt && e.Receipt.Seq >= n }
}

// want fails the test if the job did not end like that.
func want(t *testing.T, j renter.Job, s renter.JobState, reason string) {
	t.Helper()
	if j.State != s || j.Reason != reason {
		t.Fatalf("job is %s (%q, %s), want %s (%q)", j.State, j.Reason, j.Detail, s, reason)
	}
}

// proof verifies the receipt file of a job and holds it against what the job shows.
func proof(t *testing.T, r *nodetest.Peer, id string) ledger.Report {
	t.Helper()
	ctx := within(t, time.Minute)
	file, err := r.Client.ExportJob(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := ledger.Verify(file)
	if err != nil {
		t.Fatalf("receipt file: %v", err)
	}
	j, err := r.Client.Job(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Due != j.Cost || rep.Vouched != j.Vouched || rep.Receipts != j.Receipts {
		t.Errorf("file: %d receipts, %s due, %s vouched; job: %d, %s, %s", rep.Receipts, rep.Due, rep.Vouched, j.Receipts, j.Cost, j.Vouched)
	}
	if rep.Due > j.Spec.Budget {
		t.Errorf("%s due, the budget is %s", rep.Due, j.Spec.Budget)
	}
	return rep
}

// paid is proof for a job that ran on one lease and was settled by both sides.
func paid(t *testing.T, r *nodetest.Peer, id string) ledger.Report {
	t.Helper()
	rep := proof(t, r, id)
	if rep.Receipts == 0 || rep.Due == 0 || rep.Vouched != rep.Due {
		t.Errorf("%d receipts, %s due, %s vouched; want all of it vouched", rep.Receipts, rep.Due, rep.Vouched)
	}
	if len(rep.Leases) != 1 || rep.Leases[0].Signers != 2 {
		t.Errorf("%d leases, %d signers of the first; want one lease whose end both signed", len(rep.Leases), rep.Leases[0].Signers)
	}
	return rep
}

// output returns what a job printed, by stream.
func output(t *testing.T, r *nodetest.Peer, id string) (out, err string) {
	t.Helper()
	streams := map[int]*strings.Builder{1: {}, 2: {}}
	next := uint64(0)
	e := r.Client.Log(within(t, jobLimit), id, 0, true, func(c joblog.Chunk) error {
		if c.Offset != next {
			t.Errorf("log goes on at %d, want %d", c.Offset, next)
		}
		next += uint64(len(c.Data))
		_, err := streams[c.Stream].Write(c.Data)
		return err
	})
	if e != nil {
		t.Fatal(e)
	}
	return streams[1].String(), streams[2].String()
}

// digitsSpec returns the example that trains a network; it saves checkpoints and prints a line after each epoch.
func digitsSpec(t *testing.T, args ...string) market.Spec {
	t.Helper()
	dir := t.TempDir()
	module := filepath.Join(dir, "digits.wasm")
	data := filepath.Join(dir, "data")
	code, files := examples.Digits()
	if err := errors.Join(os.WriteFile(module, code, 0o600), os.CopyFS(data, files)); err != nil {
		t.Fatal(err)
	}
	return market.Spec{Name: "digits", Module: module, Args: args, GPUs: 1, Duration: 5 * time.Minute, Interval: 500 * time.Millisecond,
		Inputs:     []market.Transfer{{From: data, To: "/data"}},
		Outputs:    []market.Transfer{{From: "/out", To: filepath.Join(dir, "results")}},
		Checkpoint: "/ckpt", Every: 100 * time.Millisecond}
}

func TestOneJob(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"0.21 USD/h","place":"eu/de/berlin"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	job := run(t, r, digitsSpec(t, "-epochs", "2", "-images", "500"))
	want(t, job, renter.JobSucceeded, "")
	if job.ExitCode == nil || *job.ExitCode != 0 {
		t.Errorf("exit code %v", job.ExitCode)
	}
	paid(t, r, job.ID)
	if _, err := os.Stat(filepath.Join(job.Spec.Outputs[0].To, "metrics.json")); err != nil {
		t.Error(err)
	}
}
