package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/renter"
)

// course tells the course of one job in words, event by event.
type course struct {
	c      *cli
	screen *screen

	bids     int // announced since the last award
	heard    int // peers that could hear the last bid
	peers    int // connected when the job ended; 0 = none, or not looked
	offers   map[attest.Key]renter.OfferEvent
	declines map[attest.Key]renter.DeclineEvent
	state    renter.JobState
	receipts int
	cost     market.MicroUSD
	ranMS    uint64
}

func newCourse(c *cli, s *screen) *course {
	return &course{c: c, screen: s, offers: map[attest.Key]renter.OfferEvent{}, declines: map[attest.Key]renter.DeclineEvent{}}
}

// event shows e.
func (t *course) event(e renter.Event) error {
	say := func(what, format string, args ...any) {
		t.screen.line("%s "+format, append([]any{t.c.paint(dim, fmt.Sprintf("%-10s", what))}, args...)...)
	}
	switch {
	case e.Kind == renter.EvState && e.Job != nil:
		t.jobState(*e.Job, say)
	case e.Kind == renter.EvBid && e.Bid != nil:
		t.bid(*e.Bid, say)
	case e.Kind == renter.EvOffer && e.Offer != nil:
		t.offers[e.Offer.Peer] = *e.Offer
		say("offer", "%s", t.offer(*e.Offer))
	case e.Kind == renter.EvDecline && e.Decline != nil:
		t.declines[e.Decline.Peer] = *e.Decline
		say("decline", "%s  %s", t.c.peer(e.Decline.Peer), failures(e.Decline.Failures))
	case e.Kind == renter.EvRefused && e.Decline != nil:
		say("refused", "%s takes its offer back: %s", t.c.peer(e.Decline.Peer), failures(e.Decline.Failures))
	case e.Kind == renter.EvUnreached && e.Unreached != nil:
		say("passed", "%s over: %s; nothing was signed", t.c.peer(e.Unreached.Peer), words(e.Unreached.Reason))
	case e.Kind == renter.EvAward && e.Award != nil:
		t.bids = 0
		say("award", "%s", t.award(*e.Award))
	case e.Kind == renter.EvTransfer && e.Transfer != nil:
		t.screen.status(fmt.Sprintf("%s %s of %s", e.Transfer.What, market.FormatBytes(e.Transfer.Done), market.FormatBytes(e.Transfer.Total)))
	case e.Kind == renter.EvReceipt && e.Receipt != nil:
		t.receipts++
		t.cost, t.ranMS = e.Receipt.Cost, e.Receipt.RanMS
		t.tick(*e.Receipt)
	case e.Kind == renter.EvCheckpoint && e.Checkpoint != nil:
		say("checkpoint", "%d is safe here (%s)", e.Checkpoint.Seq, count(len(e.Checkpoint.Files), "file"))
	case e.Kind == renter.EvSilence:
		say("silence", "%s", note(e.Note, "the provider is not heard"))
	case e.Kind == renter.EvLost:
		say("lost", "%s", note(words(e.Note), "the provider is given up; the rest goes to another one"))
	case e.Kind == renter.EvOutputs:
		t.screen.status("")
		say("outputs", "not written: %s", note(e.Note, unknown))
	case e.Kind == renter.EvOutcome && e.Outcome != nil:
		t.screen.status("")
		say("outcome", "%s", outcomeText(e.Outcome.Code, e.Outcome.Reason, e.Outcome.Due, e.Outcome.Vouched, e.Outcome.Signers))
	case e.Kind == renter.EvReputation && e.Reputation != nil:
		t.reputation(*e.Reputation, say)
	}
	return nil
}

