package market

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lacuna-network/lacuna/attest"
)

// WorkClass says what a result can be held to. 0 means not set.
type WorkClass uint8

// The classes of work.
const (
	Deterministic WorkClass = 1 // a second run gives the same bytes
	Opaque        WorkClass = 3
)

// HoldTime is how long an award holds its devices, waiting for the start.
const HoldTime = 5 * time.Second

// Lease is the full terms between one renter and one provider. Its bytes are signed by both: first the renter
// ([AwardDomain]), then the provider ([AcceptDomain]); obligations begin with the start, the first work frame. Its id
// names it everywhere.
type Lease struct {
	Version    uint64        `cbor:"1,keyasint"`
	Network    attest.Digest `cbor:"2,keyasint"`
	Renter     attest.Key    `cbor:"3,keyasint"`
	Provider   attest.Key    `cbor:"4,keyasint"`
	Bid        attest.Digest `cbor:"5,keyasint"`
	Offer      attest.Digest `cbor:"6,keyasint"`
	Work       attest.Digest `cbor:"7,keyasint"` // id of the [Terms], which only the two parties see
	Devices    []DeviceID    `cbor:"8,keyasint"`
	Class      WorkClass     `cbor:"9,keyasint"`
	Price      MicroUSD      `cbor:"10,keyasint"` // per device and hour
	IntervalMS uint64        `cbor:"11,keyasint"` // between receipts
	SurviveMS  uint64        `cbor:"12,keyasint"` // running time that may go unacknowledged
	Budget     MicroUSD      `cbor:"13,keyasint"` // the lease never costs more
	IssuedAt   int64         `cbor:"14,keyasint"` // Unix ms, renter's clock
	RenterMark Nonce         `cbor:"18,keyasint"`
	OfferMark  Nonce         `cbor:"19,keyasint"` // the offer's nonce
	Tier       Tier          `cbor:"24,keyasint"`
	DurationMS uint64        `cbor:"25,keyasint"` // longest running time
	GraceMS    uint64        `cbor:"26,keyasint,omitempty"`
	Simulated  bool          `cbor:"27,keyasint,omitempty"`
	// Follows names the lease whose work this one takes up, after that provider was lost.
	Follows *attest.Digest `cbor:"28,keyasint,omitempty"`
}

// Validate reports values that no lease may have.
func (l Lease) Validate() error {
	switch {
	case l.Version != 1:
		return fmt.Errorf("lease version %d, want 1", l.Version)
	case l.Renter == l.Provider:
		return errors.New("lease: renter and provider are the same peer")
	case l.Bid.IsZero() || l.Offer.IsZero() || l.Work.IsZero():
		return errors.New("lease: no bid, offer or work")
	case len(l.Devices) == 0 || len(l.Devices) > MaxDevices:
		return fmt.Errorf("lease: want 1 to %d devices", MaxDevices)
	case l.Price == 0 || l.Price > MaxAmount || l.Budget > MaxAmount:
		return errors.New("lease: price of 0, or an amount out of range")
	case !inMS(l.IntervalMS, MinInterval, MaxInterval):
		return errors.New("lease: interval out of range")
	case l.DurationMS == 0 || l.DurationMS > uint64(MaxDuration.Milliseconds()) || l.SurviveMS > uint64(MaxDuration.Milliseconds()):
		return errors.New("lease: duration out of range")
	case l.Class != Deterministic && l.Class != Opaque, l.Tier < Gold || l.Tier > Bronze, !inMS(l.GraceMS, 0, MaxGrace), l.IssuedAt <= 0:
		return errors.New("lease: class, tier, grace or time out of range")
	}
	return nil
}

// Interval returns the time between receipts.
func (l Lease) Interval() time.Duration { return time.Duration(l.IntervalMS) * time.Millisecond }

// IntervalCost returns what one full interval costs, rounded down.
func (l Lease) IntervalCost() MicroUSD { return DueFor(l.Price, len(l.Devices), l.Interval()) }

