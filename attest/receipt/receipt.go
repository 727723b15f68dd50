// Package receipt holds the provider's signed, hash-chained statements of metered usage.
//
// A [Receipt] covers one interval of one lease: what was used in it, what was used in all, what the device's sensors
// said. It states facts; there is no money in it. Each names its predecessor by digest, so that a chain has one order
// and no gap. [Tail] is a chain's end as one side knows it; [Tail.Accept] is the one rule for what may come next, used
// by the renter when a receipt arrives, by the provider when it restarts, and by whoever verifies a file offline.
//
// The package is pure. [Tail] values are copied, not shared.
//
// History: 2026-11-30 version 1.
package receipt

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
)

// Domain is the role in which a provider signs a receipt.
const Domain attest.Domain = "lacuna/receipt/provider/1"

// MaxBytes is the largest payload of a receipt.
const MaxBytes = 1 << 10

// monoSlack is the tolerance between a receipt's monotonic time and its wall clock, on top of one percent.
const monoSlack = 50 // ms

var (
	// ErrChain means that a receipt does not follow the one before it.
	ErrChain = errors.New("chain broken")
	// ErrClock means that a receipt's times run backwards or do not agree with each other.
	ErrClock = errors.New("times do not fit")
	// ErrCounter means that a counter fell, vanished or is not the sum of its parts.
	ErrCounter = errors.New("counters do not add up")
	// ErrDuplicate means that the receipt is the chain's last one again; it changes nothing and is nobody's fault.
	ErrDuplicate = errors.New("receipt is known")
	// ErrElapsed means that more time is stated than the reader's own clock has seen pass.
	ErrElapsed = errors.New("more time stated than has passed")
)

// State says what the interval was: the job ran, was paused, or ended.
type State uint8

// The states of an interval. Final and Failed end the chain.
const (
	Running State = iota + 1
	Paused
	Final
	Failed
)

// String returns the state's name in JSON and in print.
func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Paused:
		return "paused"
	case Final:
		return "final"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Challenge is 16 random bytes that the renter gives with each voucher and finds again in the receipts that follow:
// receipts cannot be made ahead of time.
type Challenge [16]byte

// Receipt is one interval of one lease.
type Receipt struct {
	Version uint64        `cbor:"1,keyasint"`
	Lease   attest.Digest `cbor:"2,keyasint"`
	Seq     uint64        `cbor:"3,keyasint"`            // from 1, without gaps
	Prev    attest.Digest `cbor:"4,keyasint"`            // id of receipt Seq−1; zero for the first
	T0      int64         `cbor:"5,keyasint"`            // Unix ms, provider's clock
	T1      int64         `cbor:"6,keyasint"`            // Unix ms, > T0
	MonoMS  uint64        `cbor:"7,keyasint"`            // monotonic ms since the job's process first started
	State   State         `cbor:"8,keyasint"`            //
	Units   gpu.Usage     `cbor:"9,keyasint"`            // in this interval
	Cum     gpu.Usage     `cbor:"10,keyasint"`           // since the lease's start
	Tel     gpu.Telemetry `cbor:"13,keyasint,omitempty"` // absent = not measured
	// TelRoot commits to the samples behind Tel. Absent while samples are not kept.
	TelRoot   *attest.Digest `cbor:"14,keyasint,omitempty"`
	Out       *attest.Digest `cbor:"15,keyasint,omitempty"` // final receipt: digest of the outputs
	Challenge Challenge      `cbor:"17,keyasint"`
	Simulated bool           `cbor:"18,keyasint,omitempty"` // the devices do not exist; test networks only
}

// Validate reports values that no receipt may have.
func (r Receipt) Validate() error {
	switch {
	case r.Version != 1:
		return fmt.Errorf("receipt version %d, want 1", r.Version)
	case r.Seq == 0:
		return errors.New("receipt number 0, they start at 1")
	case r.State < Running || r.State > Failed:
		return fmt.Errorf("receipt %d: unknown state %d", r.Seq, r.State)
	case r.T0 <= 0 || r.T1 <= r.T0:
		return fmt.Errorf("receipt %d: %w: ends at %d, begins at %d", r.Seq, ErrClock, r.T1, r.T0)
	}
	if err := errors.Join(r.Units.Validate(), r.Cum.Validate(), r.Tel.Validate()); err != nil {
		return fmt.Errorf("receipt %d: %w", r.Seq, err)
	}
	return nil
}