// bid begins a new list of answers. A bid that is announced again is told only where something changed.
func (t *course) bid(b renter.BidEvent, say func(what, format string, args ...any)) {
	same := t.bids > 0 && b.Heard == t.heard && len(t.offers)+len(t.declines) == 0
	clear(t.offers)
	clear(t.declines)
	t.bids++
	t.heard = b.Heard
	switch {
	case same:
	case b.Heard == 0:
		say("bid", "%s out, nobody hears it yet; it is announced again until somebody does", b.ID.Short())
	default:
		say("bid", "%s out to %s, offers close in %s", b.ID.Short(), count(b.Heard, "peer"), millis(b.WindowMS))
	}
}

// lookAround notes how many peers are connected, for the hint about a job that nobody took.
func (t *course) lookAround(ctx context.Context, d *api.Client, j renter.Job) {
	if j.State != renter.JobNoOffer {
		return
	}
	if st, err := d.Status(ctx); err == nil {
		t.peers = len(st.Peers)
	}
}

// reputation shows how a score moved, if it did.
func (t *course) reputation(r renter.ReputationEvent, say func(what, format string, args ...any)) {
	before := unknown
	if r.BeforeBP != nil {
		if before = percent(*r.BeforeBP); before == percent(r.AfterBP) {
			return
		}
	}
	say("reputation", "%s  score %s → %s", t.c.peer(r.Peer), before, percent(r.AfterBP))
}

func (t *course) jobState(j renter.Job, say func(what, format string, args ...any)) {
	if j.State == t.state {
		return
	}
	t.state = j.State
	switch j.State {
	case renter.JobStarting:
		t.screen.status("starting")
	case renter.JobRunning:
		t.screen.status("")
		where := ""
		if j.Provider != nil {
			where = " at " + t.c.peer(*j.Provider)
		}
		after := ""
		if j.ToRunMS != nil && len(j.Leases) < 2 {
			after = ", " + millis(*j.ToRunMS) + " after it was posted"
		}
		say("running", "%s%s%s%s", jobName(j), where, after, simulated(j.Simulated))
	case renter.JobMoving:
		say("moving", "%s to another provider", jobName(j))
	}
	if j.State.Final() {
		t.screen.status("")
	}
}

// tick shows how the receipts add up.
func (t *course) tick(r renter.ReceiptEvent) {
	util := ""
	if bp, ok := r.Telemetry["util_avg_bp"]; ok {
		util = ", GPU " + percent(bp) + " busy"
	}
	t.screen.status(fmt.Sprintf("%s, ran %s, cost %s%s", count(t.receipts, "receipt"), millis(r.RanMS), r.Cost, util))
}

func (t *course) offer(o renter.OfferEvent) string {
	what := o.Model
	if o.Count > 1 {
		what = fmt.Sprintf("%d × %s", o.Count, o.Model)
	}
	if o.MemBytes > 0 {
		what += " " + market.FormatBytes(o.MemBytes)
	}
	text := fmt.Sprintf("%s  %s  %s  %s  success %s%s", t.c.peer(o.Peer), o.Price.PerHour(), what, o.Place, percent(o.MeanBP), stranger(o.Known))
	if o.Excluded != "" {
		text += "  cannot win: " + words(o.Excluded)
	}
	return text + simulated(o.Simulated)
}

// award says who won and why, and which cheaper offers lost and why.
func (t *course) award(a renter.AwardEvent) string {
	text := fmt.Sprintf("%s  %s", t.c.peer(a.Peer), a.Price.PerHour())
	switch {
	case a.RunnerUp:
		text += ", the runner-up, whose offer still stands; success " + percent(a.MeanBP)
	case a.Offers == 1:
		text += ", the only offer"
	case len(a.Cheaper) == 0:
		text += fmt.Sprintf(", the lowest price of %s, success %s", count(a.Offers, "offer"), percent(a.MeanBP))
	default:
		text += fmt.Sprintf(", the lowest expected cost of %s: success %s, a failed interval counts %d times its price", count(a.Offers, "offer"), percent(a.MeanBP), a.Theta)
	}
	for _, k := range a.Cheaper {
		if o, ok := t.offers[k]; ok {
			text += fmt.Sprintf("\n%-10s %s asked less (%s), but succeeds less often (%s%s): expected cost %s against %s", "",
				t.c.peer(k), o.Price.PerHour(), percent(o.MeanBP), stranger(o.Known), market.MicroUSD(o.Score).PerHour(), market.MicroUSD(a.Score).PerHour())
		}
	}
	return text
}

