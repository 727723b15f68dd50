package market_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/market"
)

func TestSpecDefaults(t *testing.T) {
	got := market.Spec{Module: "job.wasm"}.WithDefaults()
	want := market.Spec{Module: "job.wasm", CPUs: 1, MemBytes: 512 << 20, DiskBytes: 1 << 30, LogBytes: 16 << 20, Tier: market.Silver,
		MaxPrice: market.USD, Budget: market.USD, Duration: time.Hour, StartWithin: 30 * time.Second, Survive: time.Minute,
		Interval: 10 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	if again := got.WithDefaults(); !cmp.Equal(got, again) {
		t.Error("defaults of defaults differ")
	}
	own := market.Spec{Module: "job.wasm", GPUs: 2, Checkpoint: "/ckpt", Budget: 5, Interval: time.Second}.WithDefaults()
	if own.CPUs != 0 || own.Every != 5*time.Minute || own.Grace != 30*time.Second || own.Budget != 5 || own.Interval != time.Second || own.Count() != 2 {
		t.Errorf("defaults of a job with checkpoints: %+v", own)
	}
}

func TestSpecValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*market.Spec)
		want   string // the field that the message begins with, "" = valid
	}{
		{"good", func(*market.Spec) {}, ""},
		{"no module", func(s *market.Spec) { s.Module = "" }, "wasm"},
		{"price of 0", func(s *market.Spec) { s.MaxPrice = 0 }, "price"},
		{"budget of 0", func(s *market.Spec) { s.Budget = 0 }, "budget"},
		{"budget out of range", func(s *market.Spec) { s.Budget = market.MaxAmount + 1 }, "budget"},
		{"negative GPUs", func(s *market.Spec) { s.GPUs = -1 }, "gpus"},
		{"too many GPUs", func(s *market.Spec) { s.GPUs = 65 }, "gpus"},
		{"no CPUs", func(s *market.Spec) { s.CPUs = 0 }, "cpus"},
		{"a model without GPUs", func(s *market.Spec) { s.Models = []string{"H100"} }, "gpu, vram"},
		{"no duration", func(s *market.Spec) { s.Duration = 0 }, "duration"},
		{"negative duration", func(s *market.Spec) { s.Duration = -time.Hour }, "duration"},
		{"survives less than an interval", func(s *market.Spec) { s.Survive = time.Second }, "survive"},
		{"interval too short", func(s *market.Spec) { s.Interval = 199 * time.Millisecond }, "interval"},
		{"memory too small", func(s *market.Spec) { s.MemBytes = 1 }, "memory"},
		{"memory too large", func(s *market.Spec) { s.MemBytes = 5 << 30 }, "memory"},
		{"no tier", func(s *market.Spec) { s.Tier = 0 }, "tier"},
		{"theta", func(s *market.Spec) { s.Theta = 1001 }, "theta"},
		{"checkpoints too often", func(s *market.Spec) { s.Checkpoint, s.Every = "/ckpt", time.Millisecond }, "checkpoint.every"},
		{"grace", func(s *market.Spec) { s.Grace = 2 * time.Hour }, "checkpoint.grace"},
		{"input to a relative path", func(s *market.Spec) { s.Inputs = []market.Transfer{{From: "a", To: "a"}} }, "inputs"},
		{"output without a target", func(s *market.Spec) { s.Outputs = []market.Transfer{{From: "/out"}} }, "outputs"},
		{"a path taken twice", func(s *market.Spec) {
			s.Inputs, s.Checkpoint, s.Every = []market.Transfer{{From: "a", To: "/a"}}, "/a", time.Second
		}, `checkpoint.path: "/a" is taken by inputs`},
		{"a folder in another", func(s *market.Spec) {
			s.Inputs, s.Outputs = []market.Transfer{{From: "a", To: "/out/a"}}, []market.Transfer{{From: "/out", To: "o"}}
		}, `inputs, outputs, checkpoint: path "/out/a" lies in "/out"`},
		{"output of the scratch folder", func(s *market.Spec) { s.Outputs = []market.Transfer{{From: "/tmp", To: "o"}} }, "inputs, outputs, checkpoint"},
		{"name of two lines", func(s *market.Spec) { s.Name = "a\nb" }, "name"},
		{"name that commands a terminal", func(s *market.Spec) { s.Name = "a\x1b[2J" }, "name"},
		{"model without a name", func(s *market.Spec) { s.GPUs, s.Models = 1, []string{""} }, "gpu"},
		{"anywhere as a place", func(s *market.Spec) { s.Require = []market.Place{{}} }, "place.require"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := market.Spec{Module: "job.wasm"}.WithDefaults()
			tt.change(&s)
			err := s.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
	s := market.Spec{Module: ""}.WithDefaults()
	s.MaxPrice, s.Budget = 0, 0
	if got := strings.Count(fmt.Sprint(s.Validate()), "\n"); got != 2 {
		t.Errorf("three faults at once: %v", s.Validate())
	}
}

func TestWorstCase(t *testing.T) {
	s := market.Spec{GPUs: 2, Duration: 30 * time.Minute, Budget: 500_000}
	for price, want := range map[market.MicroUSD]market.MicroUSD{0: 0, 360_000: 360_000, 500_000: 500_000, 600_000: 500_000} {
		if got := s.WorstCase(price); got != want {
			t.Errorf("WorstCase(%s) = %s, want %s", price.PerHour(), got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, tier := range []market.Tier{market.Gold, market.Silver, market.Bronze} {
		var got market.Tier
		b, err := tier.MarshalText()
		if err != nil || got.UnmarshalText(b) != nil || got != tier {
			t.Errorf("tier %d is %q and read as %d, %v", tier, b, got, err)
		}
	}
	for _, s := range []string{"", "Gold", "platinum", "tier(0)"} {
		if tier, err := market.ParseTier(s); err == nil || tier != 0 {
			t.Errorf("ParseTier(%q) = %d, %v", s, tier, err)
		}
	}
	seen := map[string]bool{}
	for r := market.VRAMTooSmall; r <= market.HostDisk; r++ {
		if name := r.String(); seen[name] || strings.Contains(name, "(") {
			t.Errorf("reason %d is %q", uint16(r), name)
		}
		seen[r.String()] = true
	}
	for c := market.CodeDone; c <= market.CodeUnpaid; c++ {
		if name := c.String(); seen[name] || strings.Contains(name, "(") {
			t.Errorf("code %d is %q", uint8(c), name)
		}
		seen[c.String()] = true
		if want := c == market.CodeProviderAbort || c == market.CodeLost; c.ProviderFault() != want {
			t.Errorf("%s counts against the provider: %v", c, c.ProviderFault())
		}
	}
	for _, s := range []string{market.Reason(0).String(), market.Reason(999).String(), market.Code(0).String(), market.Code(99).String()} {
		if !strings.Contains(s, "(") {
			t.Errorf("an unknown number is %q", s)
		}
	}
	f := market.Failure{Reason: market.VRAMTooSmall, Wanted: "24GiB", Available: "12GiB"}
	if got := f.String(); got != "vram too small: wanted 24GiB, available 12GiB" {
		t.Errorf("a failure reads %q", got)
	}
	if market.IsTestNetwork("main") || !market.IsTestNetwork("testnet-1") || market.IsTestNetwork("contest") {
		t.Error("test networks are those whose name begins with test")
	}
}
