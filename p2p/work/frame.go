package work

import (
	"errors"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
)

// MaxReason bounds a cancel's reason, in bytes.
const MaxReason = 64

// MaxCheckpointFiles bounds the files of one checkpoint.
const MaxCheckpointFiles = 512

// Frame is what travels on a work stream. Exactly one pointer is set.
type Frame struct {
	Start      *Start           `cbor:"1,keyasint,omitempty"`
	Ready      *Ready           `cbor:"2,keyasint,omitempty"`
	Log        *Log             `cbor:"3,keyasint,omitempty"`
	Receipt    *attest.Envelope `cbor:"4,keyasint,omitempty"` // signed by the provider; not verified here
	Voucher    *attest.Envelope `cbor:"5,keyasint,omitempty"` // signed by the renter; not verified here
	Checkpoint *Checkpoint      `cbor:"6,keyasint,omitempty"`
	Ack        *Ack             `cbor:"7,keyasint,omitempty"`
	Cancel     *Cancel          `cbor:"8,keyasint,omitempty"`
	Outcome    *attest.Envelope `cbor:"9,keyasint,omitempty"` // signed by the sender; not verified here
	Ping       *Ping            `cbor:"10,keyasint,omitempty"`
	Result     *Result          `cbor:"11,keyasint,omitempty"`
}

// Start is the renter's first frame. On a first start all numbers are 0; after a break they say what the renter has,
// so that the provider sends the rest and nothing twice.
type Start struct {
	Lease      attest.Digest     `cbor:"1,keyasint"`
	Challenge  receipt.Challenge `cbor:"2,keyasint"`           // goes into the receipts until a voucher brings the next
	Receipt    uint64            `cbor:"3,keyasint"`           // number of the last receipt stored, 0 = none
	LogOffset  uint64            `cbor:"4,keyasint"`           // bytes of the combined log stored
	Checkpoint uint64            `cbor:"5,keyasint"`           // number of the last checkpoint stored, 0 = none
	Resume     bool              `cbor:"6,keyasint,omitempty"` // the lease was started before
}

// Ready says that the job's process runs; billing begins with it. It is sent again on a resumed stream.
type Ready struct {
	StartedAt int64 `cbor:"1,keyasint"` // Unix ms, provider's clock: when the process first started
	// Resumed says that the process took up a checkpoint instead of beginning anew.
	Resumed bool `cbor:"2,keyasint,omitempty"`
}

// Stdout and Stderr are the values of [Log.Stream].
const (
	Stdout uint8 = 1
	Stderr uint8 = 2
)

// Log is a piece of the job's output.
type Log struct {
	Stream uint8  `cbor:"1,keyasint"` // Stdout or Stderr
	Offset uint64 `cbor:"2,keyasint"` // of Data in the combined log as the provider keeps it
	Data   []byte `cbor:"3,keyasint"` // 1 to MaxLogData bytes
}

// Checkpoint names the files of one checkpoint, to be fetched by their digests.
type Checkpoint struct {
	Seq   uint64        `cbor:"1,keyasint"` // from 1, rising
	Files []market.File `cbor:"2,keyasint"` // paths are relative to the job's checkpoint folder
}

// Ack says what the renter has stored, so that the provider may forget it.
type Ack struct {
	LogOffset  uint64 `cbor:"1,keyasint"` // bytes of the combined log
	Checkpoint uint64 `cbor:"2,keyasint"` // number of the last checkpoint, 0 = none
}

// Cancel asks the other side to end the job. The answer is a last receipt and an outcome.
type Cancel struct {
	Reason string `cbor:"1,keyasint,omitempty"` // snake_case, at most MaxReason bytes
}

