package node_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// blobsOf returns the names of the files among a peer's blobs, whole and in part.
func blobsOf(t *testing.T, p *nodetest.Peer) []string {
	t.Helper()
	h, err := home.At(p.Home)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = filepath.WalkDir(h.BlobsDir(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, d.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func blobCount(t *testing.T, p *nodetest.Peer, want int) {
	t.Helper()
	eventually(t, func() error {
		if names := blobsOf(t, p); len(names) != want {
			return fmt.Errorf("%d blobs are left, want %d: %v", len(names), want, names)
		}
		return nil
	})
}

// TestRenterTidiesUp runs jobs one after the other and looks at what is left of them: the outputs, and the list of them.
func TestRenterTidiesUp(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h","count":2}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	s := guest(t, "files")
	s.Outputs = []market.Transfer{{From: "/out", To: t.TempDir()}}
	j := run(t, r, s)
	want(t, j, renter.JobSucceeded, "")
	left := len(j.Outputs) + 1
	blobCount(t, r, left)

	sleeper := submit(t, r, guest(t, "sleeps"))
	until(t, r, sleeper.ID, receiptNo(1))
	want(t, run(t, r, guest(t, "exit", "0")), renter.JobSucceeded, "")
	blobCount(t, r, left+1) // the module, which the other job still needs
	r.Restart()
	if _, err := r.Client.Stop(t.Context(), sleeper.ID); err != nil {
		t.Fatal(err)
	}
	want(t, wait(t, r, sleeper.ID), renter.JobStopped, "stopped")
	blobCount(t, r, left)
	if files, err := r.Client.Fetch(t.Context(), j.ID, t.TempDir()); err != nil || len(files) != len(j.Outputs) {
		t.Errorf("Fetch after all that = %v, %v", files, err)
	}
}

// TestInputLinks names links: as the input itself, which counts as what it leads to, and in a folder, which is an error.
func TestInputLinks(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "real"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	module, err := buildGuest()
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "real", "module.wasm": module, "folder/inside": "../real"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	s := guest(t, "readonly", "/in")
	s.Module = filepath.Join(dir, "module.wasm")
	s.Inputs = []market.Transfer{{From: filepath.Join(dir, "link"), To: "/in"}}
	j := run(t, r, s)
	want(t, j, renter.JobSucceeded, "")
	if out, _ := output(t, r, j.ID); out != "/in=text\n" {
		t.Errorf("job printed %q", out)
	}
	s.Inputs = []market.Transfer{{From: folder, To: "/in"}}
	j = run(t, r, s)
	want(t, j, renter.JobError, "local_error")
	if !strings.Contains(j.Detail, filepath.Join("folder", "inside")) || !strings.Contains(j.Detail, "link") {
		t.Errorf("detail %q, want the link named", j.Detail)
	}
	blobCount(t, r, 0)
}

// TestStopWhilePreparing stops a job, and then its peer, while an input of a terabyte is read.
func TestStopWhilePreparing(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	big := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(big)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s := guest(t, "exit", "0")
	s.Inputs = []market.Transfer{{From: big, To: "/in"}}
	j := submit(t, r, s)
	if _, err := r.Client.Stop(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	want(t, wait(t, r, j.ID), renter.JobStopped, "stopped")
	blobCount(t, r, 0)
	again := submit(t, r, s)
	r.Restart()
	if j, err := r.Client.Job(t.Context(), again.ID); err != nil || j.State.Final() {
		t.Errorf("after a restart the job is %s, %v", j.State, err)
	}
}

// atRest stops a peer, opens its store for f, and starts the peer again.
func atRest(t *testing.T, p *nodetest.Peer, f func(s *store.Store) error) {
	t.Helper()
	p.Stop()
	h, err := home.At(p.Home)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Dir: h.StoreDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := f(s); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.Restart()
}

// TestCutOffBeforeLearning takes the renter back to where a crash between the end of a lease and what it learned from it
// would have left it.
func TestCutOffBeforeLearning(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	j := run(t, r, guest(t, "exit", "7"))
	want(t, j, renter.JobFailed, "")
	before, err := r.Client.Reputation(t.Context(), p.Node.Key())
	if err != nil || len(before.Terms) != 1 {
		t.Fatalf("%d terms, %v", len(before.Terms), err)
	}
	for _, forget := range []bool{true, false} {
		atRest(t, r, func(s *store.Store) error {
			back := j
			back.State, back.ExitCode, back.EndedAt = renter.JobRunning, nil, nil
			b, err := json.Marshal(back)
			if err != nil {
				return err
			}
			if err := s.SaveJob(j.ID, b); err != nil || !forget {
				return err
			}
			return s.Scan(store.KindEvidence, nil, func(key, _ []byte) error { return s.Delete(store.KindEvidence, append([]byte{}, key...)) })
		})
		again := wait(t, r, j.ID)
		want(t, again, renter.JobFailed, "")
		if again.ExitCode == nil || *again.ExitCode != 7 || len(again.Leases) != 1 {
			t.Errorf("exit code %v, %d leases", again.ExitCode, len(again.Leases))
		}
		after, err := r.Client.Reputation(t.Context(), p.Node.Key())
		if err != nil || len(after.Terms) != 1 || !after.Terms[0].At.Equal(before.Terms[0].At) || after.Terms[0].Value != before.Terms[0].Value {
			t.Errorf("learned %+v, %v; want %+v", after.Terms, err, before.Terms)
		}
	}
}

// TestAbandonedIsSilent gives up a lease of a renter, whose provider then asks for what it owes. Nothing is signed again.
func TestAbandonedIsSilent(t *testing.T) {
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
	vouched := paidSoFar(t, r, j)
	atRest(t, r, func(s *store.Store) error {
		b, err := s.Lease(*j.Lease)
		if err != nil {
			return err
		}
		var rec ledger.Record
		if err := attest.Unmarshal(b, &rec); err != nil {
			return err
		}
		rec.Abandon(time.Now().UnixMilli())
		if b, err = attest.Marshal(rec); err != nil {
			return err
		}
		return s.SaveLease(*j.Lease, b)
	})
	l.connect(r)
	o := d.outcome(market.CodeUnpaid, market.Voucher{}, attest.Digest{})
	late := d.sign(receipt.Domain, d.receipt(100, receipt.Failed))
	s, err := l.deal.SendOutcome(within(t, patience), r.Node.Key(), nil, dealEnding(l.sign(market.OutcomeProviderDomain, o), late))
	if err != nil || s.Code != deal.Unknown || s.Voucher != nil || s.Outcome != nil {
		t.Errorf("settlement %+v, %v; want nothing", s, err)
	}
	if got := paidSoFar(t, r, j); got != vouched {
		t.Errorf("%s vouched after the lease was given up, %s before", got, vouched)
	}
}

func paidSoFar(t *testing.T, r *nodetest.Peer, j renter.Job) market.MicroUSD {
	t.Helper()
	v, err := r.Client.Lease(t.Context(), j.Lease.Hex())
	if err != nil {
		t.Fatal(err)
	}
	return v.Vouched
}

// TestManyOutputs ends a job with more files than a record of the store could name. They are here after a restart too.
func TestManyOutputs(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	const n = 4000
	j, _, to := lying(t, r, func(d *told) {
		d.ready()
		files := make([]market.File, n)
		for i := range files {
			if i < 20 {
				files[i] = d.file("", fmt.Sprint(i))
			} else {
				files[i] = files[i%20]
			}
			files[i].Path = fmt.Sprintf("out/a folder with a name/a file with a longer name %d", i)
		}
		d.finish(files, nil, nil)
	})
	want(t, j, renter.JobSucceeded, "")
	if !j.Fetched || len(j.Outputs) != n || below(t, to, "a folder with a name/a file with a longer name 3999") != "19" {
		t.Errorf("fetched %v, %d outputs", j.Fetched, len(j.Outputs))
	}
	r.Restart()
	if j, err := r.Client.Job(t.Context(), j.ID); err != nil || len(j.Outputs) != n || j.State != renter.JobSucceeded {
		t.Errorf("after a restart: %s, %d outputs, %v", j.State, len(j.Outputs), err)
	}
	blobCount(t, r, 21)
	if files, err := r.Client.Fetch(within(t, patience), j.ID, t.TempDir()); err != nil || len(files) != n {
		t.Errorf("Fetch = %d files, %v", len(files), err)
	}
}

// TestLongOutputName writes a file whose name is as long as names may be.
func TestLongOutputName(t *testing.T) {
	t.Parallel()
	r := nodetest.Start(t, nil)
	name := strings.Repeat("n", 255)
	j, _, to := lying(t, r, func(d *told) {
		d.ready()
		d.finish([]market.File{d.file("out/"+name, "result")}, nil, nil)
	})
	want(t, j, renter.JobSucceeded, "")
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%v in the folder, %v", entries, err)
	}
}

// TestExitCodeUnknown takes up a job whose lease ended well, by a word of this side that lacks the exit code. It did not
// succeed, as far as anybody knows.
func TestExitCodeUnknown(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	j := run(t, r, guest(t, "exit", "0"))
	want(t, j, renter.JobSucceeded, "")
	h, err := home.At(r.Home)
	if err != nil {
		t.Fatal(err)
	}
	key, err := h.Identity("")
	if err != nil {
		t.Fatal(err)
	}
	signer := attest.NewSigner(key, attest.NetworkID(networkName))
	atRest(t, r, func(s *store.Store) error {
		outcomes, err := s.Outcomes(*j.Lease)
		if err != nil {
			return err
		}
		o, err := attest.Decode[market.Outcome](outcomes[0])
		if err != nil {
			return err
		}
		o.ExitCode = nil
		e, err := signer.Sign(market.OutcomeRenterDomain, o)
		if err != nil {
			return err
		}
		back := j
		back.State, back.ExitCode, back.EndedAt = renter.JobRunning, nil, nil
		b, err := json.Marshal(back)
		if err != nil {
			return err
		}
		if err := s.SaveJob(j.ID, b); err != nil {
			return err
		}
		return s.PutOutcome(*j.Lease, e)
	})
	j = wait(t, r, j.ID)
	want(t, j, renter.JobStopped, "exit_code_unknown")
	if j.ExitCode != nil {
		t.Errorf("exit code %d", *j.ExitCode)
	}
}
