package match_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
	"github.com/lacuna-network/lacuna/market/match"
)

// card is a real NVIDIA card as its driver reports it.
func card(id, product string, mib uint64) gpu.Device {
	return gpu.NewDevice(gpu.NVIDIA, id, product, mib<<20)
}

// seller has two RTX 4090, one RTX 3060 and two CPU slots, all free, in Berlin.
func seller() match.Seller {
	devices := []gpu.Device{
		card("GPU-b", "NVIDIA GeForce RTX 4090", 24564),
		card("GPU-a", "NVIDIA GeForce RTX 4090", 24564),
		card("GPU-c", "NVIDIA GeForce RTX 3060", 12288),
		{ID: "CPU-0", Name: "CPU slot", Model: "CPU slot", Class: gpu.ClassCPU, MemBytes: 4 << 30},
		{ID: "CPU-1", Name: "CPU slot", Model: "CPU slot", Class: gpu.ClassCPU, MemBytes: 4 << 30},
	}
	s := match.Seller{Devices: devices, Free: map[string]bool{}, Place: market.Place{Continent: "eu", Country: "de", City: "berlin"},
		Workloads: []market.Workload{market.WASM}, Tiers: []market.Tier{market.Silver, market.Bronze},
		HostMemBytes: 4 << 30, MaxDuration: 2 * time.Hour, Notice: time.Minute}
	for _, d := range devices {
		s.Free[d.ID] = true
	}
	return s
}

// bid wants one GPU of any kind for an hour.
func bid() market.Bid {
	b := markettest.Bid(markettest.Signer(1).Key())
	b.Simulated = false
	return b
}