// Result says how the job's process ended and what it left. It follows the last receipt, whose Out is the digest of the
// outputs.
type Result struct {
	Code     market.Code `cbor:"1,keyasint"`
	Reason   string      `cbor:"2,keyasint,omitempty"` // snake_case, at most MaxReason bytes
	ExitCode *uint64     `cbor:"3,keyasint,omitempty"` // the job's own, if it ran to its end
	// Manifest names the blob that lists the outputs: canonical CBOR of []market.File, paths as guest folder and file
	// without the leading slash. It is absent if the job left nothing to fetch.
	Manifest *market.File `cbor:"4,keyasint,omitempty"`
	LogBytes uint64       `cbor:"5,keyasint"` // length of the combined log
}

// Ping is a heartbeat. It carries nothing and is not answered: both sides send it by themselves.
type Ping struct{}

// Kind returns the name of what the frame carries, "empty" for none.
func (f Frame) Kind() string {
	switch {
	case f.Start != nil:
		return "start"
	case f.Ready != nil:
		return "ready"
	case f.Log != nil:
		return "log"
	case f.Receipt != nil:
		return "receipt"
	case f.Voucher != nil:
		return "voucher"
	case f.Checkpoint != nil:
		return "checkpoint"
	case f.Ack != nil:
		return "ack"
	case f.Cancel != nil:
		return "cancel"
	case f.Outcome != nil:
		return "outcome"
	case f.Ping != nil:
		return "ping"
	case f.Result != nil:
		return "result"
	}
	return "empty"
}

// Validate reports a frame that carries nothing, two things, or values that no frame may have.
func (f Frame) Validate() error {
	n := 0
	for _, set := range []bool{f.Start != nil, f.Ready != nil, f.Log != nil, f.Receipt != nil, f.Voucher != nil,
		f.Checkpoint != nil, f.Ack != nil, f.Cancel != nil, f.Outcome != nil, f.Ping != nil, f.Result != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("frame carries %d things, want one", n)
	}
	switch {
	case f.Start != nil:
		return f.Start.validate()
	case f.Ready != nil && f.Ready.StartedAt <= 0:
		return errors.New("ready: no time")
	case f.Log != nil:
		return f.Log.validate()
	case f.Receipt != nil:
		return f.Receipt.Validate()
	case f.Voucher != nil:
		return f.Voucher.Validate()
	case f.Checkpoint != nil:
		return f.Checkpoint.validate()
	case f.Cancel != nil && len(f.Cancel.Reason) > MaxReason:
		return fmt.Errorf("cancel: reason longer than %d bytes", MaxReason)
	case f.Outcome != nil:
		return f.Outcome.Validate()
	case f.Result != nil && (f.Result.Code == 0 || len(f.Result.Reason) > MaxReason):
		return errors.New("result: no code, or too long a reason")
	}
	return nil
}

func (s Start) validate() error {
	if s.Lease.IsZero() {
		return errors.New("start: no lease")
	}
	if !s.Resume && (s.Receipt != 0 || s.LogOffset != 0 || s.Checkpoint != 0) {
		return errors.New("start: not resumed, but something was received before")
	}
	return nil
}

func (l Log) validate() error {
	switch {
	case l.Stream != Stdout && l.Stream != Stderr:
		return fmt.Errorf("log: unknown stream %d", l.Stream)
	case len(l.Data) == 0 || len(l.Data) > MaxLogData:
		return fmt.Errorf("log: %d bytes, want 1 to %d", len(l.Data), MaxLogData)
	case l.Offset > market.MaxBytes:
		return errors.New("log: offset out of range")
	}
	return nil
}

func (c Checkpoint) validate() error {
	if c.Seq == 0 || len(c.Files) == 0 || len(c.Files) > MaxCheckpointFiles {
		return fmt.Errorf("checkpoint: no number, or not 1 to %d files", MaxCheckpointFiles)
	}
	seen := make(map[string]bool, len(c.Files))
	for _, f := range c.Files {
		if err := market.CheckRelativePath(f.Path); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if f.Digest.IsZero() || f.Bytes > market.MaxInputBytes || seen[f.Path] {
			return fmt.Errorf("checkpoint: file %.80q: no digest, too large, or named twice", f.Path)
		}
		seen[f.Path] = true
	}
	return nil
}
