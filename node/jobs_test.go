package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
)

// TestJobs runs jobs of every kind between one provider and one renter.
func TestJobs(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","count":4,"price":"3.60 USD/h"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)

	t.Run("exit code", func(t *testing.T) { // first and alone: it compiles the module for all that follow
		j := run(t, r, guest(t, "exit", "7"))
		want(t, j, renter.JobFailed, "")
		if j.ExitCode == nil || *j.ExitCode != 7 {
			t.Errorf("exit code %v, want 7", j.ExitCode)
		}
		if rep := paid(t, r, j.ID); rep.Leases[0].Outcome.ExitCode == nil || *rep.Leases[0].Outcome.ExitCode != 7 {
			t.Errorf("outcome %+v, want exit code 7", rep.Leases[0].Outcome)
		}
	})
	t.Run("arguments and environment", func(t *testing.T) {
		s := guest(t, "args", "a b", "")
		s.Env = map[string]string{"B": "2=3", "A": ""}
		j := run(t, r, s)
		want(t, j, renter.JobSucceeded, "")
		out, _ := output(t, r, j.ID)
		if !strings.Contains(out, `"args" "a b" ""]`) || !strings.Contains(out, `["A=" "B=2=3"]`) {
			t.Errorf("job printed %s", out)
		}
	})
	t.Run("both streams", func(t *testing.T) {
		j := run(t, r, guest(t, "both"))
		want(t, j, renter.JobSucceeded, "")
		if out, err := output(t, r, j.ID); out != "to out" || err != "to err" || j.LogBytes != 12 {
			t.Errorf("stdout %q, stderr %q, %d bytes", out, err, j.LogBytes)
		}
	})
	t.Run("inputs", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{"one": "1", "folder/two": "22", "folder/deep/three": "333"} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := guest(t, "readonly", "/in/one", "/data/two", "/data/deep/three")
		s.Inputs = []market.Transfer{{From: filepath.Join(dir, "one"), To: "/in/one"}, {From: filepath.Join(dir, "folder"), To: "/data"}}
		j := run(t, r, s)
		want(t, j, renter.JobSucceeded, "")
		if out, _ := output(t, r, j.ID); out != "/in/one=1\n/data/two=22\n/data/deep/three=333\n" {
			t.Errorf("job printed %q", out)
		}
	})
	t.Run("an input that is not there", func(t *testing.T) {
		s := guest(t, "exit", "0")
		s.Inputs = []market.Transfer{{From: filepath.Join(t.TempDir(), "none"), To: "/data"}}
		j := run(t, r, s)
		want(t, j, renter.JobError, "local_error")
		if !strings.Contains(j.Detail, "none") || j.Attempts != 0 {
			t.Errorf("%d auctions, detail %q; want none, and the file named", j.Attempts, j.Detail)
		}
	})
	t.Run("outputs", func(t *testing.T) {
		s := guest(t, "files")
		to := filepath.Join(t.TempDir(), "results")
		s.Outputs = []market.Transfer{{From: "/out", To: to}}
		j := run(t, r, s)
		want(t, j, renter.JobSucceeded, "")
		again := t.TempDir()
		files, err := r.Client.Fetch(t.Context(), j.ID, again)
		if err != nil || len(files) != 1 || files[0] != filepath.Join(again, "out", "a", "d") {
			t.Fatalf("Fetch = %v, %v", files, err)
		}
		for _, f := range []string{filepath.Join(to, "a", "d"), files[0]} {
			if b, err := os.ReadFile(f); err != nil || !strings.HasPrefix(string(b), "0XY3456789") {
				t.Errorf("%s holds %q, %v", f, b, err)
			}
		}
		if rep := paid(t, r, j.ID); rep.Leases[0].Outcome.Out == nil || j.OutputsDigest == nil || *rep.Leases[0].Outcome.Out != *j.OutputsDigest {
			t.Errorf("outputs %v, outcome %+v", j.OutputsDigest, rep.Leases[0].Outcome)
		}
	})
	t.Run("output with a backslash in its name", func(t *testing.T) {
		s := guest(t, "names", `/out/a\b`)
		to := filepath.Join(t.TempDir(), "results")
		s.Outputs = []market.Transfer{{From: "/out", To: to}}
		want(t, run(t, r, s), renter.JobSucceeded, "")
		if _, err := os.Stat(filepath.Join(to, `a\b`)); err != nil {
			t.Error(err)
		}
	})
	t.Run("outputs that cannot be written", func(t *testing.T) {
		s := guest(t, "files")
		to := filepath.Join(t.TempDir(), "taken")
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Outputs = []market.Transfer{{From: "/out", To: to}}
		j := run(t, r, s)
		want(t, j, renter.JobSucceeded, "")
		if j.Fetched || !strings.Contains(j.Detail, "write outputs") || !strings.Contains(j.Detail, "taken") {
			t.Errorf("fetched %v, detail %q; want the reason why its outputs do not lie where they belong", j.Fetched, j.Detail)
		}
		until(t, r, j.ID, func(e renter.Event) bool { return e.Kind == renter.EvOutputs && e.Note == j.Detail })
		if files, err := r.Client.Fetch(t.Context(), j.ID, t.TempDir()); err != nil || len(files) != 1 {
			t.Errorf("Fetch to another place = %v, %v", files, err)
		}
	})
	t.Run("folders in one another", func(t *testing.T) {
		s := guest(t, "exit", "0")
		s.Outputs = []market.Transfer{{From: "/out", To: t.TempDir()}}
		s.Checkpoint = "/out/state"
		if _, err := r.Client.Submit(t.Context(), s, false); err == nil || !strings.Contains(err.Error(), `"/out/state" lies in "/out"`) {
			t.Errorf("Submit = %v, want both folders named", err)
		}
	})
	t.Run("stopped by the renter", func(t *testing.T) {
		j := submit(t, r, guest(t, "sleeps"))
		until(t, r, j.ID, receiptNo(2))
		if _, err := r.Client.Stop(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		j = wait(t, r, j.ID)
		want(t, j, renter.JobStopped, "stopped")
		if rep := paid(t, r, j.ID); rep.Leases[0].Outcome.Code != market.CodeRenterCancel {
			t.Errorf("outcome %s", rep.Leases[0].Outcome.Code)
		}
	})
	t.Run("limits", func(t *testing.T) { limits(t, r) })
	blameless(t, r)
	t.Run("nothing is left of the leases", func(t *testing.T) {
		noFolders(t, filepath.Join(p.Home, "jobs", "leased"))
	})
}

