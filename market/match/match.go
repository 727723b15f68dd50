// Package match holds a bid against what a provider has and allows.
//
// [Fit] gives the devices that serve the bid, or every constraint that fails, with what was wanted, what is available
// and how far the two are apart. It is the one function for admission, for a renter's dry run and for browsing asks.
// It is pure and knows nothing of prices: price is never a reason a provider gives.
package match

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
)

// Seller is what a provider has and allows.
type Seller struct {
	Devices      []gpu.Device // all that it sells
	Free         map[string]bool
	Place        market.Place
	Workloads    []market.Workload
	Tiers        []market.Tier
	HostMemBytes uint64        // main memory for one job; 0 = unknown, then no limit is held against it
	MaxDuration  time.Duration // longest job taken in; 0 = no limit
	Notice       time.Duration // longest grace given to a job that must go; 0 = any
	Stopping     bool          // takes in nothing new
	// Spread, usually the bid's id, chooses among devices of equal memory, so that offers made at the same time to several
	// renters do not all name the same one: those with the lowest H(Spread ‖ device). Zero chooses the lowest ids.
	Spread attest.Digest
}

// Fit returns the devices that serve the bid, those with the least memory first, or why none do. Exactly one of the two
// is empty.
func Fit(b market.Bid, s Seller) ([]gpu.Device, []market.Failure) {
	var fails []market.Failure
	fail := func(r market.Reason, wanted, available string, distance uint64) {
		fails = append(fails, market.Failure{Reason: r, Wanted: market.ClipReason(wanted), Available: market.ClipReason(available), Distance: distance})
	}
	if s.Stopping {
		fail(market.Stopping, "a new lease", "none, the provider is stopping", 0)
	}
	if !contains(s.Workloads, b.Workload) {
		fail(market.WorkloadNotAllowed, b.Workload.String(), join(s.Workloads), 0)
	}
	if !contains(s.Tiers, b.Tier) {
		fail(market.TierNotSold, b.Tier.String(), join(s.Tiers), 0)
	}
	if !placeFits(b.Require, s.Place) {
		fail(market.WrongPlace, join(b.Require), s.Place.String(), 0)
	}
	if d := b.Duration(); s.MaxDuration > 0 && d > s.MaxDuration {
		fail(market.TooLong, d.String(), s.MaxDuration.String(), uint64((d - s.MaxDuration).Milliseconds()))
	}
	if grace := time.Duration(b.GraceMS) * time.Millisecond; s.Notice > 0 && grace > s.Notice {
		fail(market.NoticeTooShort, grace.String(), s.Notice.String(), uint64((grace - s.Notice).Milliseconds()))
	}
	if s.HostMemBytes > 0 && b.HostMemBytes > s.HostMemBytes {
		fail(market.HostMemory, market.FormatBytes(b.HostMemBytes), market.FormatBytes(s.HostMemBytes), b.HostMemBytes-s.HostMemBytes)
	}
	devices, f := pick(b, s)
	fails = append(fails, f...)
	if len(fails) > 0 {
		return nil, fails
	}
	return devices, nil
}

// pick narrows the devices constraint by constraint; the first one that leaves too few is the one that failed.
func pick(b market.Bid, s Seller) ([]gpu.Device, []market.Failure) {
	want := int(b.Count)
	one := func(r market.Reason, wanted, available string, distance uint64) []market.Failure {
		return []market.Failure{{Reason: r, Wanted: market.ClipReason(wanted), Available: market.ClipReason(available), Distance: distance}}
	}
	vendor := filter(s.Devices, func(d gpu.Device) bool { return classFits(b.Class, d.Class) })
	if len(vendor) < want {
		return nil, one(market.TooFewDevices, fmt.Sprintf("%d of class %s", want, b.Class), fmt.Sprintf("%d", len(vendor)), uint64(want-len(vendor)))
	}
	real := filter(vendor, func(d gpu.Device) bool { return b.Simulated || !d.Simulated })
	if len(real) < want {
		return nil, one(market.SimulatedOnly, "real devices", "simulated ones", 0)
	}
	model := filter(real, func(d gpu.Device) bool { return modelFits(b.Models, d) })
	if len(model) < want {
		return nil, one(market.WrongModel, strings.Join(b.Models, ", "), models(real), 0)
	}
	// A card sold as 24 GB reports a little less than 24 GiB; it counts as what stands on its box.
	memory := filter(model, func(d gpu.Device) bool { return gpu.NominalMemBytes(d.MemBytes) >= b.MemBytes })
	if len(memory) < want {
		largest := uint64(0)
		for _, d := range model {
			largest = max(largest, d.MemBytes)
		}
		return nil, one(market.VRAMTooSmall, market.FormatBytes(b.MemBytes), memoryText(largest), b.MemBytes-min(largest, b.MemBytes))
	}
	free := filter(memory, func(d gpu.Device) bool { return s.Free[d.ID] })
	if len(free) < want {
		return nil, one(market.Busy, fmt.Sprintf("%d free", want), fmt.Sprintf("%d free of %d", len(free), len(memory)), uint64(want-len(free)))
	}
	lots := map[string]string{}
	for _, d := range free {
		lots[d.ID] = d.ID
		if !s.Spread.IsZero() {
			h := attest.Sum(append(s.Spread[:len(s.Spread):len(s.Spread)], d.ID...))
			lots[d.ID] = string(h[:])
		}
	}
	slices.SortFunc(free, func(a, b gpu.Device) int { // the smallest that does, so that larger ones stay free
		return cmp.Or(cmp.Compare(a.MemBytes, b.MemBytes), strings.Compare(lots[a.ID], lots[b.ID]))
	})
	return free[:want], nil
}

// classFits reports whether a device of that class serves a bid for the vendor: "any" is any GPU, never a CPU slot.
func classFits(wanted, class string) bool {
	if wanted == "any" {
		return class != gpu.ClassCPU
	}
	vendor, _, _ := strings.Cut(class, "-")
	return wanted == vendor || wanted == class
}

func modelFits(wanted []string, d gpu.Device) bool {
	for _, w := range wanted {
		if gpu.Match(w, d) {
			return true
		}
	}
	return len(wanted) == 0
}

func placeFits(require []market.Place, p market.Place) bool {
	for _, area := range require {
		if p.Within(area) {
			return true
		}
	}
	return len(require) == 0
}

func memoryText(n uint64) string {
	if n == 0 {
		return "unknown"
	}
	return market.FormatBytes(n)
}

func models(ds []gpu.Device) string {
	seen := map[string]bool{}
	var names []string
	for _, d := range ds {
		if !seen[d.Model] {
			seen[d.Model] = true
			names = append(names, d.Model)
		}
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

func filter(ds []gpu.Device, keep func(gpu.Device) bool) []gpu.Device {
	var out []gpu.Device
	for _, d := range ds {
		if keep(d) {
			out = append(out, d)
		}
	}
	return out
}

func contains[T comparable](list []T, v T) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

func join[T fmt.Stringer](list []T) string {
	if len(list) == 0 {
		return "none"
	}
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = v.String()
	}
	return strings.Join(parts, ", ")
}
