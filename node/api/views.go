package api

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
)

// Status is the peer at a glance.
type Status struct {
	Peer             attest.Key        `json:"peer"`
	Network          string            `json:"network"`
	Role             string            `json:"role"` // what it does now: hub, provider or light; on a test network the profile
	Version          string            `json:"version"`
	PID              int               `json:"pid"`
	Home             string            `json:"home"`
	UptimeMS         int64             `json:"uptime_ms"`
	Addrs            []string          `json:"addrs"`  // told to others
	Listen           []string          `json:"listen"` // where it really listens
	Notes            []string          `json:"notes"`  // what is not as the config asks for, and why
	Peers            []PeerView        `json:"peers"`
	LastDialError    string            `json:"last_dial_error,omitempty"` // while nobody is connected: who was tried last, when, and why in vain
	Reachability     Reachability      `json:"reachability"`
	Clock            ClockView         `json:"clock"`
	Twin             *TwinView         `json:"twin"`     // null = none was seen
	Relaying         *RelayingView     `json:"relaying"` // null = this peer relays nothing
	Simulated        bool              `json:"simulated"`
	Devices          int               `json:"devices"`
	LeasesRunning    int               `json:"leases_running"`
	JobsRunning      int               `json:"jobs_running"`
	LastBidHeardAt   *time.Time        `json:"last_bid_heard_at"` // null = none since the start
	BidsHeard        uint64            `json:"bids_heard"`
	PromisedMicroUSD market.MicroUSD   `json:"promised_microusd"`      // due to this peer over all leases
	ReceivedMicroUSD market.MicroUSD   `json:"received_microusd"`      // of that, settled
	VouchedMicroUSD  market.MicroUSD   `json:"vouched_to_us_microusd"` // of that, covered by vouchers
	OwedMicroUSD     market.MicroUSD   `json:"vouched_by_us_microusd"` // what this peer promised as a renter
	StoreDamaged     int               `json:"store_damaged"`          // records that cannot be read
	Drops            map[string]uint64 `json:"drops"`                  // what was heard and not acted on, by reason
}

// DeviceView is one device and what it does.
type DeviceView struct {
	ID        market.DeviceID `json:"id"` // the public one
	Name      string          `json:"name"`
	Model     string          `json:"model"`
	Class     string          `json:"class"`
	MemBytes  *uint64         `json:"mem_bytes"` // null = unknown
	Simulated bool            `json:"simulated"`
	Price     market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	State     string          `json:"state"`            // free, held, leased, fault or owner
	Detail    string          `json:"detail,omitempty"` // what is wrong, in state fault
	Lease     *attest.Digest  `json:"lease"`            // null = none
	Telemetry *gpu.Sample     `json:"telemetry"`        // newest reading, without what is unknown; null = none
}

// AskView is a standing ask.
type AskView struct {
	Peer       attest.Key `json:"peer"`
	Lots       []LotView  `json:"lots"`
	Place      *string    `json:"place"`       // null = not told
	PlaceFault *string    `json:"place_fault"` // why it cannot be there, by the speed of light; null = nothing speaks against it
	Tiers      []string   `json:"tiers"`
	Workloads  []string   `json:"workloads"`
	ExpiresAt  time.Time  `json:"expires_at"`
	Agent      string     `json:"agent"`
	Reach      string     `json:"reach"`      // how others reach it, by its own account; unknown = not told
	LatencyMS  *float64   `json:"latency_ms"` // round trip; null = not measured
	Addrs      []string   `json:"addrs"`
	ScoreBP    *int       `json:"score_bp"` // null = no own evidence
	MeanBP     *int       `json:"mean_bp"`  // success rate that auctions rank by; null = no own evidence
	Self       bool       `json:"self"`
}

// LotView is a number of equal devices on sale.
type LotView struct {
	Model     string          `json:"model"`
	Class     string          `json:"class"`
	MemBytes  *uint64         `json:"mem_bytes"` // per device; null = unknown
	Count     uint64          `json:"count"`
	Free      uint64          `json:"free"`
	Price     market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	Simulated bool            `json:"simulated"`
}

