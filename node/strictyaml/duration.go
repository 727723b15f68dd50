package strictyaml

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration reads a span of time with its unit: "30s", "2h", "1h30m", "7d", "1d12h", "250ms". A day is 24 hours. A bare
// number, a sign and zero are refused.
func Duration(s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	if t == "" || t[0] == '-' || t[0] == '+' {
		return 0, fmt.Errorf("duration %q: want for example 30s, 5m, 2h or 7d", s)
	}
	days, rest, ok := strings.Cut(t, "d")
	var d time.Duration
	if ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("duration %q: want for example 30s, 5m, 2h or 7d", s)
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		rest = t
	}
	if rest != "" {
		if strings.Trim(rest, "0123456789.") == "" {
			return 0, fmt.Errorf("duration %q has no unit; write for example %ss, %sm or %sh", s, t, t, t)
		}
		part, err := time.ParseDuration(rest)
		if err != nil || part < 0 {
			return 0, fmt.Errorf("duration %q: want for example 30s, 5m, 2h or 7d", s)
		}
		d += part
	}
	if d <= 0 {
		return 0, fmt.Errorf("duration %q: want more than 0", s)
	}
	return d, nil
}

// FormatDuration returns d as [Duration] reads it, without the parts that are 0: "2h", "1h30m", "7d".
func FormatDuration(d time.Duration) string {
	if d > 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
