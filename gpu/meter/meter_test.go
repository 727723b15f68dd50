package meter_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/gpu/meter"
)

func sample(device string, util, powerMW uint64) gpu.Sample {
	return gpu.Sample{Device: device, UtilBP: new(util), PowerMW: new(powerMW)}
}

func check(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestBillableTimeDoesNotDrift(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices int
		ticks   []time.Duration // repeated 1000 times
		want    uint64
	}{
		{"late and early", 1, []time.Duration{1100 * time.Millisecond, 900 * time.Millisecond}, 2_000_000},
		{"fractions of a ms", 1, []time.Duration{333_333 * time.Nanosecond}, 333},
		{"fractions on many devices", 3, []time.Duration{333_333 * time.Nanosecond}, 999},
		{"two devices", 2, []time.Duration{time.Second}, 2_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := meter.New(tt.devices)
			at := 5 * time.Second
			m.Start(at)
			sum := gpu.Usage{}
			var cum gpu.Usage
			for range 1000 {
				for _, d := range tt.ticks {
					at += d
					var delta gpu.Usage
					delta, cum, _ = m.Cut(at)
					sum = sum.Add(delta)
				}
			}
			check(t, "cum", cum, gpu.Usage{gpu.BillableDeviceMS: tt.want})
			check(t, "sum of deltas", sum, cum)
		})
	}
}

func TestPauseStopsTheClock(t *testing.T) {
	m := meter.New(2)
	if _, cum, _ := m.Cut(time.Second); cum[gpu.BillableDeviceMS] != 0 {
		t.Errorf("before Start: %v", cum)
	}
	m.Resume(time.Second) // not started: nothing runs
	m.Start(10 * time.Second)
	m.Start(0)
	m.Pause(12 * time.Second)
	m.Pause(13 * time.Second)
	m.Resume(20 * time.Second)
	m.Resume(21 * time.Second)
	m.Pause(15 * time.Second) // a clock that ran backwards: counts as 21 s
	delta, cum, _ := m.Cut(30 * time.Second)
	check(t, "cum", cum, gpu.Usage{gpu.BillableDeviceMS: 2 * 3000})
	check(t, "delta", delta, cum)
	if got := m.Running(); got != 3*time.Second {
		t.Errorf("Running() = %v, want 3s", got)
	}
}