func TestFit(t *testing.T) {
	one := func(r market.Reason, wanted, available string, distance uint64) []market.Failure {
		return []market.Failure{{Reason: r, Wanted: wanted, Available: available, Distance: distance}}
	}
	for _, tt := range []struct {
		name  string
		bid   func(*market.Bid)
		sell  func(*match.Seller)
		ids   string
		fails []market.Failure
	}{
		{"smallest that fits", nil, nil, "GPU-c", nil},
		{"by id among equals", func(b *market.Bid) { b.MemBytes = 16 * gpu.GiB }, nil, "GPU-a", nil},
		{"two", func(b *market.Bid) { b.Count = 2 }, nil, "GPU-c GPU-a", nil},
		{"a 24 GB card does for 24 GiB", func(b *market.Bid) { b.MemBytes, b.Count = 24*gpu.GiB, 2 }, nil, "GPU-a GPU-b", nil},
		{"by model", func(b *market.Bid) { b.Models = []string{"A100", "rtx 4090"} }, nil, "GPU-a", nil},
		{"by vendor", func(b *market.Bid) { b.Class = "nv" }, nil, "GPU-c", nil},
		{"CPU slots", func(b *market.Bid) { b.Class, b.Count = "cpu", 2 }, nil, "CPU-0 CPU-1", nil},
		{"what is free", nil, func(s *match.Seller) { s.Free["GPU-c"] = false }, "GPU-a", nil},
		{"within a country", func(b *market.Bid) { b.Require = []market.Place{{Continent: "na"}, {Continent: "eu", Country: "de"}} }, nil, "GPU-c", nil},
		{"unknown host memory", func(b *market.Bid) { b.HostMemBytes = 1 << 40 }, func(s *match.Seller) { s.HostMemBytes = 0 }, "GPU-c", nil},
		{"no longest stay, no notice", func(b *market.Bid) { b.DurationMS, b.GraceMS = 1_000_000_000, 3_600_000 }, func(s *match.Seller) { s.MaxDuration, s.Notice = 0, 0 }, "GPU-c", nil},

		{"too little memory", func(b *market.Bid) { b.MemBytes = 80 * gpu.GiB }, nil, "", one(market.VRAMTooSmall, "80GiB", "24GiB", 80*gpu.GiB-24564<<20)},
		{"too little memory in the model", func(b *market.Bid) { b.MemBytes, b.Models = 24*gpu.GiB, []string{"RTX 3060"} }, nil, "", one(market.VRAMTooSmall, "24GiB", "12GiB", 12*gpu.GiB)},
		{"unknown memory", func(b *market.Bid) { b.MemBytes = 8 * gpu.GiB }, func(s *match.Seller) {
			s.Devices = []gpu.Device{card("GPU-x", "NVIDIA Odd Card", 0)}
		}, "", one(market.VRAMTooSmall, "8GiB", "unknown", 8*gpu.GiB)},
		{"model", func(b *market.Bid) { b.Models = []string{"H100", "RTX 4090 Laptop"} }, nil, "", one(market.WrongModel, "H100, RTX 4090 Laptop", "RTX 3060 12GB, RTX 4090", 0)},
		{"too few", func(b *market.Bid) { b.Count = 4 }, nil, "", one(market.TooFewDevices, "4 of class any", "3", 1)},
		{"too few of the vendor", func(b *market.Bid) { b.Class = "amd" }, nil, "", one(market.TooFewDevices, "1 of class amd", "0", 1)},
		{"a part of a vendor's name", func(b *market.Bid) { b.Class = "n" }, nil, "", one(market.TooFewDevices, "1 of class n", "0", 1)},
		{"no vendor", func(b *market.Bid) { b.Class = "" }, nil, "", one(market.TooFewDevices, "1 of class ", "0", 1)},
		{"a CPU slot is no GPU", nil, func(s *match.Seller) { s.Devices = s.Devices[3:] }, "", one(market.TooFewDevices, "1 of class any", "0", 1)},
		{"a GPU is no CPU slot", func(b *market.Bid) { b.Class = "cpu" }, func(s *match.Seller) { s.Devices = s.Devices[:3] }, "", one(market.TooFewDevices, "1 of class cpu", "0", 1)},
		{"place", func(b *market.Bid) { b.Require = []market.Place{{Continent: "na"}} }, nil, "", one(market.WrongPlace, "na", "eu/de/berlin", 0)},
		{"unknown place", func(b *market.Bid) { b.Require = []market.Place{{Continent: "eu"}} }, func(s *match.Seller) { s.Place = market.Place{} }, "", one(market.WrongPlace, "eu", "unknown", 0)},
		{"tier", func(b *market.Bid) { b.Tier = market.Gold }, nil, "", one(market.TierNotSold, "gold", "silver, bronze", 0)},
		{"workload", nil, func(s *match.Seller) { s.Workloads = nil }, "", one(market.WorkloadNotAllowed, "wasm", "none", 0)},
		{"all leased", func(b *market.Bid) { b.Models = []string{"RTX 4090"} }, func(s *match.Seller) { s.Free = nil }, "", one(market.Busy, "1 free", "0 free of 2", 1)},
		{"some leased", func(b *market.Bid) { b.Models, b.Count = []string{"RTX 4090"}, 2 }, func(s *match.Seller) { s.Free["GPU-a"] = false }, "", one(market.Busy, "2 free", "1 free of 2", 1)},
		{"host memory", func(b *market.Bid) { b.HostMemBytes = 6 << 30 }, nil, "", one(market.HostMemory, "6GiB", "4GiB", 2<<30)},
		{"duration", func(b *market.Bid) { b.DurationMS = 3 * 3_600_000 }, nil, "", one(market.TooLong, "3h0m0s", "2h0m0s", 3_600_000)},
		{"notice", func(b *market.Bid) { b.GraceMS = 90_000 }, nil, "", one(market.NoticeTooShort, "1m30s", "1m0s", 30_000)},
		{"stopping", nil, func(s *match.Seller) { s.Stopping = true }, "", one(market.Stopping, "a new lease", "none, the provider is stopping", 0)},
		{"simulated ones only", nil, func(s *match.Seller) {
			for i := range s.Devices {
				s.Devices[i].Simulated = true
			}
		}, "", one(market.SimulatedOnly, "real devices", "simulated ones", 0)},
		{"simulated ones will do", func(b *market.Bid) { b.Simulated = true }, func(s *match.Seller) { s.Devices[2].Simulated = true }, "GPU-c", nil},
		{"several at once", func(b *market.Bid) { b.Tier, b.DurationMS, b.Models = market.Gold, 3*3_600_000, []string{"H100"} }, nil, "", []market.Failure{
			{Reason: market.TierNotSold, Wanted: "gold", Available: "silver, bronze"},
			{Reason: market.TooLong, Wanted: "3h0m0s", Available: "2h0m0s", Distance: 3_600_000},
			{Reason: market.WrongModel, Wanted: "H100", Available: "RTX 3060 12GB, RTX 4090"},
		}},
		{"a long text is cut", func(b *market.Bid) { b.Models = []string{strings.Repeat("x", 64), "H100"} }, nil, "", one(market.WrongModel, strings.Repeat("x", 61)+"...", "RTX 3060 12GB, RTX 4090", 0)},
		{"no character is cut in two", func(b *market.Bid) { b.Models = []string{strings.Repeat("é", 32), "H100"} }, nil, "", one(market.WrongModel, strings.Repeat("é", 30)+"...", "RTX 3060 12GB, RTX 4090", 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, s := bid(), seller()
			if tt.bid != nil {
				tt.bid(&b)
			}
			if tt.sell != nil {
				tt.sell(&s)
			}
			devices, fails := match.Fit(b, s)
			var ids []string
			for _, d := range devices {
				ids = append(ids, d.ID)
			}
			if got := strings.Join(ids, " "); got != tt.ids {
				t.Errorf("devices %q, want %q", got, tt.ids)
			}
			if diff := cmp.Diff(tt.fails, fails); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
			if len(fails) == 0 {
				return
			}
			d := markettest.Decline(markettest.Signer(2).Key(), attest.Sum([]byte("bid")))
			d.Failures = fails
			if err := d.Validate(); err != nil {
				t.Errorf("the failures fit no decline: %v", err)
			}
		})
	}
}

