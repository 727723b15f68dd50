package market

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
)

// MicroUSD is an amount in millionths of a US dollar. It is never negative.
type MicroUSD uint64

// USD is one US dollar.
const USD MicroUSD = 1_000_000

// MaxAmount bounds every single price and amount that is typed in or comes from a peer: one billion dollars. Sums of
// a few thousand of them fit 64 bits.
const MaxAmount = 1_000_000_000 * USD

// String returns the exact amount, such as "0.21 USD" or "0.000021 USD".
func (m MicroUSD) String() string { return m.decimal() + " USD" }

func (m MicroUSD) decimal() string {
	frac := strings.TrimRight(fmt.Sprintf("%06d", m%USD), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return fmt.Sprintf("%d.%s", m/USD, frac)
}

// PerHour returns the price as text, "0.21 USD/h".
func (m MicroUSD) PerHour() string { return m.decimal() + " USD/h" }

// ParseUSD parses an amount: "5 USD", "$5", "0.25". At most six decimals; no sign, exponent, separator or comma.
func ParseUSD(s string) (MicroUSD, error) {
	t := strings.TrimSpace(s)
	if u, ok := strings.CutPrefix(t, "$"); ok {
		t = u
	} else if u, ok := strings.CutSuffix(t, "USD"); ok {
		t = strings.TrimSpace(u)
	}
	m, err := parseDecimal(t)
	if err != nil {
		return 0, fmt.Errorf("amount %q: %w; want for example 5 USD or 0.25 USD", s, err)
	}
	return m, nil
}

// ParsePrice parses a price per device and hour: "0.60 USD/h", "$0.60/h", "0.60/h" or "0.60". "/min" is taken times 60.
func ParsePrice(s string) (MicroUSD, error) {
	t, times := strings.TrimSpace(s), MicroUSD(1)
	if u, ok := strings.CutSuffix(t, "/h"); ok {
		t = u
	} else if u, ok := strings.CutSuffix(t, "/min"); ok {
		t, times = u, 60
	}
	m, err := ParseUSD(t)
	if err != nil {
		return 0, fmt.Errorf("price %q: want US dollars per hour, for example 0.60 USD/h (a point for decimals, at most six)", s)
	}
	if m*times > MaxAmount {
		return 0, fmt.Errorf("price %q: more than %s", s, MaxAmount.PerHour())
	}
	return m * times, nil
}

func parseDecimal(s string) (MicroUSD, error) {
	whole, frac, point := strings.Cut(s, ".")
	if (whole == "" && frac == "") || (point && frac == "") || len(frac) > 6 || len(whole) > 10 || !digits(whole) || !digits(frac) {
		return 0, errors.New("not a decimal number with at most six decimals")
	}
	n, err := strconv.ParseUint("0"+whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil || MicroUSD(n) > MaxAmount {
		return 0, errors.New("too large")
	}
	return MicroUSD(n), nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

const msPerHour = uint64(time.Hour / time.Millisecond)

// ErrOverflow means that an amount does not fit 64 bits.
var ErrOverflow = errors.New("amount does not fit")

// Due is P: what the cumulative usage costs at a price per device and hour, ⌊price · device-ms / 3,600,000⌋. It is
// computed in 128 bits and rounded down once, from the cumulative usage, so that rounding does not add up. It returns
// [ErrOverflow] if the result does not fit.
func Due(pricePerDeviceHour MicroUSD, cum gpu.Usage) (MicroUSD, error) {
	hi, lo := bits.Mul64(uint64(pricePerDeviceHour), cum[gpu.BillableDeviceMS])
	if hi >= msPerHour {
		return 0, fmt.Errorf("%w: %s for %d device-ms", ErrOverflow, pricePerDeviceHour.PerHour(), cum[gpu.BillableDeviceMS])
	}
	q, _ := bits.Div64(hi, lo, msPerHour)
	return MicroUSD(q), nil
}

// DueFor is Due for that many devices over a duration, and MaxAmount when it would not fit. It is for limits and
// estimates, never for a bill.
func DueFor(pricePerDeviceHour MicroUSD, devices int, d time.Duration) MicroUSD {
	if devices <= 0 || d <= 0 {
		return 0
	}
	hi, ms := bits.Mul64(uint64(devices), uint64(d.Milliseconds()))
	if hi != 0 {
		return MaxAmount
	}
	m, err := Due(pricePerDeviceHour, gpu.Usage{gpu.BillableDeviceMS: ms})
	if err != nil || m > MaxAmount {
		return MaxAmount
	}
	return m
}