// end returns how run and wait end for a job: nil or the job's own exit code if it ran to its end.
func (t *course) end(j renter.Job) error {
	switch j.State {
	case renter.JobSucceeded, renter.JobFailed:
		if j.State == renter.JobSucceeded && !j.Fetched && !j.DryRun && j.Detail != "" { // it ran well, but its files are not where they belong
			return &exitError{exit: exitFailed, code: "outputs_not_written", err: fmt.Errorf("job %s: %s", jobName(j), j.Detail),
				hint: "they are kept; name a folder for them: lacuna fetch " + jobName(j) + " FOLDER", details: map[string]any{"job": j.ID}}
		}
		if j.ExitCode == nil || *j.ExitCode == 0 {
			return nil
		}
		if *j.ExitCode < 0 || *j.ExitCode > 255 {
			return jobExit(255) // what a shell can see of it; the whole number is in the job
		}
		return jobExit(*j.ExitCode)
	case renter.JobNoOffer:
		return &exitError{exit: exitNoOffer, code: "no_offer", err: fmt.Errorf("find a provider for %s: %s", jobName(j), t.whyNobody(j)),
			hint: t.noOfferHint(), details: map[string]any{"job": j.ID, "declines": sortedDeclines(t.declines)}}
	case renter.JobStopped:
		return &exitError{exit: exitStopped, code: "stopped", err: fmt.Errorf("job %s was stopped: %s", jobName(j), reasonText(j)),
			hint: stopHint(j.Reason), details: map[string]any{"job": j.ID, "reason": j.Reason}}
	}
	return &exitError{exit: exitFailed, code: "failed", err: fmt.Errorf("job %s: %s", jobName(j), reasonText(j)), details: map[string]any{"job": j.ID, "reason": j.Reason}}
}

// whyNobody sums up offers that could not win and declines, the commonest reason first.
func (t *course) whyNobody(j renter.Job) string {
	if j.Reason == auction.RelayLimited {
		return j.Detail // somebody would have taken it: the offers that could not win are not the reason
	}
	reasons := map[string]int{}
	for _, o := range t.offers {
		if o.Excluded != "" {
			reasons["offer excluded: "+words(o.Excluded)+" ("+o.Price.PerHour()+")"]++
		}
	}
	for _, d := range t.declines {
		reasons[failures(d.Failures)]++
	}
	if len(reasons) == 0 {
		return note(j.Detail, "no peer answered")
	}
	var lines []string
	for r, n := range reasons {
		lines = append(lines, fmt.Sprintf("%d × %s", n, r))
	}
	sort.Slice(lines, func(a, b int) bool { return lines[a] > lines[b] })
	return "no acceptable offer\n" + strings.Join(lines, "\n")
}

func (t *course) noOfferHint() string {
	switch answers := len(t.offers) + len(t.declines); {
	case answers > 0:
	case t.peers > 0:
		return "no provider of this kind is on the network now; see what is for sale: lacuna asks"
	case t.heard == 0:
		return noNetworkHint
	}
	for _, o := range t.offers {
		if o.Excluded == "price_above_limit" {
			return "raise --price, or see what is for sale: lacuna asks"
		}
	}
	return "see what is for sale: lacuna asks"
}

// noNetworkHint is what a bid that nobody could hear needs.
const noNetworkHint = "join a network with: lacuna join INVITE  (lacuna invite prints one on a peer of it)"