// AuctionView is one auction of a job.
type AuctionView struct {
	Bid            attest.Digest    `json:"bid"`
	Demand         DemandView       `json:"demand"`
	OpenedAt       time.Time        `json:"opened_at"`
	WindowMS       uint64           `json:"window_ms"`
	TookMS         uint64           `json:"took_ms"`
	ClosedBy       string           `json:"closed_by"`
	ReferencePrice *market.MicroUSD `json:"reference_price_microusd"` // null = none
	MaxPrice       market.MicroUSD  `json:"max_price_per_gpu_hour_microusd"`
	Heard          uint64           `json:"heard"`          // peers on the bid's topics, and those with a direct copy
	MaxLatencyMS   *uint64          `json:"max_latency_ms"` // longest round trip; null = any
	Received       uint64           `json:"received"`       // peers that offered, also those not kept
	ReceivedKnown  uint64           `json:"received_known"` // of these, with own evidence
	Offers         []OfferView      `json:"offers"`         // best first
	Declines       []DeclineView    `json:"declines"`
	DeclineCount   uint64           `json:"decline_count"`  // peers that declined, also those not kept
	DeclinedKnown  uint64           `json:"declined_known"` // of these, with own evidence
	Refusals       []DeclineView    `json:"refusals"`       // of awards, in order
	Failed         []attest.Key     `json:"failed"`         // awarded, but they did not answer
	Unreached      []UnreachedView  `json:"unreached"`      // passed over before an award, in order
	Award          *WinnerView      `json:"award"`          // null = nobody
	RunnersUp      []attest.Key     `json:"runners_up"`
	Follows        *attest.Digest   `json:"follows"` // the lease whose loss made this choice among the runners-up; null = the first choice
	DryRun         bool             `json:"dry_run"`
	Recomputed     bool             `json:"recomputed"` // the record explains its award
	RecomputeError string           `json:"recompute_error,omitempty"`
}

// DemandView is what a bid asks for, in coarse terms.
type DemandView struct {
	Class         string   `json:"class"`
	Count         uint64   `json:"count"`
	Models        []string `json:"models"`
	MemBytes      *uint64  `json:"mem_bytes"`      // per device; null = no demand
	HostMemBytes  *uint64  `json:"host_mem_bytes"` // null = no demand
	DurationMS    uint64   `json:"duration_ms"`
	StartWithinMS uint64   `json:"start_within_ms"`
	Tier          string   `json:"tier"`
	Require       []string `json:"require"`
	Simulated     bool     `json:"simulated"` // simulated devices will do
}

// OfferView is an offer and what the renter made of it.
type OfferView struct {
	Peer      attest.Key      `json:"peer"`
	Price     market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	Start     time.Time       `json:"start"`       // earliest, had it won when the auction closed
	StartInMS uint64          `json:"start_in_ms"` // the same, counted from the award
	Model     string          `json:"model"`
	Count     int             `json:"count"`
	MemBytes  *uint64         `json:"mem_bytes"` // of the smallest device; null = unknown
	Place     *string         `json:"place"`     // null = not told
	MeanBP    uint64          `json:"mean_bp"`
	Known     bool            `json:"known"` // there is own evidence
	Theta     uint64          `json:"theta"`
	Score     uint64          `json:"score"` // lower is better
	Kept      bool            `json:"kept"`  // it can win
	Excluded  string          `json:"excluded,omitempty"`
	ArrivedMS uint64          `json:"arrived_ms"`
	Simulated bool            `json:"simulated"`

	Reach       string  `json:"reach"`        // as the provider states it
	RTTMS       *uint64 `json:"rtt_ms"`       // as measured here; null = not measured
	Path        string  `json:"path"`         // how the connection ran: direct, hole-punched, relayed or unknown
	SurchargeBP uint64  `json:"surcharge_bp"` // what the way there adds to the price in the score
	Direct      bool    `json:"direct"`       // this peer had sent it the bid itself
	PlaceFault  bool    `json:"place_fault"`  // it cannot be where it says it is
}

// UnreachedView is a provider that was passed over, since no path to it carries a job. Nothing was signed to it.
type UnreachedView struct {
	Peer   attest.Key `json:"peer"`
	Reason string     `json:"reason"` // relay_limited or unreachable
}

// DeclineView is a decline of a bid, or a refusal of an award.
type DeclineView struct {
	Peer     attest.Key       `json:"peer"`
	Failures []market.Failure `json:"failures"`
}

// WinnerView is the award.
type WinnerView struct {
	Peer  attest.Key      `json:"peer"`
	Price market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	Lease *attest.Digest  `json:"lease"` // null in a dry run
}

