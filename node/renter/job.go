package renter

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// JobState is where a job is, in the renter's eyes.
type JobState string

// The states of a job. The last five are final.
const (
	JobBidding   JobState = "bidding"   // an auction is open, or the next one is about to be
	JobStarting  JobState = "starting"  // a lease is signed, inputs are on their way
	JobRunning   JobState = "running"   //
	JobMoving    JobState = "moving"    // its provider was lost; the rest goes to another one
	JobSucceeded JobState = "succeeded" // it ran to its end with exit code 0
	JobFailed    JobState = "failed"    // it ran to its end with another exit code
	JobStopped   JobState = "stopped"   // a limit, the deadline, the provider or the renter ended it
	JobNoOffer   JobState = "no_offer"  // nobody made an acceptable offer
	JobError     JobState = "error"     // something of the renter's own went wrong, such as a full disk
)

// Final reports whether nothing comes after s.
func (s JobState) Final() bool {
	switch s {
	case JobSucceeded, JobFailed, JobStopped, JobNoOffer, JobError:
		return true
	}
	return false
}

// Job is what the renter keeps of one job. It is stored and shown as it is, but for the list of outputs.
type Job struct {
	ID        string          `json:"id"` // 12 hex digits
	Name      string          `json:"name"`
	Spec      market.Spec     `json:"spec"`
	State     JobState        `json:"state"`
	Reason    string          `json:"reason,omitempty"` // snake_case, for states that have one
	Detail    string          `json:"detail,omitempty"` // for people
	ExitCode  *int            `json:"exit_code"`        // the job's own; null until it ran to its end
	CreatedAt time.Time       `json:"created_at"`
	RunningAt *time.Time      `json:"running_at"` // first process start
	EndedAt   *time.Time      `json:"ended_at"`
	Provider  *attest.Key     `json:"provider"`                             // of the current or last lease
	Lease     *attest.Digest  `json:"lease"`                                // current or last
	Leases    []attest.Digest `json:"leases"`                               // all, in order
	Price     market.MicroUSD `json:"price_per_gpu_hour_microusd,omitzero"` // of the current or last lease; absent before the first
	Simulated bool            `json:"simulated,omitempty"`

	Receipts int             `json:"receipts"`               // accepted, over all leases
	Cost     market.MicroUSD `json:"cost_microusd"`          // P of accepted usage, over all leases
	Vouched  market.MicroUSD `json:"voucher_total_microusd"` // over all leases
	RanMS    uint64          `json:"ran_ms"`                 // billable device-ms, over all leases

	Checkpoint    *Checkpoint    `json:"checkpoint"`
	OutputsDigest *attest.Digest `json:"outputs_digest"`
	OutputsList   *market.File   `json:"outputs_list,omitempty"` // the blob that lists the outputs; null where there are none
	Outputs       []market.File  `json:"outputs"`                // paths as guest folder and file, such as out/a; read from that blob, not stored
	Fetched       bool           `json:"fetched"`                // the outputs lie where the spec says
	LogBytes      uint64         `json:"log_bytes"`

	AuctionMS *uint64 `json:"auction_ms"`         // bid until accepted award, of the first lease
	ToRunMS   *uint64 `json:"time_to_running_ms"` // submission until the first process start
	ToOutMS   *uint64 `json:"time_to_output_ms"`  // submission until the first log byte
	Attempts  int     `json:"attempts"`           // auctions held, and choices made again among their runners-up
	DryRun    bool    `json:"dry_run,omitempty"`
}

// Checkpoint is the newest checkpoint that lies safely with the renter.
type Checkpoint struct {
	Seq   uint64        `json:"seq"`
	At    time.Time     `json:"at"`
	Lease attest.Digest `json:"lease"`
	Files []market.File `json:"files"` // paths relative to the checkpoint folder
}

// EventKind names what happened to a job.
type EventKind string

// The kinds of event, each with the field of [Event] that it fills.
const (
	EvState      EventKind = "state"      // Job
	EvBid        EventKind = "bid"        // Bid
	EvOffer      EventKind = "offer"      // Offer
	EvDecline    EventKind = "decline"    // Decline
	EvAward      EventKind = "award"      // Award
	EvRefused    EventKind = "refused"    // Decline, of an award
	EvUnreached  EventKind = "unreached"  // Unreached: passed over before an award
	EvTransfer   EventKind = "transfer"   // Transfer: inputs going out, outputs or checkpoints coming in
	EvOutputs    EventKind = "outputs"    // Note: the outputs are here, but cannot be written where they belong
	EvReceipt    EventKind = "receipt"    // Receipt
	EvVoucher    EventKind = "voucher"    // Voucher
	EvCheckpoint EventKind = "checkpoint" // Checkpoint
	EvSilence    EventKind = "silence"    // Note: the provider is not heard
	EvLost       EventKind = "lost"       // Note: the provider is given up
	EvOutcome    EventKind = "outcome"    // Outcome
	EvReputation EventKind = "reputation" // Reputation
)