func stopHint(reason string) string {
	switch reason {
	case "duration", "deadline":
		return "allow it more time with --duration, and save its work with --checkpoint"
	case "budget":
		return "allow it more money with --budget"
	case "memory_limit":
		return "allow it more memory with --memory"
	}
	return ""
}

func sortedDeclines(m map[attest.Key]renter.DeclineEvent) []renter.DeclineEvent {
	out := []renter.DeclineEvent{}
	for _, d := range m {
		out = append(out, d)
	}
	sort.Slice(out, func(a, b int) bool { return out[a].Peer.String() < out[b].Peer.String() })
	return out
}

// summary is the last line about a job that ended.
func (c *cli) summary(j renter.Job) string {
	parts := []string{fmt.Sprintf("job %s %s", jobName(j), ending(j.State))}
	if j.ExitCode != nil {
		parts[0] += fmt.Sprintf(" with exit code %d", *j.ExitCode)
	}
	if j.RunningAt != nil && j.EndedAt != nil {
		parts = append(parts, "took "+millis(uint64(max(j.EndedAt.Sub(*j.RunningAt), time.Duration(0)).Milliseconds())))
	}
	if len(j.Leases) > 0 {
		parts = append(parts, count(len(j.Leases), "lease"), count(j.Receipts, "receipt"), "cost "+j.Cost.String()+", vouched "+j.Vouched.String())
	}
	return strings.Join(parts, ", ")
}

// ending says in words how a job ended.
func ending(s renter.JobState) string {
	switch s {
	case renter.JobNoOffer:
		return "found no provider"
	case renter.JobStopped:
		return "was stopped"
	case renter.JobError:
		return "ended by an error on this side"
	}
	return words(string(s))
}

func outcomeText(code, reason string, due, vouched market.MicroUSD, signers int) string {
	text := words(code)
	if reason != "" {
		text += " (" + words(reason) + ")"
	}
	if due == vouched {
		text += fmt.Sprintf(", %s due and vouched", due)
	} else {
		text += fmt.Sprintf(", %s due, %s vouched", due, vouched)
	}
	return text + ", " + signedBy(signers)
}

func signedBy(n int) string {
	switch n {
	case 0:
		return "signed by nobody yet"
	case 1:
		return "signed by one side only"
	}
	return "signed by both sides"
}

func jobName(j renter.Job) string {
	if j.Name != "" {
		return j.Name
	}
	return j.ID
}

// reasonTexts say in a sentence what a reason's word does not.
var reasonTexts = map[string]string{
	"owner":            "the provider's owner ended it",
	"device_lost":      "the provider's device is gone",
	"restart":          "the provider restarted",
	"provider_gone":    "the provider is gone",
	"provider_silent":  "the provider was not heard for too long",
	"provider_stopped": "the provider was shut down",
	"output_limit":     "it printed more than its limit",
	"memory_limit":     "it took more memory than its limit",
	"disk_limit":       "its files grew beyond their limit",
	"deadline":         "its time was over",
	"budget":           "its budget was spent",
	"invalid_module":   "the file is no WASI module that runs here",
	"not_acknowledged": "its receipts were not acknowledged",
	"no_start":         "it was not started in time",
	"bad_output_name":  "an output has a name that cannot be carried",
	"too_many_outputs": "it wrote more output files than can be carried",
}

func reasonText(j renter.Job) string {
	text := note(reasonTexts[j.Reason], words(j.Reason))
	if j.Reason == "local_error" {
		text = "" // the detail says it all
	}
	if text != "" && j.Detail != "" {
		text += "; "
	}
	return note(text+j.Detail, "no reason was given")
}

func failures(fs []market.Failure) string {
	texts := make([]string, len(fs))
	for i, f := range fs {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

func note(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func stranger(known bool) string {
	if known {
		return ""
	}
	return ", a stranger"
}

func simulated(yes bool) string {
	if yes {
		return "  (simulated)"
	}
	return ""
}