// LeaseView is one lease of this peer, on either side.
type LeaseView struct {
	ID           attest.Digest     `json:"id"`
	Role         string            `json:"role"` // of this peer: renter or provider
	State        string            `json:"state"`
	Reason       string            `json:"reason,omitempty"`
	Renter       attest.Key        `json:"renter"`
	Provider     attest.Key        `json:"provider"`
	Job          string            `json:"job,omitempty"` // on the renter's side
	Devices      []market.DeviceID `json:"devices"`
	Models       []string          `json:"models"`
	Tier         string            `json:"tier"`
	Price        market.MicroUSD   `json:"price_per_gpu_hour_microusd"`
	Budget       market.MicroUSD   `json:"budget_microusd"`
	IntervalMS   uint64            `json:"interval_ms"`
	SurviveMS    uint64            `json:"survive_ms"`
	DurationMS   uint64            `json:"duration_ms"`
	Simulated    bool              `json:"simulated"`
	Follows      *attest.Digest    `json:"follows"` // lease whose work it took up; null = none
	AwardedAt    time.Time         `json:"awarded_at"`
	ReadyAt      *time.Time        `json:"ready_at"` // first process start
	EndedAt      *time.Time        `json:"ended_at"`
	Receipts     int               `json:"receipts"`
	Acknowledged uint64            `json:"acknowledged"` // receipts that a voucher accepts
	RanMS        uint64            `json:"ran_ms"`       // billable device-ms
	Due          market.MicroUSD   `json:"due_microusd"`
	Vouched      market.MicroUSD   `json:"vouched_microusd"`
	Head         *attest.Digest    `json:"head"`    // id of the last receipt
	Outcome      *OutcomeView      `json:"outcome"` // null = in force
}

// OutcomeView is how a lease ended.
type OutcomeView struct {
	Code          string         `json:"code"`
	Reason        string         `json:"reason,omitempty"`
	ExitCode      *uint64        `json:"exit_code"`
	OutputsDigest *attest.Digest `json:"outputs_digest"`
	EndedAt       time.Time      `json:"ended_at"`
	Signers       int            `json:"signers"` // 1 = one side only, 2 = both
}

// ReceiptView is one receipt.
type ReceiptView struct {
	Seq          uint64            `json:"seq"`
	ID           attest.Digest     `json:"id"`
	State        string            `json:"state"`
	T0           time.Time         `json:"t0"`
	T1           time.Time         `json:"t1"`
	RanMS        *uint64           `json:"ran_ms"`         // billable device-ms in the interval; null = not measured
	Units        map[string]uint64 `json:"units"`          // in the interval; what was not measured is absent
	Telemetry    map[string]uint64 `json:"telemetry"`      // likewise
	Cost         market.MicroUSD   `json:"cost_microusd"`  // of the interval; the costs add up to the total
	Total        market.MicroUSD   `json:"total_microusd"` // up to its end
	Acknowledged bool              `json:"acknowledged"`   // a voucher accepts it
	OutputsID    *attest.Digest    `json:"outputs_digest"` // of a final receipt
	Simulated    bool              `json:"simulated"`
}

// ReputationView is a peer's score, with every term.
type ReputationView struct {
	Peer       attest.Key `json:"peer"`
	ScoreBP    int        `json:"score_bp"`
	QuantileBP int        `json:"quantile_bp"`
	ShortBP    int        `json:"short_bp"`
	MeanBP     int        `json:"mean_bp"` // what auctions rank by
	Prior      PriorView  `json:"prior"`
	S          string     `json:"s"` // successes in units, three decimals
	F          string     `json:"f"` // failures
	Terms      []TermView `json:"terms"`
}

// PriorView is what this peer learned from its first leases with strangers.
type PriorView struct {
	FirstLeases uint `json:"first_leases"`
	OK          uint `json:"ok"`
	BP          int  `json:"bp"`
}

// TermView is one piece of evidence and what is left of it. Units have three decimals.
type TermView struct {
	At       time.Time       `json:"at"`
	What     string          `json:"what"`
	OK       bool            `json:"ok"`
	Value    market.MicroUSD `json:"value_microusd"`
	AgeDays  int64           `json:"age_days"`
	DecayBP  int             `json:"decay_bp"`
	Raw      string          `json:"raw"`
	Capped   string          `json:"capped"`
	Decayed  string          `json:"decayed"`
	Lease    *attest.Digest  `json:"lease"` // null = not known
	Evidence attest.Digest   `json:"evidence"`
}

// Joined is what a join found.
type Joined struct {
	Joined  []JoinedPeer `json:"joined"`
	Network string       `json:"network"`
}

// JoinedPeer is a peer that now is connected.
type JoinedPeer struct {
	Peer attest.Key `json:"peer"`
	Addr string     `json:"addr"`
}
