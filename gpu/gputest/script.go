package gputest

import (
	"time"

	"github.com/lacuna-network/lacuna/gpu"
)

// script is what one entry of the file says about its devices' behaviour. It is
// never written after parsing and shared by the devices of one entry.
type script struct {
	price  string
	load   []step
	period time.Duration // of the load, the sum of its steps
	idle   readings
	faults []fault // by after, ascending
	owner  []stay
	hidden []reading
}

// step is one part of the load script.
type step struct {
	lasts time.Duration
	readings
}

// stay is one time in which the owner uses the device.
type stay struct {
	at, lasts time.Duration
	readings
}

// fault befalls the lease-th lease, from 1, after that time.
type fault struct {
	kind  string
	lease int
	after time.Duration
}

// reading is an index into readings. In what is hidden, the error counts come after: ecc, xids, retired pages.
type reading int

const (
	util reading = iota
	power
	memory
	temp
	smClock
	memClock
	throttle
	pcieRx
	pcieTx
	numReadings
)

// readingKeys are the keys in load, idle and owner; readingNames those in
// unreadable. Both are indexed by reading.
var (
	readingKeys  = [...]string{"util", "power_mw", "mem_mib", "temp_c", "sm_clock_mhz", "mem_clock_mhz", "throttle", "pcie_rx_kbs", "pcie_tx_kbs"}
	readingNames = [...]string{"util", "power", "memory", "temp", "sm_clock", "mem_clock", "throttle", "pcie_rx", "pcie_tx", "ecc", "xids", "retired_pages"}
)

// readings are what a card shows at one time; nil is absent.
type readings [numReadings]*uint64

// over returns r with the gaps filled from below.
func (r readings) over(below readings) readings {
	for i, v := range r {
		if v == nil {
			r[i] = below[i]
		}
	}
	return r
}

// sample returns the readings as a sample that shares nothing with the script.
func (r readings) sample() gpu.Sample {
	for i, v := range r {
		if v != nil {
			r[i] = new(*v)
		}
	}
	return gpu.Sample{
		UtilBP: r[util], PowerMW: r[power], MemUsedMiB: r[memory], TempC: r[temp],
		SMClockMHz: r[smClock], MemClockMHz: r[memClock], Throttle: r[throttle],
		PCIeRxKBs: r[pcieRx], PCIeTxKBs: r[pcieTx],
	}
}

// hide takes out of a sample what the card cannot give.
func (s script) hide(out *gpu.Sample) {
	fields := [...]**uint64{
		&out.UtilBP, &out.PowerMW, &out.MemUsedMiB, &out.TempC, &out.SMClockMHz, &out.MemClockMHz,
		&out.Throttle, &out.PCIeRxKBs, &out.PCIeTxKBs, &out.ECCErrors, &out.XIDs, &out.RetiredPages,
	}
	for _, r := range s.hidden {
		*fields[r] = nil
	}
}

// loadAt returns the readings at a time since the start of a lease. The script
// begins again when it ends; before its start it shows its first step.
func (s script) loadAt(since time.Duration) readings {
	since = max(since, 0) % s.period
	for _, st := range s.load {
		if since < st.lasts {
			return st.readings
		}
		since -= st.lasts
	}
	panic("gputest: load steps do not fill their period")
}

// ownerAt returns the owner's stay at a time since the start of the set, or nil.
func (s script) ownerAt(since time.Duration) *stay {
	for i, o := range s.owner {
		if since >= o.at && since-o.at < o.lasts {
			return &s.owner[i]
		}
	}
	return nil
}
