package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/renter"
)

// demoRun is one run of the demo as a process, with a temporary folder of its own, so that leftovers show.
type demoRun struct {
	binary, tmp, receipts string
	cmd                   *exec.Cmd
	stdout, stderr        bytes.Buffer
}

func newDemoRun(t *testing.T, args ...string) *demoRun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ld") // short: a path in it is a socket's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &demoRun{binary: filepath.Join(dir, "lacuna"), tmp: filepath.Join(dir, "tmp"), receipts: filepath.Join(dir, "demo.receipts")}
	if err := errors.Join(os.Mkdir(d.tmp, 0o700), copyFile(self, d.binary)); err != nil {
		t.Fatal(err)
	}
	d.cmd = d.command(append([]string{"demo", "-o", "json", "--receipts", d.receipts}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = &d.stdout, &d.stderr
	return d
}

// command runs the test binary as lacuna, which it is under that name.
func (d *demoRun) command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.binary, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	return cmd
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// checkClean fails if the demo left a process or a file.
func (d *demoRun) checkClean(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(d.tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("the demo left %s", e.Name())
	}
	procs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if exe, err := os.Readlink(p); err == nil && strings.HasPrefix(exe, d.binary) {
			t.Errorf("the demo left process %s", filepath.Base(filepath.Dir(p)))
		}
	}
}

func (d *demoRun) result(t *testing.T) demoResult {
	t.Helper()
	if err := d.cmd.Run(); err != nil {
		t.Fatalf("demo: %v\n%s", err, d.stderr.String())
	}
	var r demoResult
	dec := json.NewDecoder(&d.stdout)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if dec.More() {
		t.Error("stdout holds more than one document")
	}
	return r
}

func checkDemo(t *testing.T, r demoResult) {
	t.Helper()
	if r.Receipts.Count == 0 || r.Receipts.Count != r.Receipts.Verified {
		t.Errorf("receipts: %d, verified %d", r.Receipts.Count, r.Receipts.Verified)
	}
	if r.Cost == 0 || r.Cost != r.Vouched {
		t.Errorf("cost %s, vouchers %s", r.Cost, r.Vouched)
	}
	if acc, ok := r.Job.Result["accuracy"].(float64); !ok || acc < 0.9 || acc > 1 {
		t.Errorf("accuracy = %v, want at least 0.9", r.Job.Result["accuracy"])
	}
	if r.Job.State != "succeeded" || r.Job.ExitCode == nil || *r.Job.ExitCode != 0 || r.Job.OutputsDigest == nil {
		t.Errorf("job: %+v", r.Job)
	}
	want := demoDecline{Reason: "vram_too_small", Wanted: "24GiB", Available: "12GiB"}
	if len(r.Declines) != 1 || r.Declines[0].Peer.IsZero() || (demoDecline{r.Declines[0].Peer, want.Reason, want.Wanted, want.Available}) != r.Declines[0] {
		t.Errorf("declines = %+v, want one: %+v", r.Declines, want)
	}
	if r.Peers != 6 || r.Offers != 4 || !r.Simulated || r.AuctionMS == nil || r.ToRunMS == nil {
		t.Errorf("peers %d, offers %d, simulated %v, auction %v, running %v", r.Peers, r.Offers, r.Simulated, r.AuctionMS, r.ToRunMS)
	}
	// A day's evidence on one provider is capped, and on a slow machine the tiny job alone may reach that.
	if r.Reputation.BeforeBP == nil || r.Reputation.AfterBP == nil || *r.Reputation.AfterBP < *r.Reputation.BeforeBP {
		t.Errorf("reputation went from %v to %v, want no fall", value(r.Reputation.BeforeBP), value(r.Reputation.AfterBP))
	}
}

// value shows what a pointer points to.
func value(p *int) string {
	if p == nil {
		return unknown
	}
	return strconv.Itoa(*p)
}