// CheckOffer reports where l says something else than the offer it answers.
func (l Lease) CheckOffer(o Offer, offer attest.Digest) error {
	same := l.Offer == offer && l.Bid == o.Bid && l.Provider == o.Provider && l.Price == o.Price &&
		l.IntervalMS == o.IntervalMS && l.OfferMark == o.Nonce && l.Tier == o.Tier && l.Simulated == o.Simulated &&
		len(l.Devices) == len(o.Devices)
	for i := range o.Devices {
		same = same && l.Devices[i] == o.Devices[i].ID
	}
	if !same {
		return errors.New("lease: differs from the offer it names")
	}
	return nil
}

// OpenLease verifies and decodes a lease as signed in the role of that domain.
func OpenLease(e attest.Envelope, network attest.Digest, d attest.Domain) (Lease, error) {
	l, err := attest.Open[Lease](e, network, d)
	if err != nil {
		return l, err
	}
	signer := l.Renter
	if d == AcceptDomain {
		signer = l.Provider
	}
	switch {
	case e.Signer != signer:
		return l, fmt.Errorf("%w: lease signed by %s, who is not its party", attest.ErrSignature, e.Signer)
	case l.Network != network:
		return l, fmt.Errorf("%w: lease of another network", attest.ErrSignature)
	}
	return l, nil
}

// File is one content-addressed file of a job: where the guest finds it, and what it is.
type File struct {
	Path   string        `cbor:"1,keyasint" json:"path"` // absolute in the guest; relative for outputs and checkpoints
	Digest attest.Digest `cbor:"2,keyasint" json:"digest"`
	Bytes  uint64        `cbor:"3,keyasint" json:"bytes"`
}

// EnvVar is one environment variable of a job.
type EnvVar struct {
	Name  string `cbor:"1,keyasint"`
	Value string `cbor:"2,keyasint"`
}

// MaxTermsBytes is the largest encoding of [Terms]. Many files belong into one archive.
const MaxTermsBytes = 48 << 10

// Terms are what determines a job's output, and its limits. Only the two parties of a lease see them; the lease binds
// them by their digest, which the salt keeps from being guessed.
type Terms struct {
	Version           uint64        `cbor:"1,keyasint"`
	Salt              Nonce         `cbor:"2,keyasint"`
	Module            attest.Digest `cbor:"3,keyasint"`
	ModuleBytes       uint64        `cbor:"4,keyasint"`
	Args              []string      `cbor:"5,keyasint,omitempty"`
	Env               []EnvVar      `cbor:"6,keyasint,omitempty"` // sorted by name
	Inputs            []File        `cbor:"7,keyasint,omitempty"`
	Outputs           []string      `cbor:"8,keyasint,omitempty"`  // guest folders
	Checkpoint        string        `cbor:"9,keyasint,omitempty"`  // guest folder; empty = none
	CheckpointEveryMS uint64        `cbor:"10,keyasint,omitempty"` //
	Resume            []File        `cbor:"11,keyasint,omitempty"` // the checkpoint to resume from; relative paths
	MemBytes          uint64        `cbor:"12,keyasint"`           // limit of the job's memory
	LogBytes          uint64        `cbor:"13,keyasint"`           // limit of its output on stdout and stderr
	DiskBytes         uint64        `cbor:"14,keyasint"`           // limit of its files
	Engine            string        `cbor:"15,keyasint"`           // what runs it, such as "wazero/1.12"
}

// Disk returns the most that the job may take of a provider's disk, in bytes: module, inputs, its files and its log.
func (t Terms) Disk() uint64 {
	sum := t.ModuleBytes + t.LogBytes + t.DiskBytes
	for _, f := range slices.Concat(t.Inputs, t.Resume) {
		sum += f.Bytes // 1024 of at most a TiB: it does not wrap
	}
	return sum
}

// MaxInputBytes bounds one file of a job, in bytes.
const MaxInputBytes = 1 << 40

