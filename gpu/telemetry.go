package gpu

import (
	"fmt"
	"maps"
	"time"
)

// Field is a key of [Telemetry]. The numbers are those of a receipt and are
// never reused. 0 is unset.
type Field uint8

// The fields of a receipt's telemetry, each over one interval and over all
// devices of the lease.
const (
	UtilAvgBP     Field = 1  // mean utilisation, basis points
	UtilP10BP     Field = 2  // 10th percentile of utilisation, basis points
	MemUsedMaxMiB Field = 3  // highest memory in use on one device, MiB
	PowerAvgMW    Field = 4  // mean power of one device, milliwatts
	SMClockMHz    Field = 5  // mean clock of the compute units, MHz
	MemClockMHz   Field = 6  // mean memory clock, MHz
	TempMaxC      Field = 7  // highest temperature, °C
	Throttle      Field = 8  // OR of the driver's throttle reason bits
	ECCErrors     Field = 9  // new uncorrected memory errors
	XIDs          Field = 10 // new driver error events
	RetiredPages  Field = 11 // newly retired memory pages
	PCIeRxMB      Field = 12 // megabytes (10^6) received over PCIe
	PCIeTxMB      Field = 13 // megabytes (10^6) sent over PCIe
)

// MaxBP is the whole in basis points: 10 000 = 100 %.
const MaxBP = 10_000

// String returns the field's lower_snake name, or "field(n)" for an unknown one.
func (f Field) String() string {
	switch f {
	case UtilAvgBP:
		return "util_avg_bp"
	case UtilP10BP:
		return "util_p10_bp"
	case MemUsedMaxMiB:
		return "mem_used_max_mib"
	case PowerAvgMW:
		return "power_avg_mw"
	case SMClockMHz:
		return "sm_clock_mhz"
	case MemClockMHz:
		return "mem_clock_mhz"
	case TempMaxC:
		return "temp_max_c"
	case Throttle:
		return "throttle"
	case ECCErrors:
		return "ecc_errors"
	case XIDs:
		return "xids"
	case RetiredPages:
		return "retired_pages"
	case PCIeRxMB:
		return "pcie_rx_mb"
	case PCIeTxMB:
		return "pcie_tx_mb"
	default:
		return fmt.Sprintf("field(%d)", uint8(f))
	}
}

// Telemetry is the summary of one interval. An absent key was not measured on
// every device of the lease. The nil Telemetry holds nothing and may be read.
type Telemetry map[Field]uint64

// Clone returns a copy that shares nothing with t. The clone of nil is nil.
func (t Telemetry) Clone() Telemetry { return maps.Clone(t) }

// Equal reports whether both hold the same keys with the same values.
func (t Telemetry) Equal(other Telemetry) bool { return maps.Equal(t, other) }

// Validate returns an error if t holds a key that this version does not know
// (it wraps [ErrUnknownKey]) or a utilisation above [MaxBP].
func (t Telemetry) Validate() error {
	for k, v := range t {
		if k < UtilAvgBP || k > PCIeTxMB {
			return fmt.Errorf("telemetry: %w %d", ErrUnknownKey, uint8(k))
		}
		if (k == UtilAvgBP || k == UtilP10BP) && v > MaxBP {
			return fmt.Errorf("telemetry: %v is %d, above %d", k, v, MaxBP)
		}
	}
	return nil
}

// Sample is one reading of one device. A nil pointer is a reading that the card
// or its driver cannot give.
type Sample struct {
	// Device is the [Device.ID] that was read.
	Device string `json:"device"`
	// At is the wall clock at the reading, UTC. It is for people and logs;
	// metering goes by monotonic time.
	At time.Time `json:"at"`

	UtilBP     *uint64 `json:"util_bp,omitempty"`      // busy share since the previous reading, 0–10 000
	MemUsedMiB *uint64 `json:"mem_used_mib,omitempty"` // memory in use, MiB
	PowerMW    *uint64 `json:"power_mw,omitempty"`     // power drawn now, milliwatts
	// EnergyMJ is the driver's running energy counter, millijoules since the
	// driver was loaded; only differences mean anything.
	EnergyMJ    *uint64 `json:"energy_mj,omitempty"`
	SMClockMHz  *uint64 `json:"sm_clock_mhz,omitempty"`  // compute clock now, MHz
	MemClockMHz *uint64 `json:"mem_clock_mhz,omitempty"` // memory clock now, MHz
	TempC       *uint64 `json:"temp_c,omitempty"`        // temperature now, °C
	Throttle    *uint64 `json:"throttle,omitempty"`      // throttle reason bits now

	ECCErrors    *uint64 `json:"ecc_errors,omitempty"`    // uncorrected memory errors, running count
	XIDs         *uint64 `json:"xids,omitempty"`          // driver error events, running count
	RetiredPages *uint64 `json:"retired_pages,omitempty"` // retired memory pages, running count

	PCIeRxKBs *uint64 `json:"pcie_rx_kbs,omitempty"` // received over PCIe, 10^3 bytes per second now
	PCIeTxKBs *uint64 `json:"pcie_tx_kbs,omitempty"` // sent over PCIe, 10^3 bytes per second now
}
