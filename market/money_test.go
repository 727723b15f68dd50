package market_test

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
)

func TestParsePrice(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     market.MicroUSD
		ok       bool
	}{
		{"number", "0.5", 500_000, true},
		{"point first", ".5", 500_000, true},
		{"spaces around", " 0.5 ", 500_000, true},
		{"dollar sign and hour", "$0.50/h", 500_000, true},
		{"currency and hour", "0.60 USD/h", 600_000, true},
		{"currency", "0.60 USD", 600_000, true},
		{"hour alone", "0.60/h", 600_000, true},
		{"a minute is a sixtieth of an hour", "0.01/min", 600_000, true},
		{"a minute in dollars", "0.01 USD/min", 600_000, true},
		{"smallest", "0.000001", 1, true},
		{"free, for who allows it", "0", 0, true},
		{"whole", "12", 12_000_000, true},
		{"largest", "1000000000", market.MaxAmount, true},
		{"comma", "0,5", 0, false},
		{"English thousands", "1,250.95", 0, false},
		{"German thousands", "1.250,95", 0, false},
		{"underscore", "1_000", 0, false},
		{"hexadecimal float", "0x1p-2", 0, false},
		{"not a number", "NaN", 0, false},
		{"YAML infinity", ".inf", 0, false},
		{"infinity", "+Inf", 0, false},
		{"empty", "", 0, false},
		{"spaces", "  ", 0, false},
		{"another currency", "0.5 EUR/h", 0, false},
		{"another sign", "€0.50/h", 0, false},
		{"negative", "-0.01", 0, false},
		{"negative zero", "-0", 0, false},
		{"plus", "+1", 0, false},
		{"exponent", "1e-30", 0, false},
		{"too large an exponent", "1e309", 0, false},
		{"seven decimals", "0.2499999", 0, false},
		{"point alone", ".", 0, false},
		{"point last", "5.", 0, false},
		{"two points", "1.2.3", 0, false},
		{"above the largest", "1000000000.000001", 0, false},
		{"above the largest by the minute", "1000000000/min", 0, false},
		{"does not fit 64 bits", "9999999999999999999999", 0, false},
		{"two units", "0.5/h/h", 0, false},
		{"per second", "0.5/s", 0, false},
		{"sign twice", "$$1", 0, false},
		{"sign and currency", "$1 USD", 0, false},
		{"other digits", "٠٫٥", 0, false},
		{"space inside", "0. 5", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := market.ParsePrice(tt.in)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("ParsePrice(%q) = %d, %v, want %d, ok %v", tt.in, uint64(got), err, uint64(tt.want), tt.ok)
			}
		})
	}
}

func TestParseUSD(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want market.MicroUSD
		ok   bool
	}{
		{"5 USD", 5_000_000, true}, {"$5", 5_000_000, true}, {"0.25", 250_000, true}, {"5USD", 5_000_000, true},
		{"0.000021 USD", 21, true}, {"USD 5", 0, false}, {"5 usd", 0, false}, {"5/h", 0, false}, {"5 EUR", 0, false},
		{"USD", 0, false}, {"$", 0, false}, {"-5 USD", 0, false}, {"5,00 USD", 0, false},
	} {
		if got, err := market.ParseUSD(tt.in); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParseUSD(%q) = %d, %v, want %d, ok %v", tt.in, uint64(got), err, uint64(tt.want), tt.ok)
		}
	}
}

func TestMoneyText(t *testing.T) {
	for _, tt := range []struct {
		m            market.MicroUSD
		text, hourly string
	}{
		{0, "0.00 USD", "0.00 USD/h"}, {1, "0.000001 USD", "0.000001 USD/h"}, {21, "0.000021 USD", "0.000021 USD/h"},
		{210_000, "0.21 USD", "0.21 USD/h"}, {200_000, "0.20 USD", "0.20 USD/h"}, {1_500_000, "1.50 USD", "1.50 USD/h"},
		{1<<64 - 1, "18446744073709.551615 USD", "18446744073709.551615 USD/h"},
	} {
		if tt.m.String() != tt.text || tt.m.PerHour() != tt.hourly {
			t.Errorf("%d is %q and %q, want %q and %q", uint64(tt.m), tt.m, tt.m.PerHour(), tt.text, tt.hourly)
		}
		if tt.m > market.MaxAmount {
			continue
		}
		if got, err := market.ParsePrice(tt.hourly); err != nil || got != tt.m {
			t.Errorf("ParsePrice(%q) = %d, %v, want what was printed", tt.hourly, uint64(got), err)
		}
		if got, err := market.ParseUSD(tt.text); err != nil || got != tt.m {
			t.Errorf("ParseUSD(%q) = %d, %v, want what was printed", tt.text, uint64(got), err)
		}
	}
}

func FuzzParsePrice(f *testing.F) {
	for _, s := range []string{"0.5", "$1/h", "0.01/min", "1e9", "NaN", "9 USD/h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := market.ParsePrice(s)
		if err != nil {
			return
		}
		if again, err := market.ParsePrice(m.PerHour()); err != nil || again != m || m > market.MaxAmount {
			t.Errorf("ParsePrice(%q) = %d; its text %q gives %d, %v", s, uint64(m), m.PerHour(), uint64(again), err)
		}
		if strings.ContainsAny(s, "eExX,_+-") {
			t.Errorf("ParsePrice(%q) = %s", s, m)
		}
	})
}

