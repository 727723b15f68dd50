// Package gpu says what a leasable device is, can do and has just done.
//
// Its main types are [Device] (one GPU or one CPU slot), [Model] (a row of the
// registry of canonical model names), [Usage] (metered counters, the keys of a
// receipt), [Telemetry] (the summary of one interval) and [Sample] (one reading
// of one device). [Match] decides whether a device is what a renter asked for,
// [ClassOf] names the gossip class in which it is traded.
//
// The package talks to no driver, reads no clock and keeps no state: reading
// real cards is gpu/nvml, simulated ones are gpu/gputest, integration over time
// is gpu/meter. Everything to the left of it may call it: attest signs its
// types, market matches by them, node fills them.
//
// A reading that a card cannot give is absent: a nil pointer in a Sample, a
// missing key in Usage and Telemetry. It is never 0.
//
// All functions are safe for concurrent use. Usage and Telemetry are maps and
// as safe as maps.
package gpu

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// ErrBadDevice is wrapped by every error of [Device.Validate].
var ErrBadDevice = errors.New("bad device")

// maxText bounds the id and the names of a device, in bytes.
const maxText = 128

// Device is one thing that can be leased: a GPU, or a CPU slot (one logical
// core with its share of the memory).
type Device struct {
	// ID is the driver's UUID ("GPU-…"), "CPU-<host>-<n>" or "SIM-…". It is
	// never an index: drivers promise no order across restarts.
	ID string `cbor:"1,keyasint" json:"id"`
	// Name is the product string exactly as the driver gives it.
	Name string `cbor:"2,keyasint" json:"name"`
	// Model is the canonical name, as "RTX 4090" or "A100 SXM4 80GB"; it
	// equals Name when the registry does not know the product.
	Model string `cbor:"3,keyasint" json:"model"`
	// Class is the gossip class, as "nv-24g" or "cpu". See [ClassOf].
	Class string `cbor:"4,keyasint" json:"class"`
	// MemBytes is the memory the driver reports. 0 means unknown: no demand
	// for memory is met by such a device.
	MemBytes uint64 `cbor:"5,keyasint,omitempty" json:"mem_bytes,omitempty"`
	// Simulated marks a device without hardware; only test networks take it.
	Simulated bool `cbor:"6,keyasint,omitempty" json:"simulated,omitempty"`
}

// NewDevice describes a GPU as its driver reports it: product is kept as it is
// and looked up in the registry for model and class. The vendor is only needed
// for products that the registry does not know. A memBytes of 0 means unknown.
func NewDevice(vendor Vendor, id, product string, memBytes uint64) Device {
	d := Device{ID: id, Name: product, Model: product, MemBytes: memBytes}
	if m, ok := Canonical(product, memBytes); ok {
		d.Model, vendor = m.Name, m.Vendor
		if memBytes == 0 {
			d.Class = ClassOf(vendor, m.MemBytes)
			return d
		}
	}
	d.Class = ClassOf(vendor, memBytes)
	return d
}

// Validate reports what makes a device from another peer unusable: an empty,
// overlong, unprintable or purely numeric id (an index), an unusable name, or an
// unknown class. The error wraps [ErrBadDevice].
func (d Device) Validate() error {
	var errs []error
	for _, f := range []struct{ name, value string }{{"id", d.ID}, {"name", d.Name}, {"model", d.Model}} {
		if err := checkText(f.value); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s %w", ErrBadDevice, f.name, err))
		}
	}
	if isIndex(d.ID) {
		errs = append(errs, fmt.Errorf("%w: id %s is an index", ErrBadDevice, d.ID))
	}
	if !KnownClass(d.Class) {
		errs = append(errs, fmt.Errorf("%w: unknown class %.32q", ErrBadDevice, d.Class))
	}
	return errors.Join(errs...)
}

func checkText(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxText:
		return fmt.Errorf("is longer than %d bytes", maxText)
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return errors.New("holds an unprintable character")
		}
	}
	return nil
}

func isIndex(id string) bool {
	for _, r := range id {
		if r < '0' || r > '9' {
			return false
		}
	}
	return id != ""
}
