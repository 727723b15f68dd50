package market

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
)

// DeviceID is the public name of a provider's device: the first 16 bytes of SHA-256("dev" ‖ provider ‖ driver's UUID).
// It lets two leases be seen to share a device without showing the UUID.
type DeviceID [16]byte

// NewDeviceID returns the public id of the device that the provider knows as uuid.
func NewDeviceID(provider attest.Key, uuid string) DeviceID {
	b := append([]byte("dev"), provider[:]...)
	d := attest.Sum(append(b, uuid...))
	return DeviceID(d[:16])
}

// String returns 32 hex digits.
func (d DeviceID) String() string { return fmt.Sprintf("%x", d[:]) }

// MarshalText returns the hex digits.
func (d DeviceID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses what [DeviceID.MarshalText] wrote.
func (d *DeviceID) UnmarshalText(b []byte) error {
	if n, err := hex.Decode(d[:], b[:min(len(b), 2*len(d))]); err != nil || len(b) != 2*len(d) || n != len(d) {
		return fmt.Errorf("device id %.40q: want 32 hex digits", b)
	}
	return nil
}

// OfferedDevice is one device in an offer.
type OfferedDevice struct {
	ID       DeviceID `cbor:"1,keyasint" json:"id"`
	Name     string   `cbor:"2,keyasint" json:"name"`                          // the driver's product string
	Model    string   `cbor:"3,keyasint" json:"model"`                         // canonical
	MemBytes uint64   `cbor:"4,keyasint,omitempty" json:"mem_bytes,omitempty"` // 0 = unknown
}

// Offer is a provider's binding answer to one bid. It holds nothing: a device may stand in several offers, and the
// first award wins.
type Offer struct {
	Version    uint64          `cbor:"1,keyasint"`
	Bid        attest.Digest   `cbor:"2,keyasint"`
	Provider   attest.Key      `cbor:"3,keyasint"`
	Devices    []OfferedDevice `cbor:"4,keyasint"`
	Price      MicroUSD        `cbor:"5,keyasint"` // per device and hour
	IntervalMS uint64          `cbor:"6,keyasint"` // between receipts
	StartInMS  uint64          `cbor:"7,keyasint"` // earliest start, counted from the award
	FirmUntil  int64           `cbor:"8,keyasint"` // Unix ms; binding until then
	Nonce      Nonce           `cbor:"11,keyasint"`
	Place      Place           `cbor:"12,keyasint"`
	Tier       Tier            `cbor:"13,keyasint"`
	Simulated  bool            `cbor:"14,keyasint,omitempty"`
	Reach      Reach           `cbor:"15,keyasint,omitempty"`
}

// MaxFirm bounds how long an offer binds.
const MaxFirm = 10 * time.Minute

// Validate reports values that no offer may have.
func (o Offer) Validate() error {
	switch {
	case o.Version != 1:
		return fmt.Errorf("offer version %d, want 1", o.Version)
	case o.Bid.IsZero() || o.Nonce == Nonce{}:
		return errors.New("offer: no bid or nonce")
	case len(o.Devices) == 0 || len(o.Devices) > MaxDevices:
		return fmt.Errorf("offer: want 1 to %d devices", MaxDevices)
	case o.Price == 0 || o.Price > MaxAmount:
		return errors.New("offer: price of 0 or out of range")
	case !inMS(o.IntervalMS, MinInterval, MaxInterval):
		return errors.New("offer: interval out of range")
	case o.StartInMS > uint64(MaxDuration.Milliseconds()) || o.FirmUntil <= 0:
		return errors.New("offer: start or firm time out of range")
	case o.Tier < Gold || o.Tier > Bronze:
		return errors.New("offer: no tier")
	}
	seen := make(map[DeviceID]bool, len(o.Devices))
	for _, d := range o.Devices {
		if seen[d.ID] || len(d.Name) > 96 || len(d.Model) > 64 {
			return errors.New("offer: a device stands in it twice, or its name is too long")
		}
		seen[d.ID] = true
	}
	if err := o.Reach.Validate(); err != nil {
		return err
	}
	return o.Place.Validate()
}

// Answers reports where o, as its provider states it, is not what the bid asks for. What was stated is not proved.
func (o Offer) Answers(b Bid) error {
	switch {
	case uint64(len(o.Devices)) != b.Count:
		return fmt.Errorf("offer: %d devices, the bid wants %d", len(o.Devices), b.Count)
	case o.Tier != b.Tier:
		return fmt.Errorf("offer: tier %s, the bid wants %s", o.Tier, b.Tier)
	case o.Simulated && !b.Simulated:
		return errors.New("offer: simulated devices, the bid wants real ones")
	case len(b.Require) > 0 && !slices.ContainsFunc(b.Require, o.Place.Within):
		return fmt.Errorf("offer: place %s, the bid wants another", o.Place)
	}
	for _, d := range o.Devices {
		dev := gpu.Device{Name: d.Name, Model: d.Model, MemBytes: d.MemBytes}
		if len(b.Models) > 0 && !slices.ContainsFunc(b.Models, func(m string) bool { return gpu.Match(m, dev) }) {
			return fmt.Errorf("offer: model %.64q, the bid wants another", d.Model)
		}
		if gpu.NominalMemBytes(d.MemBytes) < b.MemBytes {
			return fmt.Errorf("offer: %s of memory, the bid wants %s", FormatBytes(d.MemBytes), FormatBytes(b.MemBytes))
		}
	}
	return nil
}

// OpenOffer verifies and decodes an offer to the bid with that id, and holds its firm time against now.
func OpenOffer(e attest.Envelope, network, bid attest.Digest, now time.Time) (Offer, error) {
	o, err := attest.Open[Offer](e, network, OfferDomain)
	switch {
	case err != nil:
		return o, err
	case o.Provider != e.Signer:
		return o, fmt.Errorf("%w: offer of %s signed by %s", attest.ErrSignature, o.Provider, e.Signer)
	case o.Bid != bid:
		return o, errors.New("offer: answers another bid")
	case o.FirmUntil > now.Add(MaxFirm+ClockTolerance).UnixMilli():
		return o, errors.New("offer: binds longer than 10 minutes")
	case o.FirmUntil+ClockTolerance.Milliseconds() < now.UnixMilli(): // its provider knows when it binds no more
		return o, fmt.Errorf("offer: %w", ErrExpired)
	}
	return o, nil
}

// Reason is why a constraint failed. 0 means not set.
type Reason uint16

// The reasons of declines and refusals. Price is none of them: the renter holds offers against its limit itself.
const (
	VRAMTooSmall Reason = iota + 1
	WrongModel
	TooFewDevices
	WrongPlace
	TierNotSold
	WorkloadNotAllowed
	Busy           // all devices are leased; a bid that waits is offered to when one is free
	HostMemory     //
	TooLong        // the job may take longer than the provider lets anyone stay
	SimulatedOnly  // the provider's devices are simulated and the bid wants real ones
	Sold           // the devices went to another award
	OfferGone      // the award came after the offer's firm time, or names no offer of this provider
	TermsDiffer    // the award says something else than the offer
	CreditExceeded // the renter owes too much already, or the trial cap is reached
	NoticeTooShort // the owner's notice is shorter than the job's grace
	Stopping       // the provider takes in no new lease
	Unreadable     // the device's state is unknown
	HostDisk       // the job may take more disk than the provider gives, or has
)

var reasonNames = [...]string{
	VRAMTooSmall: "vram_too_small", WrongModel: "gpu_model", TooFewDevices: "too_few_devices", WrongPlace: "place",
	TierNotSold: "tier_not_sold", WorkloadNotAllowed: "workload_not_allowed", Busy: "busy", HostMemory: "host_memory",
	TooLong: "duration", SimulatedOnly: "simulated_only", Sold: "sold", OfferGone: "offer_gone", TermsDiffer: "terms_differ",
	CreditExceeded: "credit_exceeded", NoticeTooShort: "notice_too_short", Stopping: "stopping", Unreadable: "device_unreadable",
	HostDisk: "host_disk",
}

// String returns the reason's name in JSON.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint16(r))
}