func deviceMS(ms uint64) gpu.Usage { return gpu.Usage{gpu.BillableDeviceMS: ms} }

func TestDue(t *testing.T) {
	for _, tt := range []struct {
		name    string
		price   market.MicroUSD
		seconds uint64
		want    market.MicroUSD
	}{
		{"719.4444 rounds down", 370_000, 7, 719},
		{"less than the smallest amount", 1, 1, 0},
		{"the smallest price for an hour", 1, 3600, 1},
		{"one second short of it", 1, 3599, 0},
		{"a product beyond 64 bits", 9_000_000_000_000_000, 3600, 9_000_000_000_000_000},
		{"a day without drift", 333_333, 86_400, 7_999_992},
		{"nothing used", 333_333, 0, 0},
		{"free", 0, 3600, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := market.Due(tt.price, deviceMS(tt.seconds*1000))
			if err != nil || got != tt.want {
				t.Errorf("Due(%d, %d s) = %d, %v, want %d", tt.price, tt.seconds, got, err, tt.want)
			}
		})
	}
	if got, err := market.Due(370_000, nil); got != 0 || err != nil {
		t.Errorf("Due of no usage = %d, %v, want 0", got, err)
	}
	if got, err := market.Due(370_000, gpu.Usage{gpu.ActiveMS: 1 << 60, gpu.EnergyMJ: 1 << 60}); got != 0 || err != nil {
		t.Errorf("Due of other counters = %d, %v, want 0", got, err)
	}
}

// The same run, metered each second, cut by a restart, or in uneven ticks, costs the same.
func TestDueDoesNotDependOnTheTicks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ticks []uint64 // ms
	}{
		{"each second", []uint64{1000, 1000, 1000, 1000, 1000, 1000, 1000}},
		{"cut after three", []uint64{3000, 4000}},
		{"uneven", []uint64{900, 1100, 900, 1100, 900, 1100, 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var cum, last, sum uint64
			for _, ms := range tt.ticks {
				cum += ms
				due, err := market.Due(370_000, deviceMS(cum))
				if err != nil || uint64(due) < last || due > 719 {
					t.Fatalf("due after %d ms = %d, %v; before %d, in the end 719", cum, due, err, last)
				}
				sum += uint64(due) - last
				last = uint64(due)
			}
			if last != 719 || sum != 719 {
				t.Errorf("in the end %d, sum of the parts %d, want 719", last, sum)
			}
		})
	}
}

// Due is ⌊price·ms/3 600 000⌋ exactly, rises with both, and never drifts however the usage is cut up.
func TestDueIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		price := market.MicroUSD(rng.Uint64() >> rng.IntN(64))
		ms := rng.Uint64() >> rng.IntN(64)
		want := new(big.Int).Mul(new(big.Int).SetUint64(uint64(price)), new(big.Int).SetUint64(ms))
		want.Div(want, big.NewInt(3_600_000))
		got, err := market.Due(price, deviceMS(ms))
		if !want.IsUint64() {
			if !errors.Is(err, market.ErrOverflow) || got != 0 {
				t.Fatalf("Due(%d, %d) = %d, %v, want ErrOverflow", uint64(price), ms, uint64(got), err)
			}
			continue
		}
		if err != nil || uint64(got) != want.Uint64() {
			t.Fatalf("Due(%d, %d) = %d, %v, want %s", uint64(price), ms, uint64(got), err, want)
		}
		if ms > 0 {
			if less, err := market.Due(price, deviceMS(ms-1)); err != nil || less > got {
				t.Fatalf("Due(%d, %d) = %d, %v, more than for one millisecond more", uint64(price), ms-1, uint64(less), err)
			}
		}
	}
}

func TestDueOfManyIntervals(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		price := market.MicroUSD(1 + rng.Uint64N(5_000_000))
		var cum uint64
		var last, sum market.MicroUSD
		for range 1000 {
			cum += 1 + rng.Uint64N(2000)
			due, err := market.Due(price, deviceMS(cum))
			if err != nil || due < last {
				t.Fatalf("due = %d, %v after %d", due, err, last)
			}
			sum += due - last
			last = due
		}
		if once, _ := market.Due(price, deviceMS(cum)); sum != once {
			t.Fatalf("a thousand differences make %d, the whole costs %d", sum, once)
		}
	}
}

func TestDueFor(t *testing.T) {
	for _, tt := range []struct {
		name    string
		price   market.MicroUSD
		devices int
		d       time.Duration
		want    market.MicroUSD
	}{
		{"two devices, half an hour", 600_000, 2, 30 * time.Minute, 600_000},
		{"no device", 600_000, 0, time.Hour, 0},
		{"negative devices", 600_000, -1, time.Hour, 0},
		{"no time", 600_000, 1, 0, 0},
		{"negative time", 600_000, 1, -time.Hour, 0},
		{"more than any amount", market.MaxAmount, 64, 1000 * time.Hour, market.MaxAmount},
		{"does not fit", 1<<64 - 1, 1 << 62, 1<<63 - 1, market.MaxAmount},
	} {
		if got := market.DueFor(tt.price, tt.devices, tt.d); got != tt.want {
			t.Errorf("%s: DueFor = %d, want %d", tt.name, got, tt.want)
		}
	}
}
