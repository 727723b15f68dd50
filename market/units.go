package market

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxBytes bounds every size that is typed in: one pebibyte.
const MaxBytes = 1 << 50

// sizeUnits are the units of a size. GiB and GB differ, as everywhere.
var sizeUnits = []struct {
	name  string
	bytes uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
	{"B", 1},
}

// ParseBytes parses a size with its unit: "16GiB", "16 GB", "1.5Gi". 16G is 16 GB, that is 16·10⁹ bytes; 16GiB and
// 16Gi are 16·2³⁰. A bare number is refused, and so is everything that is not a whole number of bytes.
func ParseBytes(s string) (uint64, error) {
	t := strings.TrimSpace(s)
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(t, u.name)
		if !ok {
			continue
		}
		n, err := scale(strings.TrimSpace(num), u.bytes)
		if err != nil {
			return 0, fmt.Errorf("size %q: %w", s, err)
		}
		return n, nil
	}
	if t != "" && digits(t) {
		return 0, fmt.Errorf("size %q has no unit; write for example %sMiB or %sGB", s, t, t)
	}
	return 0, fmt.Errorf("size %q: want a number and a unit out of KiB MiB GiB TiB kB MB GB TB", s)
}

func scale(num string, unit uint64) (uint64, error) {
	whole, frac, point := strings.Cut(num, ".")
	if whole == "" || !digits(whole) || !digits(frac) || (point && frac == "") || len(whole) > 16 || len(frac) > 6 {
		return 0, fmt.Errorf("%q is not a positive decimal number", num)
	}
	n, err := strconv.ParseUint(whole+frac, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is too large", num)
	}
	div := uint64(1)
	for range frac {
		div *= 10
	}
	hi, lo := bits.Mul64(n, unit)
	if hi >= div {
		return 0, fmt.Errorf("more than %s", FormatBytes(MaxBytes))
	}
	q, rem := bits.Div64(hi, lo, div)
	if rem != 0 {
		return 0, fmt.Errorf("not a whole number of bytes")
	}
	if q > MaxBytes {
		return 0, fmt.Errorf("more than %s", FormatBytes(MaxBytes))
	}
	return q, nil
}

// FormatBytes returns a size for people, "24GiB" or "23.5GiB"; the unit is always binary.
func FormatBytes(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes uint64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64), ".0") + u.name
		}
	}
	return fmt.Sprintf("%dB", n)
}
