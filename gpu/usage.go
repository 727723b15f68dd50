package gpu

import (
	"errors"
	"fmt"
	"maps"
	"math"
)

// Unit is a key of [Usage]: what was counted, and in which unit. The numbers
// are those of a receipt and are never reused. 0 is unset.
type Unit uint8

// The units of a receipt.
const (
	BillableDeviceMS Unit = 1 // devices × milliseconds in which the job could run
	ActiveMS         Unit = 2 // devices × milliseconds in which the device was busy
	EnergyMJ         Unit = 3 // millijoules over all devices
	TokensIn         Unit = 4 // prompt tokens computed
	TokensCachedIn   Unit = 5 // prompt tokens served from a cache
	TokensOut        Unit = 6 // tokens generated
	BytesIn          Unit = 7 // bytes received for the job
	BytesOut         Unit = 8 // bytes sent by the job
)

// String returns the unit's lower_snake name, or "unit(n)" for an unknown one.
func (u Unit) String() string {
	switch u {
	case BillableDeviceMS:
		return "billable_device_ms"
	case ActiveMS:
		return "active_ms"
	case EnergyMJ:
		return "energy_mj"
	case TokensIn:
		return "tokens_in"
	case TokensCachedIn:
		return "tokens_cached_in"
	case TokensOut:
		return "tokens_out"
	case BytesIn:
		return "bytes_in"
	case BytesOut:
		return "bytes_out"
	default:
		return fmt.Sprintf("unit(%d)", uint8(u))
	}
}

// ErrUnknownKey is returned for a usage or telemetry key that this version does
// not know.
var ErrUnknownKey = errors.New("unknown key")

// Usage is a set of counters. An absent key was not measured, which is not the
// same as 0. The nil Usage holds nothing and may be read.
type Usage map[Unit]uint64

// Validate returns an error that wraps [ErrUnknownKey] if u holds a key outside
// [Units].
func (u Usage) Validate() error {
	for k := range u {
		if k < BillableDeviceMS || k > BytesOut {
			return fmt.Errorf("usage: %w %d", ErrUnknownKey, uint8(k))
		}
	}
	return nil
}

// Clone returns a copy that shares nothing with u. The clone of nil is nil.
func (u Usage) Clone() Usage { return maps.Clone(u) }

// Equal reports whether both hold the same keys with the same values; an absent
// counter differs from a counter of 0.
func (u Usage) Equal(other Usage) bool { return maps.Equal(u, other) }

// Add returns a new Usage with every counter of either, summed where both have
// it. A sum stops at the largest uint64 instead of wrapping, so that a hostile
// counter can never make a total fall.
func (u Usage) Add(other Usage) Usage {
	sum := make(Usage, max(len(u), len(other)))
	maps.Copy(sum, u)
	for k, v := range other {
		sum[k] = addSaturating(sum[k], v)
	}
	return sum
}

// AtLeast reports whether u can follow prev as the cumulative usage of one
// lease: no counter of prev is missing in u, and none is lower.
func (u Usage) AtLeast(prev Usage) bool {
	for k, before := range prev {
		if now, ok := u[k]; !ok || now < before {
			return false
		}
	}
	return true
}

func addSaturating(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