func TestEnergyAndActiveTime(t *testing.T) {
	at := func(n int) time.Duration { return time.Duration(n) * time.Second }
	counter := func(mj uint64) gpu.Sample { return gpu.Sample{Device: "a", EnergyMJ: new(mj)} }
	for _, tt := range []struct {
		name    string
		devices int
		feed    func(*meter.Meter)
		want    gpu.Usage // without billable time
	}{
		{"constant power", 1, func(m *meter.Meter) {
			m.Sample(at(0), sample("a", 5000, 300_000))
			m.Sample(at(4), sample("a", 5000, 300_000))
		}, gpu.Usage{gpu.ActiveMS: 2000, gpu.EnergyMJ: 1_200_000}},
		{"ramp is a trapezium", 1, func(m *meter.Meter) {
			m.Sample(at(0), sample("a", 0, 100_000))
			m.Sample(at(2), sample("a", 10_000, 300_000))
		}, gpu.Usage{gpu.ActiveMS: 2000, gpu.EnergyMJ: 400_000}},
		{"first reading speaks for the start", 1, func(m *meter.Meter) {
			m.Sample(at(3), sample("a", 10_000, 100_000))
		}, gpu.Usage{gpu.ActiveMS: 3000, gpu.EnergyMJ: 300_000}},
		{"two devices are summed", 2, func(m *meter.Meter) {
			m.Sample(at(2), sample("a", 10_000, 100_000))
			m.Sample(at(2), sample("b", 5000, 200_000))
		}, gpu.Usage{gpu.ActiveMS: 3000, gpu.EnergyMJ: 600_000}},
		{"one device without power", 2, func(m *meter.Meter) {
			m.Sample(at(2), sample("a", 10_000, 100_000))
			m.Sample(at(2), gpu.Sample{Device: "b", UtilBP: new(uint64(10_000))})
		}, gpu.Usage{gpu.ActiveMS: 4000}},
		{"one device silent", 2, func(m *meter.Meter) {
			m.Sample(at(2), sample("a", 10_000, 100_000))
		}, gpu.Usage{}},
		{"a stranger's reading", 1, func(m *meter.Meter) {
			m.Sample(at(1), sample("a", 10_000, 100_000))
			m.Sample(at(1), sample("x", 10_000, 900_000))
		}, gpu.Usage{gpu.ActiveMS: 1000, gpu.EnergyMJ: 100_000}},
		{"nothing reported", 1, func(m *meter.Meter) {
			m.Sample(at(1), gpu.Sample{Device: "a"})
		}, gpu.Usage{}},
		{"counter", 1, func(m *meter.Meter) {
			m.Sample(at(0), counter(7_000_000))
			m.Sample(at(5), counter(7_000_900))
		}, gpu.Usage{gpu.EnergyMJ: 900}},
		{"counter bridges a long gap", 1, func(m *meter.Meter) {
			m.Sample(at(0), counter(10))
			m.Sample(at(500), counter(1010))
		}, gpu.Usage{gpu.EnergyMJ: 1000}},
		{"counter reset", 1, func(m *meter.Meter) {
			m.Sample(at(0), counter(5000))
			m.Sample(at(1), counter(0))
			m.Sample(at(2), counter(40))
		}, gpu.Usage{gpu.EnergyMJ: 40}},
		{"counter goes before power", 1, func(m *meter.Meter) {
			for i := range 3 {
				s := counter(uint64(i) * 100)
				s.PowerMW = new(uint64(999_000))
				m.Sample(at(i), s)
			}
		}, gpu.Usage{gpu.EnergyMJ: 200}},
		{"power over a long gap is not guessed", 1, func(m *meter.Meter) {
			m.Sample(at(0), sample("a", 10_000, 100_000))
			m.Sample(at(11), sample("a", 10_000, 100_000))
			m.Sample(at(12), sample("a", 10_000, 100_000))
		}, gpu.Usage{gpu.ActiveMS: 1000, gpu.EnergyMJ: 100_000}},
		{"the owner's load in a pause", 1, func(m *meter.Meter) {
			m.Sample(at(0), sample("a", 10_000, 100_000))
			m.Pause(at(2))
			m.Sample(at(3), sample("a", 10_000, 900_000))
			m.Resume(at(60))
			m.Sample(at(62), sample("a", 10_000, 100_000))
		}, gpu.Usage{gpu.ActiveMS: 4000, gpu.EnergyMJ: 400_000}},
		{"counter over a pause", 1, func(m *meter.Meter) {
			m.Sample(at(0), counter(0))
			m.Pause(at(1))
			m.Sample(at(2), counter(2000)) // half of it ran
			m.Sample(at(9), counter(9000))
			m.Resume(at(9))
			m.Sample(at(10), counter(9500))
		}, gpu.Usage{gpu.EnergyMJ: 1500}},
		{"absurd readings saturate", 1, func(m *meter.Meter) {
			m.Sample(at(0), sample("a", math.MaxUint64, math.MaxUint64))
			m.Sample(at(1), sample("a", math.MaxUint64, math.MaxUint64))
			m.Sample(at(2), sample("a", math.MaxUint64, math.MaxUint64))
		}, gpu.Usage{gpu.ActiveMS: 2000, gpu.EnergyMJ: math.MaxUint64 / 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := meter.New(tt.devices)
			m.Sample(0, sample("early", 1, 1)) // before Start: ignored
			m.Start(0)
			tt.feed(m)
			_, cum, _ := m.Cut(0)
			delete(cum, gpu.BillableDeviceMS)
			check(t, "cum", cum, tt.want)
		})
	}
}

func TestUnmeasuredIntervalHasNoFigureAndLosesNone(t *testing.T) {
	m := meter.New(1)
	m.Start(0)
	m.Sample(time.Second, sample("a", 10_000, 100_000))
	delta, cum, tel := m.Cut(time.Second)
	full := gpu.Usage{gpu.BillableDeviceMS: 1000, gpu.ActiveMS: 1000, gpu.EnergyMJ: 100_000}
	check(t, "delta 1", delta, full)
	check(t, "cum 1", cum, full)
	check(t, "tel 1", tel, gpu.Telemetry{gpu.UtilAvgBP: 10_000, gpu.UtilP10BP: 10_000, gpu.PowerAvgMW: 100_000})

	delta, cum, tel = m.Cut(2 * time.Second) // no reading fell into it
	check(t, "delta 2", delta, gpu.Usage{gpu.BillableDeviceMS: 1000})
	check(t, "cum 2", cum, gpu.Usage{gpu.BillableDeviceMS: 2000, gpu.ActiveMS: 1000, gpu.EnergyMJ: 100_000})
	check(t, "tel 2", tel, gpu.Telemetry{})

	m.Sample(3*time.Second, sample("a", 10_000, 100_000))
	delta, cum, _ = m.Cut(3 * time.Second)
	check(t, "delta 3", delta, gpu.Usage{gpu.BillableDeviceMS: 1000, gpu.ActiveMS: 2000, gpu.EnergyMJ: 200_000})
	check(t, "cum 3", cum, gpu.Usage{gpu.BillableDeviceMS: 3000, gpu.ActiveMS: 3000, gpu.EnergyMJ: 300_000})
}

