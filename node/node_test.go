package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

func TestMain(m *testing.M) {
	if code, ok := wasm.ChildMain(); ok { // the sandbox of a job is this test binary again
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func digitsSpec(t *testing.T, args ...string) market.Spec {
	t.Helper()
	dir := t.TempDir()
	module := filepath.Join(dir, "digits.wasm")
	data := filepath.Join(dir, "data")
	writeExample(t, module, data)
	return market.Spec{Name: "digits", Module: module, Args: args, GPUs: 1, Duration: 5 * time.Minute, Interval: time.Second,
		Inputs:     []market.Transfer{{From: data, To: "/data"}},
		Outputs:    []market.Transfer{{From: "/out", To: filepath.Join(dir, "results")}},
		Checkpoint: "/ckpt", Every: time.Second}
}

func TestOneJob(t *testing.T) {
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"0.21 USD/h","place":"eu/de/berlin"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	ctx := within(t, 2*time.Minute)
	job, err := r.Client.Submit(ctx, digitsSpec(t, "-epochs", "2", "-images", "500"), false)
	if err != nil {
		t.Fatal(err)
	}
	err = r.Client.Events(ctx, job.ID, 0, true, func(e renter.Event) error {
		t.Logf("%s %+v", e.Kind, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if job, err = r.Client.Wait(ctx, job.ID); err != nil {
		t.Fatal(err)
	}
	if job.State != renter.JobSucceeded || job.ExitCode == nil || *job.ExitCode != 0 {
		t.Fatalf("job is %s (%s %s)", job.State, job.Reason, job.Detail)
	}
	file, err := r.Client.ExportJob(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := ledger.Verify(file)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Receipts == 0 || rep.Vouched != rep.Due || rep.Due != job.Cost || rep.Due == 0 {
		t.Errorf("%d receipts, %s due, %s vouched, job cost %s", rep.Receipts, rep.Due, rep.Vouched, job.Cost)
	}
	if rep.Leases[0].Signers != 2 {
		t.Errorf("outcome has %d signers, want 2", rep.Leases[0].Signers)
	}
	if _, err := os.Stat(filepath.Join(job.Spec.Outputs[0].To, "metrics.json")); err != nil {
		t.Error(err)
	}
}

// writeExample writes the module and its data where a job finds them.
func writeExample(t *testing.T, module, data string) {
	t.Helper()
	code, files := examples.Digits()
	if err := errors.Join(os.WriteFile(module, code, 0o600), os.CopyFS(data, files)); err != nil {
		t.Fatal(err)
	}
}