// Tail is the end of a chain. The zero value with a Lease is the chain before its first receipt.
type Tail struct {
	Lease attest.Digest
	Seq   uint64        // of the last receipt, 0 = none
	ID    attest.Digest // of the last receipt
	Last  Receipt       // the last receipt, zero if Seq is 0
}

// Accept checks that r, with the id id, comes next on the chain and returns the new tail. Signatures are the caller's
// business. Errors wrap [ErrDuplicate], [ErrChain], [ErrClock] or [ErrCounter].
func (t Tail) Accept(r Receipt, id attest.Digest) (Tail, error) {
	switch {
	case r.Lease != t.Lease:
		return t, fmt.Errorf("receipt %d: %w: it belongs to lease %s", r.Seq, ErrChain, r.Lease.Short())
	case r.Seq == t.Seq && id == t.ID:
		return t, ErrDuplicate
	case r.Seq != t.Seq+1:
		return t, fmt.Errorf("receipt %d: %w: want number %d", r.Seq, ErrChain, t.Seq+1)
	case r.Prev != t.ID:
		return t, fmt.Errorf("receipt %d: %w: it does not name receipt %d", r.Seq, ErrChain, t.Seq)
	case t.Seq > 0 && (t.Last.State == Final || t.Last.State == Failed):
		return t, fmt.Errorf("receipt %d: %w: receipt %d ended the chain", r.Seq, ErrChain, t.Seq)
	case r.T1 <= r.T0:
		return t, fmt.Errorf("receipt %d: %w: it ends before it begins", r.Seq, ErrClock)
	case r.T0 < t.Last.T1:
		return t, fmt.Errorf("receipt %d: %w: it begins before receipt %d ends", r.Seq, ErrClock, t.Seq)
	case r.MonoMS < t.Last.MonoMS:
		return t, fmt.Errorf("receipt %d: %w: monotonic time fell", r.Seq, ErrClock)
	}
	if err := checkMono(t.Last, r); err != nil {
		return t, err
	}
	if !r.Cum.AtLeast(t.Last.Cum) {
		return t, fmt.Errorf("receipt %d: %w: a cumulative counter fell", r.Seq, ErrCounter)
	}
	if sum := t.Last.Cum.Add(r.Units); !sum.Equal(r.Cum) {
		return t, fmt.Errorf("receipt %d: %w: before + interval is not the cumulative usage", r.Seq, ErrCounter)
	}
	return Tail{Lease: t.Lease, Seq: r.Seq, ID: id, Last: r}, nil
}

// checkMono holds monotonic time against the wall clock within an interval: both count the same milliseconds, within
// one percent and 50 ms.
func checkMono(last, r Receipt) error {
	wall, mono := uint64(r.T1-r.T0), r.MonoMS-last.MonoMS
	if slack := wall/100 + monoSlack; mono > wall+slack || wall > mono+slack {
		return fmt.Errorf("receipt %d: %w: %d ms by the wall clock, %d ms by the monotonic one", r.Seq, ErrClock, wall, mono)
	}
	return nil
}

// ElapsedTolerance is how far a provider's sum of billed time may lie ahead of the reader's own clock.
const ElapsedTolerance = 30 * time.Second

// CheckElapsed holds the time that r bills against elapsed, the reader's own time since it started the lease. A
// provider's clock is never trusted for money. A negative elapsed, as a wall clock that was set back may give, counts as
// none. Errors wrap [ErrElapsed].
func CheckElapsed(r Receipt, devices int, elapsed time.Duration) error {
	limit := uint64(max(devices, 0)) * uint64((max(elapsed, 0) + ElapsedTolerance).Milliseconds())
	if got := r.Cum[gpu.BillableDeviceMS]; got > limit {
		return fmt.Errorf("receipt %d: %w: %d device-ms stated, at most %d possible", r.Seq, ErrElapsed, got, limit)
	}
	return nil
}