func TestCount(t *testing.T) {
	m := meter.New(1)
	m.Start(0)
	m.Count(gpu.TokensOut, 5)
	m.Count(gpu.BytesIn, 0)
	m.Cut(0)
	m.Count(gpu.TokensOut, 7)
	delta, cum, _ := m.Cut(0)
	check(t, "delta", delta, gpu.Usage{gpu.BillableDeviceMS: 0, gpu.TokensOut: 7, gpu.BytesIn: 0})
	check(t, "cum", cum, gpu.Usage{gpu.BillableDeviceMS: 0, gpu.TokensOut: 12, gpu.BytesIn: 0})
	cum[gpu.TokensOut] = 0
	if _, again, _ := m.Cut(0); again[gpu.TokensOut] != 12 {
		t.Error("the caller's copy is the meter's own")
	}
}

func TestPanicsOnMisuse(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"no devices", func() { meter.New(0) }},
		{"counting what is metered", func() { meter.New(1).Count(gpu.EnergyMJ, 1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			tt.do()
		})
	}
}

func TestTelemetry(t *testing.T) {
	m := meter.New(2)
	m.Start(0)
	for i := range 10 {
		at := time.Duration(i+1) * time.Second
		m.Sample(at, gpu.Sample{
			Device: "a", UtilBP: new(uint64(1000 * (i + 1))), MemUsedMiB: new(uint64(100 + i)), PowerMW: new(uint64(200_000)),
			SMClockMHz: new(uint64(1000)), MemClockMHz: new(uint64(5000)), TempC: new(uint64(60)), Throttle: new(uint64(1)),
			ECCErrors: new(uint64(3)), XIDs: new(uint64(i)), RetiredPages: new(uint64(0)),
			PCIeRxKBs: new(uint64(1_000_000)), PCIeTxKBs: new(uint64(500)),
		})
		m.Sample(at, gpu.Sample{
			Device: "b", UtilBP: new(uint64(10_000)), MemUsedMiB: new(uint64(50)), PowerMW: new(uint64(100_000)),
			SMClockMHz: new(uint64(2000)), MemClockMHz: new(uint64(5000)), TempC: new(uint64(71)), Throttle: new(uint64(4)),
			XIDs: new(uint64(7)), RetiredPages: new(uint64(1)),
			PCIeRxKBs: new(uint64(0)), PCIeTxKBs: new(uint64(500)),
		})
	}
	_, _, tel := m.Cut(10 * time.Second)
	check(t, "tel", tel, gpu.Telemetry{
		gpu.UtilAvgBP: 7750, gpu.UtilP10BP: 2000, gpu.MemUsedMaxMiB: 109, gpu.PowerAvgMW: 150_000,
		gpu.SMClockMHz: 1500, gpu.MemClockMHz: 5000, gpu.TempMaxC: 71, gpu.Throttle: 5,
		gpu.XIDs: 9, gpu.RetiredPages: 0, gpu.PCIeRxMB: 10_000, gpu.PCIeTxMB: 10,
		// no ECC: device b does not report it
	})
	if err := tel.Validate(); err != nil {
		t.Error(err)
	}
}

// However the same readings are cut into intervals, the totals are the same,
// deltas add up and no cumulative counter falls.
func TestCutsDoNotChangeTotals(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		whole, parts := meter.New(2), meter.New(2)
		whole.Start(0)
		parts.Start(0)
		sum, prev := gpu.Usage{}, gpu.Usage{}
		cut := func(at time.Duration) {
			delta, cum, tel := parts.Cut(at)
			sum = sum.Add(delta)
			if !cum.AtLeast(prev) || !cum.Equal(sum) {
				t.Fatalf("seed %d: cum %v after %v, deltas sum to %v", seed, cum, prev, sum)
			}
			if err := tel.Validate(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			prev = cum
		}
		var at time.Duration
		for range 200 {
			at += time.Duration(rng.Int64N(int64(2 * time.Second)))
			switch rng.IntN(6) {
			case 0:
				whole.Pause(at)
				parts.Pause(at)
			case 1, 2:
				whole.Resume(at)
				parts.Resume(at)
			case 3:
				cut(at)
			default:
				s := sample([]string{"a", "b"}[rng.IntN(2)], rng.Uint64N(12_000), rng.Uint64N(500_000))
				whole.Sample(at, s)
				parts.Sample(at, s)
			}
		}
		whole.Resume(at)
		parts.Resume(at)
		for _, device := range []string{"a", "b"} { // a last reading of each, as at a lease's end
			whole.Sample(at, sample(device, 1, 1))
			parts.Sample(at, sample(device, 1, 1))
		}
		cut(at)
		_, want, _ := whole.Cut(at)
		if !prev.Equal(want) {
			t.Errorf("seed %d: cut up %v, whole %v", seed, prev, want)
		}
	}
}
