// Package gputest gives simulated devices with a scripted load, for tests and
// for networks that run without hardware (lacuna up --simulate-gpus FILE).
//
// A [Set] is read from JSON by [Load] or [Parse]: a list of objects with the keys
//
//	model       product or model name, required; a registry name fills the rest
//	id          "SIM-…"; "SIM-<model>-<n>" if left out; with count, "-<n>" is added
//	memory      "24GiB", "24GB", "512MiB" or "512MB"; the registry's if left out
//	count       how many of them, 1 to 1024; 1 if left out
//	price       text for the caller to judge, as "0.21 USD/h"
//	place       text for the caller to judge, as "eu/de/berlin"; one per file
//	load        readings while leased: a list of steps, each with "for"; the list
//	            starts with the lease and begins again when it ends
//	idle        readings otherwise; also those while leased if there is no load
//	faults      list of {kind, lease, after}: the lease-th lease on the device
//	            (from 1; 1 if left out) fails after that time, until it ends
//	owner       list of {at, for}: the owner uses the device, from the start of
//	            the set; may give readings, which then hold
//	unreadable  readings that the card cannot give; see the readings below
//
// Readings are util (basis points), power_mw, mem_mib, temp_c, sm_clock_mhz,
// mem_clock_mhz, throttle, pcie_rx_kbs and pcie_tx_kbs, integers; one that is
// left out is absent. In unreadable they are called util, power, memory, temp,
// sm_clock, mem_clock, throttle, pcie_rx, pcie_tx, and ecc, xids, retired_pages
// for the error counts, which are otherwise readable and begin at 0 with each
// lease. Fault kinds are the Kind constants. Durations are Go's, as "1500ms". Any other key, a key
// twice, a number without a unit where one is due: an error that names it.
//
// Every answer depends only on the file and on the instants passed in; there are
// no goroutines and no clock. Only Load does I/O. A Set knows nothing of leases
// but what [Set.LeaseStarted] and [Set.LeaseEnded] tell it, and what a fault does
// to a job is the caller's business. The callers are tests and node's wiring.
// A Set is safe for concurrent use.
package gputest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
)

var (
	// ErrNoDevice is returned for an id that is not in the set.
	ErrNoDevice = errors.New("no such simulated device")
	// ErrLost is returned instead of a reading while a device is lost.
	ErrLost = errors.New("simulated device is lost")
)

// The kinds of fault.
const (
	KindLost = "lost" // the device is gone: no readings, no work
	KindHang = "hang" // the work makes no progress; readings go on
	KindXID  = "xid"  // the driver reports an error event
	KindECC  = "ecc"  // an uncorrected memory error
)

// Set is a list of simulated devices and what is under way on them. Use [Load]
// or [Parse].
type Set struct {
	devices []*device
	place   string

	mu    sync.Mutex
	start time.Time // zero until the first instant is known
}

// device is one simulated device: its script, and its leases under Set.mu.
type device struct {
	gpu.Device
	script

	leases int       // how many have started
	leased bool      // one is in force
	since  time.Time // its start
}

// Devices returns the devices in the order of the file. The error is always nil;
// it is there so that a Set can stand where a driver does. A lost device stays
// listed: whether it can work is for [Set.Sample] and [Set.Fault] to say.
func (s *Set) Devices() ([]gpu.Device, error) {
	all := make([]gpu.Device, len(s.devices))
	for i, d := range s.devices {
		all[i] = d.Device
	}
	return all, nil
}

// Price returns the price text of a device, or "" if the file gives none or has
// no such device.
func (s *Set) Price(id string) string {
	if d := s.find(id); d != nil {
		return d.price
	}
	return ""
}

// Place returns the place text of the file, or "" if it gives none.
func (s *Set) Place() string { return s.place }

// Start fixes the instant from which owner activity counts. If it is not called,
// that is the first instant passed to any other method. Later calls do nothing.
func (s *Set) Start(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(now)
}

func (s *Set) startLocked(now time.Time) {
	if s.start.IsZero() {
		s.start = now
	}
}

// LeaseStarted says that a lease on the device begins at now: its load script
// and the faults of that lease begin with it. A lease still in force is replaced.
// It returns [ErrNoDevice] for an unknown id.
func (s *Set) LeaseStarted(id string, now time.Time) error {
	d := s.find(id)
	if d == nil {
		return unknown(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(now)
	d.leases++
	d.leased, d.since = true, now
	return nil
}

// LeaseEnded says that the lease on the device has ended; its faults end with
// it, and a lost device is back, as after a reset. It does nothing where there
// is no lease. It returns [ErrNoDevice] for an unknown id.
func (s *Set) LeaseEnded(id string) error {
	d := s.find(id)
	if d == nil {
		return unknown(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.leased = false
	return nil
}

// Fault returns the kind of the fault that holds on the device at now, if any.
// Of several, "lost" comes first and then the one that began first.
func (s *Set) Fault(id string, now time.Time) (kind string, ok bool) {
	d := s.find(id)
	if d == nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(now)
	active := d.faultsAt(now)
	if len(active) == 0 {
		return "", false
	}
	if slices.ContainsFunc(active, isLost) {
		return KindLost, true
	}
	return active[0].kind, true
}

func isLost(f fault) bool { return f.kind == KindLost }

// OwnerActive reports whether the device's owner uses it at now.
func (s *Set) OwnerActive(id string, now time.Time) bool {
	d := s.find(id)
	if d == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(now)
	return d.ownerAt(now.Sub(s.start)) != nil
}

// Sample reads the device at now. It returns [ErrNoDevice] for an unknown id and
// [ErrLost] while the device is lost.
func (s *Set) Sample(id string, now time.Time) (gpu.Sample, error) {
	d := s.find(id)
	if d == nil {
		return gpu.Sample{}, unknown(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(now)
	active := d.faultsAt(now)
	if slices.ContainsFunc(active, isLost) {
		return gpu.Sample{}, fmt.Errorf("read %s: %w", id, ErrLost)
	}

	r := d.idle
	if d.leased && len(d.load) > 0 {
		r = d.loadAt(now.Sub(d.since))
	}
	if o := d.ownerAt(now.Sub(s.start)); o != nil {
		r = o.readings.over(r)
	}
	out := r.sample()
	out.Device, out.At = id, now
	out.ECCErrors, out.XIDs, out.RetiredPages = new(uint64), new(uint64), new(uint64)
	for _, f := range active {
		switch f.kind {
		case KindXID:
			*out.XIDs++
		case KindECC:
			*out.ECCErrors++
		}
	}
	d.hide(&out)
	return out, nil
}

// faultsAt returns the faults of the lease in force that have begun, in the
// order in which they began.
func (d *device) faultsAt(now time.Time) []fault {
	if !d.leased {
		return nil
	}
	var active []fault
	for _, f := range d.faults {
		if f.lease == d.leases && now.Sub(d.since) >= f.after {
			active = append(active, f)
		}
	}
	return active
}

func (s *Set) find(id string) *device {
	for _, d := range s.devices {
		if d.ID == id {
			return d
		}
	}
	return nil
}

func unknown(id string) error { return fmt.Errorf("%w: %.64q", ErrNoDevice, id) }