// Validate reports values that no terms may have, above all paths that lead out of where they belong.
func (t Terms) Validate() error {
	switch {
	case t.Version != 1 || t.Module.IsZero() || t.ModuleBytes == 0 || t.ModuleBytes > 1<<30:
		return errors.New("terms: wrong version, or no module")
	case len(t.Args) > 1024 || len(t.Env) > 512 || len(t.Inputs)+len(t.Resume) > 1024 || len(t.Outputs) > 16 || len(t.Engine) > 64:
		return errors.New("terms: lists too long")
	case t.MemBytes == 0 || t.MemBytes > MaxBytes || t.LogBytes > MaxBytes || t.DiskBytes > MaxBytes:
		return errors.New("terms: limits out of range")
	}
	for i, v := range t.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.Contains(v.Value, "\x00") {
			return fmt.Errorf("terms: environment variable %.40q has no valid name", v.Name)
		}
		if i > 0 && t.Env[i-1].Name >= v.Name {
			return errors.New("terms: environment is not sorted")
		}
	}
	for _, a := range t.Args {
		if strings.Contains(a, "\x00") {
			return errors.New("terms: argument holds a zero byte")
		}
	}
	paths := slices.Clone(t.Outputs)
	if t.Checkpoint != "" {
		paths = append(paths, t.Checkpoint)
	}
	for _, f := range t.Inputs {
		paths = append(paths, f.Path)
	}
	if err := CheckGuestPaths(paths); err != nil {
		return err
	}
	if err := checkFiles(t.Inputs, CheckGuestPath); err != nil {
		return err
	}
	return checkFiles(t.Resume, CheckRelativePath)
}

func checkFiles(files []File, check func(string) error) error {
	seen := make(map[string]bool, len(files))
	for _, f := range files {
		if err := check(f.Path); err != nil {
			return err
		}
		if f.Digest.IsZero() || f.Bytes > MaxInputBytes || seen[f.Path] {
			return fmt.Errorf("file %.80q: no digest, too large, or named twice", f.Path)
		}
		seen[f.Path] = true
	}
	return nil
}

// CheckGuestPath reports a path that is not absolute, clean and below the guest's root.
func CheckGuestPath(p string) error {
	if len(p) > 512 || !strings.HasPrefix(p, "/") || p == "/" || path.Clean(p) != p || !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) {
		return fmt.Errorf("path %.80q: want an absolute path in the job, such as /data", p)
	}
	return nil
}

// ScratchPath is the guest folder that every job may write to and that is no output.
const ScratchPath = "/tmp"

// CheckGuestPaths reports paths that are no guest paths, and pairs that are the same or lie in one another, the scratch
// folder among them: no provider could lay them out.
func CheckGuestPaths(paths []string) error {
	all := map[string]bool{ScratchPath: true}
	for _, p := range paths {
		if err := CheckGuestPath(p); err != nil {
			return err
		}
		if all[p] {
			return fmt.Errorf("path %.80q: it is there already", p)
		}
		all[p] = true
	}
	for _, p := range append(paths[:len(paths):len(paths)], ScratchPath) {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if all[dir] {
				return fmt.Errorf("path %.80q lies in %.80q; neither may lie in the other", p, dir)
			}
		}
	}
	return nil
}

// MaxOutputFiles is the most files that a job may leave in its output folders; more belong into one archive.
const MaxOutputFiles = 5000

// CheckRelativePath reports a path that is not relative and clean, or leads upwards. A backslash is part of a name.
func CheckRelativePath(p string) error {
	if len(p) > 512 || p == "" || p == "." || p == ".." || strings.HasPrefix(p, "/") || strings.HasPrefix(p, "../") || path.Clean(p) != p || !utf8.ValidString(p) || strings.ContainsAny(p, "\x00\n\r") {
		return fmt.Errorf("path %.80q: want a relative path that stays inside its folder", p)
	}
	return nil
}