// The answer depends on the set of devices, not on the order in which drivers list them, and the input stays as it is.
func TestFitDoesNotDependOnOrder(t *testing.T) {
	b := bid()
	b.Count = 2
	want, _ := match.Fit(b, seller())
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		s := seller()
		rng.Shuffle(len(s.Devices), func(i, j int) { s.Devices[i], s.Devices[j] = s.Devices[j], s.Devices[i] })
		before := append([]gpu.Device{}, s.Devices...)
		got, fails := match.Fit(b, s)
		if diff := cmp.Diff(want, got); diff != "" || fails != nil {
			t.Fatalf("order %v (-want +got):\n%s%v", before, diff, fails)
		}
		if diff := cmp.Diff(before, s.Devices); diff != "" {
			t.Fatalf("the seller's list was changed:\n%s", diff)
		}
	}
}

func TestFitGivesOneOfTheTwo(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 5000 {
		b, s := bid(), seller()
		b.Count = 1 + rng.Uint64N(4)
		b.MemBytes = rng.Uint64N(30) << 30
		b.Class = []string{"any", "nv", "cpu", "amd"}[rng.IntN(4)]
		for id := range s.Free {
			s.Free[id] = rng.IntN(2) == 0
		}
		devices, fails := match.Fit(b, s)
		if (len(devices) == 0) == (len(fails) == 0) {
			t.Fatalf("%d devices and %d failures for %+v", len(devices), len(fails), b)
		}
		for _, d := range devices {
			if !s.Free[d.ID] || gpu.NominalMemBytes(d.MemBytes) < b.MemBytes || len(devices) != int(b.Count) {
				t.Fatalf("%d devices, among them %+v, for %+v", len(devices), d, b)
			}
		}
	}
}

// Offers to several bids name different ones of equal devices, and a bid gets the same ones again.
func TestSpread(t *testing.T) {
	s := match.Seller{Free: map[string]bool{}, Place: seller().Place, Workloads: seller().Workloads, Tiers: seller().Tiers}
	for _, id := range []string{"a", "b", "c", "d"} {
		s.Devices = append(s.Devices, card(id, "NVIDIA GeForce RTX 4090", 24564))
		s.Free[id] = true
	}
	small := card("small", "NVIDIA GeForce RTX 3060", 12288)
	s.Devices = append(s.Devices, small)
	counts := map[string]int{}
	for i := range 400 {
		s.Spread = attest.Sum([]byte{byte(i), byte(i >> 8)})
		s.Free["small"] = i%4 == 0
		got, fails := match.Fit(bid(), s)
		again, _ := match.Fit(bid(), s)
		if fails != nil || !cmp.Equal(got, again) {
			t.Fatalf("bid %d: %v, then %v; %v", i, got, again, fails)
		}
		if s.Free["small"] && got[0].ID != "small" {
			t.Fatalf("bid %d got %s, the small one does", i, got[0].ID)
		}
		counts[got[0].ID]++
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if n := counts[id]; n < 40 || n > 120 {
			t.Errorf("%s was named %d times of 300, want about 75: %v", id, n, counts)
		}
	}
}