func TestDemo(t *testing.T) {
	d := newDemoRun(t)
	r := d.result(t)
	checkDemo(t, r)
	// Where the job's own auction closed before all had answered, another may have won, but never the one that is cheap.
	if r.Price != 210000 && !r.Rehearsal || r.Price == 120000 {
		t.Errorf("the winner asks %s, want 0.21 USD/h: the cheaper one let the renter down before", r.Price.PerHour())
	}
	d.checkClean(t)
	data, err := os.ReadFile(d.receipts)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := d.command("receipts", "verify", d.receipts).CombinedOutput(); err != nil {
		t.Errorf("receipts verify: %v\n%s", err, out)
	}
	for _, at := range []int{0, len(ledger.Magic), len(data) / 3, len(data) / 2, len(data) - 1} {
		bad := bytes.Clone(data)
		bad[at] ^= 1
		if err := os.WriteFile(d.receipts, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := d.command("receipts", "verify", d.receipts).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitVerify || !bytes.Contains(out, []byte("error: ")) {
			t.Errorf("byte %d flipped: %v, want exit code %d\n%s", at, err, exitVerify, out)
		}
	}
}

func TestDemoAuctionIsTheLastBeforeTheAward(t *testing.T) {
	offer := func(peer byte) renter.Event {
		return renter.Event{Kind: renter.EvOffer, Offer: &renter.OfferEvent{Peer: key(peer)}}
	}
	bid := func(name string) renter.Event {
		return renter.Event{Kind: renter.EvBid, Bid: &renter.BidEvent{ID: attest.Sum([]byte(name))}}
	}
	decline := renter.Event{Kind: renter.EvDecline, Decline: &renter.DeclineEvent{Peer: key(9), Failures: []market.Failure{{Reason: market.VRAMTooSmall}}}}
	var a demoAuction
	for _, e := range []renter.Event{bid("first"), offer(1), decline, bid("second"), offer(1), offer(2), offer(3), decline} {
		a.note(e)
	}
	if a.whole() {
		t.Error("whole before all have answered")
	}
	for _, e := range []renter.Event{offer(4), {Kind: renter.EvAward}, bid("after a loss"), offer(5)} {
		a.note(e)
	}
	if !a.whole() || a.offers != 4 || len(a.declines) != 1 || a.bid != attest.Sum([]byte("second")).String() {
		t.Errorf("auction = %+v, want the second with 4 offers and a decline", a)
	}
}

func TestDemoSurvivesItsWinner(t *testing.T) {
	d := newDemoRun(t, "--fault", killWinner)
	r := d.result(t)
	checkDemo(t, r)
	if r.Leases != 2 || !strings.Contains(d.stderr.String(), "resumed after epoch") {
		t.Errorf("%d leases, want 2 and a job that resumed from its checkpoint\n%s", r.Leases, d.stderr.String())
	}
	d.checkClean(t)
}

func TestDemoInterrupted(t *testing.T) {
	d := newDemoRun(t)
	seen := &signalWriter{want: []byte("epoch 1/"), hit: make(chan struct{})}
	d.cmd.Stderr = seen
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.cmd.Wait() }()
	select {
	case <-seen.hit: // in the middle of the job
	case err := <-done:
		t.Fatalf("demo ended early: %v\n%s", err, seen.all.String())
	}
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-done; !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("demo ended with %v, want exit code %d", err, exitInterrupted)
	}
	d.checkClean(t)
	if _, err := os.Stat(d.receipts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("receipts of an interrupted demo: %v", err)
	}
}

// signalWriter closes hit when what was written contains want.
type signalWriter struct {
	want []byte
	all  bytes.Buffer
	hit  chan struct{}
	done bool
}

func (w *signalWriter) Write(p []byte) (int, error) {
	w.all.Write(p)
	if !w.done && bytes.Contains(w.all.Bytes(), w.want) {
		w.done = true
		close(w.hit)
	}
	return len(p), nil
}
