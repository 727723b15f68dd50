package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/renter"
)

func newTestCourse(live bool) (*course, *bytes.Buffer, *bytes.Buffer) {
	c, stdout, stderr := newTestCLI()
	return newCourse(c, &screen{stdout: stdout, stderr: stderr, live: live, paint: c.paint}), stdout, stderr
}

// story is the course of a job whose award went to the dearer of two offers.
func story() []renter.Event {
	offer := func(peer byte, price market.MicroUSD, mean uint64, known bool, excluded string) renter.Event {
		return renter.Event{Kind: renter.EvOffer, Offer: &renter.OfferEvent{Peer: key(peer), Price: price, Model: "RTX 4090", Count: 1, MemBytes: 24 << 30,
			Place: "eu/de", MeanBP: mean, Known: known, Score: auction.Score(price, 20, mean), Excluded: excluded, AfterMS: 80, Simulated: true}}
	}
	j := testJob()
	starting, running := j, j
	starting.State, running.State, running.Simulated = renter.JobStarting, renter.JobRunning, true
	return []renter.Event{
		{Kind: renter.EvBid, Bid: &renter.BidEvent{ID: attest.Sum([]byte("bid")), Heard: 5, WindowMS: 1000}},
		offer(2, 210_000, 9_730, true, ""),
		offer(3, 150_000, 8_000, false, ""),
		offer(4, 1_900_000, 8_000, false, "price_above_limit"),
		{Kind: renter.EvDecline, Decline: &renter.DeclineEvent{Peer: key(5), Failures: []market.Failure{{Reason: market.VRAMTooSmall, Wanted: "16GiB", Available: "12GiB"}}}},
		{Kind: renter.EvAward, Award: &renter.AwardEvent{Peer: key(2), Price: 210_000, MeanBP: 9_730, Score: auction.Score(210_000, 20, 9_730), Theta: 20,
			Offers: 3, Declines: 1, Cheaper: []attest.Key{key(3)}}},
		{Kind: renter.EvState, Job: &starting},
		{Kind: renter.EvState, Job: &running},
		{Kind: renter.EvReceipt, Receipt: &renter.ReceiptEvent{Seq: 1, State: "running", RanMS: 10_000, Cost: 583, Telemetry: map[string]uint64{"util_avg_bp": 9_510}}},
		{Kind: renter.EvCheckpoint, Checkpoint: &renter.Checkpoint{Seq: 1, Files: []market.File{{Path: "a"}}}},
		{Kind: renter.EvSilence},
		{Kind: renter.EvLost, Note: "silent for 15s"},
		{Kind: renter.EvOutputs, Note: "open /home/ada/results/a: permission denied"},
		{Kind: renter.EvOutcome, Outcome: &renter.OutcomeEvent{Code: "done", Due: 3_500, Vouched: 3_500, Signers: 2}},
		{Kind: renter.EvReputation, Reputation: &renter.ReputationEvent{Peer: key(2), BeforeBP: new(4_180), AfterBP: 4_630}},
		{Kind: renter.EvState, Job: &j},
	}
}

func TestCourse(t *testing.T) {
	for name, live := range map[string]bool{"course.txt": false, "course-terminal.txt": true} {
		t.Run(name, func(t *testing.T) {
			k, _, stderr := newTestCourse(live)
			for _, e := range story() {
				if err := k.event(e); err != nil {
					t.Fatal(err)
				}
			}
			k.screen.line("%s", k.c.summary(testJob()))
			golden(t, name, stderr.String())
		})
	}
}

