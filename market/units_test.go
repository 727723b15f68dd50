package market_test

import (
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/market"
)

func TestParseBytes(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want uint64
		fail string // part of the message, "" = accepted
	}{
		{"16GiB", 17_179_869_184, ""},
		{"16Gi", 17_179_869_184, ""},
		{"16GB", 16_000_000_000, ""},
		{"16G", 16_000_000_000, ""}, // one rule: no i, powers of ten
		{"16 GB", 16_000_000_000, ""},
		{"1.5Gi", 1_610_612_736, ""},
		{"1.5GiB", 1_610_612_736, ""},
		{" 24GB ", 24_000_000_000, ""},
		{"24GiB", 25_769_803_776, ""},
		{"512MiB", 512 << 20, ""},
		{"1KiB", 1024, ""}, {"1kB", 1000, ""}, {"1KB", 1000, ""}, {"1k", 1000, ""}, {"1K", 1000, ""}, {"1Ki", 1024, ""},
		{"2TiB", 2 << 40, ""}, {"2TB", 2e12, ""}, {"2M", 2e6, ""}, {"2Mi", 2 << 20, ""},
		{"7B", 7, ""},
		{"1024TiB", market.MaxBytes, ""},
		{"0.000001MB", 1, ""},
		{"16384", 0, "has no unit"},
		{"400m", 0, "want a number and a unit"}, // not milli-bytes
		{"16 gib", 0, "want a number and a unit"},
		{"16gb", 0, "want a number and a unit"},
		{"-1G", 0, "not a positive decimal"},
		{"+1G", 0, "not a positive decimal"},
		{"99999999T", 0, "more than 1024TiB"},
		{"1025TiB", 0, "more than 1024TiB"},
		{"9999999999999999TiB", 0, "more than 1024TiB"},
		{"99999999999999999999G", 0, "not a positive decimal"},
		{"1.5B", 0, "not a whole number of bytes"},
		{"0.3KiB", 0, "not a whole number of bytes"},
		{"1.0000001GB", 0, "not a positive decimal"},
		{"1,5GB", 0, "not a positive decimal"},
		{"1e3GB", 0, "not a positive decimal"},
		{"0x10GB", 0, "not a positive decimal"},
		{"1.GB", 0, "not a positive decimal"},
		{".5GB", 0, "not a positive decimal"},
		{"GB", 0, "not a positive decimal"},
		{"GiBGiB", 0, "not a positive decimal"},
		{"", 0, "want a number and a unit"},
		{"NaN", 0, "want a number and a unit"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := market.ParseBytes(tt.in)
			if got != tt.want || (err == nil) != (tt.fail == "") {
				t.Fatalf("ParseBytes(%q) = %d, %v, want %d, %q", tt.in, got, err, tt.want, tt.fail)
			}
			if err != nil && !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("ParseBytes(%q) = %v, want %q in it", tt.in, err, tt.fail)
			}
		})
	}
}

func TestFormatBytes(t *testing.T) {
	for _, tt := range []struct {
		n    uint64
		want string
	}{
		{0, "0B"}, {1023, "1023B"}, {1024, "1KiB"}, {1536, "1.5KiB"}, {24 << 30, "24GiB"}, {24564 << 20, "24GiB"},
		{22731 << 20, "22.2GiB"}, {16_000_000_000, "14.9GiB"}, {1 << 40, "1TiB"}, {1<<64 - 1, "16777216TiB"},
	} {
		if got := market.FormatBytes(tt.n); got != tt.want {
			t.Errorf("FormatBytes(%d) = %q, want %q", tt.n, got, tt.want)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"16GiB", "1.5Gi", "400m", "99999999T", "7B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := market.ParseBytes(s)
		if n > market.MaxBytes || err != nil && n != 0 {
			t.Errorf("ParseBytes(%q) = %d, %v", s, n, err)
		}
	})
}