// Event is one thing that happened to a job. Of the pointers, the one that Kind names is set.
type Event struct {
	Seq        uint64           `json:"seq"` // from 1
	At         time.Time        `json:"at"`
	Kind       EventKind        `json:"kind"`
	Job        *Job             `json:"job,omitempty"`
	Bid        *BidEvent        `json:"bid,omitempty"`
	Offer      *OfferEvent      `json:"offer,omitempty"`
	Decline    *DeclineEvent    `json:"decline,omitempty"`
	Award      *AwardEvent      `json:"award,omitempty"`
	Unreached  *UnreachedEvent  `json:"unreached,omitempty"`
	Transfer   *TransferEvent   `json:"transfer,omitempty"`
	Receipt    *ReceiptEvent    `json:"receipt,omitempty"`
	Voucher    *VoucherEvent    `json:"voucher,omitempty"`
	Checkpoint *Checkpoint      `json:"checkpoint,omitempty"`
	Outcome    *OutcomeEvent    `json:"outcome,omitempty"`
	Reputation *ReputationEvent `json:"reputation,omitempty"`
	Note       string           `json:"note,omitempty"`
}

// BidEvent says that a bid went out.
type BidEvent struct {
	ID       attest.Digest `json:"id"`
	Heard    int           `json:"heard"` // peers known on the bid's topics
	WindowMS uint64        `json:"window_ms"`
}

// OfferEvent says that an offer came.
type OfferEvent struct {
	Peer      attest.Key      `json:"peer"`
	Price     market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	Model     string          `json:"model"`
	Count     int             `json:"count"`
	MemBytes  uint64          `json:"mem_bytes,omitempty"`
	Place     string          `json:"place"`
	MeanBP    uint64          `json:"mean_bp"`
	Known     bool            `json:"known"`
	Score     uint64          `json:"score"`
	Excluded  string          `json:"excluded,omitempty"`
	AfterMS   uint64          `json:"after_ms"`
	RTTMS     uint64          `json:"rtt_ms,omitempty"` // absent = not measured
	Simulated bool            `json:"simulated,omitempty"`
}

// DeclineEvent says that a provider cannot serve the bid, or refused an award.
type DeclineEvent struct {
	Peer     attest.Key       `json:"peer"`
	Failures []market.Failure `json:"failures"`
}

// UnreachedEvent says that a provider would have won, but no path leads to it that carries a job's data. Nothing was signed
// to it.
type UnreachedEvent struct {
	Peer   attest.Key `json:"peer"`
	Reason string     `json:"reason"` // relay_limited or unreachable
}

// AwardEvent says who won, and why.
type AwardEvent struct {
	Peer      attest.Key      `json:"peer"`
	Lease     attest.Digest   `json:"lease"`
	Price     market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	MeanBP    uint64          `json:"mean_bp"`
	Score     uint64          `json:"score"`
	Theta     uint64          `json:"theta"`
	Offers    int             `json:"offers"`
	Declines  int             `json:"declines"`
	RunnersUp []attest.Key    `json:"runners_up"`
	AuctionMS *uint64         `json:"auction_ms"`          // bid until accepted award; null for a runner-up
	RunnerUp  bool            `json:"runner_up,omitempty"` // its offer of an earlier auction still stood
	// Cheaper names the acceptable offers with a lower price that did not win, for their lower success rate.
	Cheaper []attest.Key `json:"cheaper,omitempty"`
}

// TransferEvent says how far a transfer is.
type TransferEvent struct {
	What  string `json:"what"` // "inputs", "outputs", "checkpoint"
	Done  uint64 `json:"done_bytes"`
	Total uint64 `json:"total_bytes"`
}

// ReceiptEvent says that a receipt came and holds.
type ReceiptEvent struct {
	Seq       uint64            `json:"seq"`
	State     string            `json:"state"`
	RanMS     uint64            `json:"ran_ms"` // billable device-ms, cumulative
	Cost      market.MicroUSD   `json:"cost_microusd"`
	Telemetry map[string]uint64 `json:"telemetry,omitempty"`
	Simulated bool              `json:"simulated,omitempty"`
}

// VoucherEvent says that a voucher was signed and sent.
type VoucherEvent struct {
	Seq    uint64          `json:"seq"`
	Total  market.MicroUSD `json:"total_microusd"`
	AckSeq uint64          `json:"ack_seq"`
}

// OutcomeEvent says how a lease ended.
type OutcomeEvent struct {
	Lease   attest.Digest   `json:"lease"`
	Code    string          `json:"code"`
	Reason  string          `json:"reason,omitempty"`
	Due     market.MicroUSD `json:"due_microusd"`
	Vouched market.MicroUSD `json:"vouched_microusd"`
	Signers int             `json:"signers"` // 1 = one side only, 2 = both
}

// ReputationEvent says how a provider's score moved by a lease.
type ReputationEvent struct {
	Peer     attest.Key `json:"peer"`
	BeforeBP *int       `json:"before_bp"` // null = no own evidence before
	AfterBP  int        `json:"after_bp"`
}