// limits runs jobs that hit each of their own limits. Each is paid for what it used, and none of them is the provider's
// fault.
func limits(t *testing.T, r *nodetest.Peer) {
	tests := []struct {
		name   string
		spec   func(*testing.T) market.Spec
		reason string
	}{
		{"output", func(t *testing.T) market.Spec { s := guest(t, "flood"); s.LogBytes = 100_000; return s }, "output_limit"},
		{"memory", func(t *testing.T) market.Spec { s := guest(t, "eat", "1000000"); s.MemBytes = 64 << 20; return s }, "memory_limit"},
		{"disk", func(t *testing.T) market.Spec {
			s := guest(t, "fill", "/out")
			s.Outputs, s.DiskBytes = []market.Transfer{{From: "/out", To: t.TempDir()}}, 1<<20
			return s
		}, "disk_limit"},
		{"deadline", func(t *testing.T) market.Spec { s := guest(t, "sleeps"); s.Duration = time.Second; return s }, "deadline"},
		{"trap", func(t *testing.T) market.Spec { return handMade(t, 0x00) }, "trapped"},
		{"endless", func(t *testing.T) market.Spec {
			s := handMade(t, 0x03, 0x40, 0x0c, 0, 0x0b)
			s.Duration = time.Second
			return s
		}, "deadline"},
		{"invalid module", func(t *testing.T) market.Spec { return handMade(t, 0x1a) }, "invalid_module"},
		{"too many outputs", func(t *testing.T) market.Spec {
			s := guest(t, "many", fmt.Sprint(market.MaxOutputFiles+1))
			s.Outputs = []market.Transfer{{From: "/out", To: t.TempDir()}}
			return s
		}, "too_many_outputs"},
		{"name of an output", func(t *testing.T) market.Spec {
			folder := strings.Repeat("n", 250)
			s := guest(t, "names", "/out/fine", "/out/"+folder+"/"+folder+"/"+folder)
			s.Outputs = []market.Transfer{{From: "/out", To: t.TempDir()}}
			return s
		}, "bad_output_name"},
		{"budget", func(t *testing.T) market.Spec { s := guest(t, "sleeps"); s.Budget = 1000; return s }, "budget"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := tt.spec(t)
			j := run(t, r, s)
			want(t, j, renter.JobStopped, tt.reason)
			rep := proof(t, r, j.ID)
			l := rep.Leases[0]
			if len(rep.Leases) != 1 || rep.Receipts == 0 || rep.Vouched != rep.Due || l.Signers != 2 {
				t.Errorf("%d leases, %d receipts, %s due, %s vouched, %d signers", len(rep.Leases), rep.Receipts, rep.Due, rep.Vouched, l.Signers)
			}
			if l.Outcome.Code != market.CodeLimit || l.Outcome.Reason != tt.reason {
				t.Errorf("outcome %s (%s)", l.Outcome.Code, l.Outcome.Reason)
			}
		})
	}
}

// blameless fails the test if the renter holds anything against a provider.
func blameless(t *testing.T, r *nodetest.Peer) {
	t.Helper()
	reps, err := r.Client.Reputations(within(t, time.Minute))
	if err != nil || len(reps) == 0 {
		t.Fatalf("%d reputations, %v", len(reps), err)
	}
	for _, rep := range reps {
		for _, term := range rep.Terms {
			if !term.OK {
				t.Errorf("%s counts against the provider", term.What)
			}
		}
	}
}

// noFolders waits until a folder has no folder in it.
func noFolders(t *testing.T, dir string) {
	t.Helper()
	eventually(t, func() error {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			return fmt.Errorf("%d folders in %s, %v", len(entries), dir, err)
		}
		return nil
	})
}

// patience is how long a test waits for what no job's end tells of. It is long for slow machines; no test needs it.
const patience = 3 * time.Minute

// eventually asks f until it returns nil. It is for what no event tells of.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-limit.C:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}