func TestABidThatWaitsIsToldOnce(t *testing.T) {
	k, _, stderr := newTestCourse(false)
	bid := func(heard int) renter.Event {
		return renter.Event{Kind: renter.EvBid, Bid: &renter.BidEvent{ID: attest.Sum([]byte("bid")), Heard: heard, WindowMS: 1000}}
	}
	decline := renter.Event{Kind: renter.EvDecline, Decline: &renter.DeclineEvent{Peer: key(5)}}
	award := renter.Event{Kind: renter.EvAward, Award: &renter.AwardEvent{Peer: key(5), Offers: 1}}
	for _, tt := range []struct {
		name  string
		event renter.Event
		says  string // "" = nothing
	}{
		{"nobody", bid(0), "nobody hears it yet; it is announced again"},
		{"nobody again", bid(0), ""},
		{"one", bid(1), "out to 1 peer, "},
		{"one again", bid(1), ""},
		{"one declines", decline, "decline"},
		{"one again, and the list of answers begins anew", bid(1), "out to 1 peer, "},
		{"an award", award, "award"},
		{"for the rest of the job", bid(1), "out to 1 peer, "},
		{"nobody any more", bid(0), "nobody hears it yet"},
	} {
		stderr.Reset()
		if err := k.event(tt.event); err != nil {
			t.Fatal(err)
		}
		if got := stderr.String(); (tt.says == "") != (got == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%s: says %q, want %q", tt.name, got, tt.says)
		}
	}
	k.peers = 2
	if got := k.noOfferHint(); !strings.Contains(got, "no provider of this kind is on the network now") {
		t.Errorf("hint with connected peers is %q", got)
	}
}

func TestScreenKeepsOutputWhole(t *testing.T) {
	k, stdout, stderr := newTestCourse(true)
	k.screen.status("1 receipt")
	for _, text := range []string{"epoch 1 ", "done\n"} {
		if err := k.screen.write(1, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.screen.write(2, []byte("warning\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := stdout.String(), "epoch 1 done\n"; got != want {
		t.Errorf("stdout = %q, want %q", got, want)
	}
	// The line is taken away for the output, kept away while that has not ended its line, and drawn again.
	if got, want := stderr.String(), "1 receipt\r\x1b[K1 receipt\r\x1b[Kwarning\n1 receipt"; got != want {
		t.Errorf("stderr = %q, want %q", got, want)
	}
}

func TestEnd(t *testing.T) {
	code := func(n int) *int { return &n }
	tests := []struct {
		name string
		job  renter.Job
		exit int // of run
		says string
	}{
		{"succeeded", renter.Job{State: renter.JobSucceeded, ExitCode: code(0)}, 0, ""},
		{"dry run", renter.Job{State: renter.JobSucceeded}, 0, ""},
		{"job's own code", renter.Job{State: renter.JobFailed, ExitCode: code(7)}, 7, ""},
		{"code that no shell can see", renter.Job{State: renter.JobFailed, ExitCode: code(256)}, 255, ""},
		{"outputs not written", renter.Job{ID: "a", State: renter.JobSucceeded, ExitCode: code(0), Detail: "write outputs: open /r/o: permission denied"}, 201,
			"error: job a: write outputs: open /r/o: permission denied\nhint:  they are kept; name a folder for them: lacuna fetch a FOLDER\n"},
		{"dry run with a word", renter.Job{State: renter.JobSucceeded, DryRun: true, Detail: "4 offers"}, 0, ""},
		{"no offer", renter.Job{ID: "a", State: renter.JobNoOffer}, 203, "error: find a provider for a: no peer answered\nhint:  join a network with: lacuna join INVITE  (lacuna invite prints one on a peer of it)\n"},
		{"stopped", renter.Job{ID: "a", State: renter.JobStopped, Reason: "duration"}, 204,
			"error: job a was stopped: duration\nhint:  allow it more time with --duration, and save its work with --checkpoint\n"},
		{"error", renter.Job{ID: "a", State: renter.JobError, Reason: "local_error", Detail: "disk full"}, 201, "error: job a: disk full\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, _, stderr := newTestCourse(false)
			if got := k.c.report(k.end(tt.job), true); got != tt.exit {
				t.Errorf("exit code = %d, want %d", got, tt.exit)
			}
			if got := stderr.String(); got != tt.says {
				t.Errorf("stderr = %q, want %q", got, tt.says)
			}
		})
	}
}

func TestNoOfferSaysWhy(t *testing.T) {
	k, _, stderr := newTestCourse(false)
	for _, e := range story()[:5] {
		if e.Offer == nil || e.Offer.Excluded != "" {
			if err := k.event(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	stderr.Reset()
	err := k.end(renter.Job{ID: "a", Name: "digits", State: renter.JobNoOffer})
	var e *exitError
	if !errors.As(err, &e) {
		t.Fatalf("end = %v, want an exitError", err)
	}
	k.c.report(err, true)
	golden(t, "no-offer.txt", stderr.String())
}