// MarshalText returns the reason's name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses a reason's name. The name of a reason that a newer version knows is an error.
func (r *Reason) UnmarshalText(b []byte) error {
	for i, name := range reasonNames {
		if name != "" && name == string(b) {
			*r = Reason(i)
			return nil
		}
	}
	return fmt.Errorf("reason %.40q: %w", b, ErrUnknown)
}

// Failure is one constraint that failed and by how much. Wanted and Available are for people: "24GiB", "12GiB".
type Failure struct {
	Reason    Reason `cbor:"1,keyasint" json:"reason"`
	Wanted    string `cbor:"2,keyasint" json:"wanted"`
	Available string `cbor:"3,keyasint" json:"available"`
	// Distance is how far the two are apart in the constraint's own unit (bytes, devices, ms); 0 where it has none.
	Distance uint64 `cbor:"4,keyasint,omitempty" json:"distance,omitempty"`
}

// maxFailureText bounds each text of a [Failure], in bytes.
const maxFailureText = 64

// ClipReason keeps a text within what a [Failure] may carry, and whole characters: half of one could not be decoded.
func ClipReason(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxFailureText {
		return s
	}
	return strings.ToValidUTF8(s[:maxFailureText-3], "") + "..."
}

// String says the failure in words.
func (f Failure) String() string {
	return fmt.Sprintf("%s: wanted %s, available %s", strings.ReplaceAll(f.Reason.String(), "_", " "), f.Wanted, f.Available)
}

// Decline is a provider's answer that it cannot serve a bid, or its refusal of an award; About is the id of either.
type Decline struct {
	Version  uint64        `cbor:"1,keyasint"`
	About    attest.Digest `cbor:"2,keyasint"`
	Provider attest.Key    `cbor:"3,keyasint"`
	Failures []Failure     `cbor:"4,keyasint"`
	At       int64         `cbor:"5,keyasint"` // Unix ms
}

// Validate reports values that no decline may have.
func (d Decline) Validate() error {
	if d.Version != 1 || d.About.IsZero() || d.At <= 0 {
		return errors.New("decline: wrong version, or says not what it is about")
	}
	if len(d.Failures) == 0 || len(d.Failures) > 16 {
		return errors.New("decline: want 1 to 16 reasons")
	}
	for _, f := range d.Failures {
		if f.Reason == 0 || len(f.Wanted) > maxFailureText || len(f.Available) > maxFailureText {
			return errors.New("decline: no reason, or too long a text")
		}
	}
	return nil
}

// OpenDecline verifies and decodes a decline of the bid or award with that id.
func OpenDecline(e attest.Envelope, network, about attest.Digest) (Decline, error) {
	d, err := attest.Open[Decline](e, network, DeclineDomain)
	switch {
	case err != nil:
		return d, err
	case d.Provider != e.Signer:
		return d, fmt.Errorf("%w: decline of %s signed by %s", attest.ErrSignature, d.Provider, e.Signer)
	case d.About != about:
		return d, errors.New("decline: about something else")
	}
	return d, nil
}
