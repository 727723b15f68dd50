package meter

import (
	"slices"

	"github.com/lacuna-network/lacuna/gpu"
)

// observations gathers what the running devices reported in one interval.
type observations struct {
	devices int
	util    []uint64                          // every reading, basis points
	seen    map[gpu.Field]map[string]struct{} // which devices reported a field
	values  map[gpu.Field]*aggregate
}

// aggregate is all that a summary may need of one field's readings.
type aggregate struct{ sum, n, max, or uint64 }

func newObservations(devices int) *observations {
	return &observations{
		devices: devices,
		seen:    map[gpu.Field]map[string]struct{}{},
		values:  map[gpu.Field]*aggregate{},
	}
}

func (o *observations) add(s gpu.Sample, passed span) {
	if s.UtilBP != nil {
		bp := min(*s.UtilBP, gpu.MaxBP)
		o.util = append(o.util, bp)
		o.note(s.Device, gpu.UtilAvgBP, &bp)
	}
	o.note(s.Device, gpu.MemUsedMaxMiB, s.MemUsedMiB)
	o.note(s.Device, gpu.PowerAvgMW, s.PowerMW)
	o.note(s.Device, gpu.SMClockMHz, s.SMClockMHz)
	o.note(s.Device, gpu.MemClockMHz, s.MemClockMHz)
	o.note(s.Device, gpu.TempMaxC, s.TempC)
	o.note(s.Device, gpu.Throttle, s.Throttle)
	o.note(s.Device, gpu.ECCErrors, passed.ecc)
	o.note(s.Device, gpu.XIDs, passed.xids)
	o.note(s.Device, gpu.RetiredPages, passed.retiredPages)
	o.noteVolume(s.Device, gpu.PCIeRxMB, s.PCIeRxKBs, passed)
	o.noteVolume(s.Device, gpu.PCIeTxMB, s.PCIeTxKBs, passed)
}

// noteVolume notes a rate in kB/s as the bytes of the span.
func (o *observations) noteVolume(device string, f gpu.Field, rate *uint64, passed span) {
	if rate != nil && passed.continuous {
		o.note(device, f, new(mulDiv(*rate, passed.ms, 1)))
	}
}

func (o *observations) note(device string, f gpu.Field, v *uint64) {
	if v == nil {
		return
	}
	if o.values[f] == nil {
		o.values[f] = &aggregate{}
		o.seen[f] = map[string]struct{}{}
	}
	a := o.values[f]
	a.sum = addSaturating(a.sum, *v)
	a.n++
	a.max = max(a.max, *v)
	a.or |= *v
	o.seen[f][device] = struct{}{}
}

// telemetry summarises the interval; fields that some device lacked are absent.
func (o *observations) telemetry() gpu.Telemetry {
	tel := gpu.Telemetry{}
	for f, a := range o.values {
		if len(o.seen[f]) < o.devices {
			continue
		}
		switch f {
		case gpu.MemUsedMaxMiB, gpu.TempMaxC:
			tel[f] = a.max
		case gpu.Throttle:
			tel[f] = a.or
		case gpu.ECCErrors, gpu.XIDs, gpu.RetiredPages:
			tel[f] = a.sum
		case gpu.PCIeRxMB, gpu.PCIeTxMB:
			tel[f] = a.sum / 1_000_000
		case gpu.UtilAvgBP:
			tel[f] = a.sum / a.n
			tel[gpu.UtilP10BP] = percentile10(o.util)
		default:
			tel[f] = a.sum / a.n
		}
	}
	return tel
}

// percentile10 is the nearest-rank 10th percentile of at least one value.
func percentile10(v []uint64) uint64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[(len(sorted)+9)/10-1]
}
