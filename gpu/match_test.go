package gpu_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/gpu"
)

const mib = 1 << 20

// inventory is a rack of cards whose names are easily confused.
func inventory() map[string]gpu.Device {
	cards := map[string]gpu.Device{}
	for _, c := range []struct {
		host, product string
		mem           uint64
	}{
		{"H1", "NVIDIA A100-SXM4-40GB", 40960 * mib},
		{"H2", "NVIDIA A100-SXM4-80GB", 81920 * mib},
		{"H3", "NVIDIA A100 80GB PCIe", 81920 * mib},
		{"H4", "NVIDIA GeForce RTX 4090", 24564 * mib},
		{"H5", "NVIDIA GeForce RTX 4090 Laptop GPU", 16376 * mib},
		{"H6", "NVIDIA GeForce RTX 4090 D", 24564 * mib},
		{"H7", "NVIDIA RTX A6000", 49140 * mib},
		{"H8", "NVIDIA RTX 6000 Ada Generation", 49140 * mib},
		{"H9", "NVIDIA GeForce RTX 2070 SUPER", 8192 * mib},
		{"H10", "NVIDIA Nonesuch 7000", 8192 * mib},
	} {
		cards[c.host] = gpu.NewDevice(gpu.NVIDIA, "GPU-"+c.host, c.product, c.mem)
	}
	return cards
}

func TestMatchTellsNearNamesApart(t *testing.T) {
	cards := inventory()
	for _, tt := range []struct {
		name, want, hosts string
	}{
		{"short name", "RTX 4090", "H4"},
		{"folded", "rtx4090", "H4"},
		{"hyphens", "rtx-4090", "H4"},
		{"product", "NVIDIA GeForce RTX 4090", "H4"},
		{"brand in front", "GeForce RTX 4090", "H4"},
		{"memory", "A100-80GB", "H2 H3"},
		{"form factor and memory", "A100-SXM4-80GB", "H2"},
		{"family", "A100", "H1 H2 H3"},
		{"typing error", "A100-8", ""},
		{"workstation generation", "RTX 6000 Ada", "H8"},
		{"workstation alias", "A6000", "H7"},
		{"case", "RTX 2070 Super", "H9"},
		{"unknown", "RTX 9999", ""},
		{"laptop", "RTX 4090 Laptop", "H5"},
		{"laptop product", "NVIDIA GeForce RTX 4090 Laptop GPU", "H5"},
		{"export variant", "RTX 4090D", "H6"},
		{"not the plain card", "RTX 2070", ""},
		{"ambiguous generation", "RTX 6000", ""},
		{"prefix", "RTX 40", ""},
		{"suffix", "4090", ""},
		{"vendor alone", "NVIDIA", ""},
		{"empty", "", ""},
		{"only separators", " - ", ""},
		{"product in no table", "NVIDIA Nonesuch 7000", "H10"},
		{"product in no table, folded", "nonesuch-7000", "H10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var hosts []string
			for host, d := range cards { // map order: a different inventory order each time
				if gpu.Match(tt.want, d) {
					hosts = append(hosts, host)
				}
			}
			slices.Sort(hosts)
			if got := strings.Join(hosts, " "); got != tt.hosts {
				t.Errorf("Match(%q) = %q, want %q", tt.want, got, tt.hosts)
			}
		})
	}
}

func TestMatchGoesByProductNotByLabel(t *testing.T) {
	d := gpu.Device{ID: "GPU-1", Name: "NVIDIA GeForce RTX 4090 Laptop GPU", Model: "RTX 4090", MemBytes: 16376 * mib}
	if gpu.Match("RTX 4090", d) {
		t.Error("a laptop labelled RTX 4090 matches RTX 4090")
	}
	d = gpu.Device{ID: "GPU-1", Model: "A100 SXM4 40GB"}
	if !gpu.Match("A100", d) || gpu.Match("A100-80GB", d) {
		t.Error("a device without a product string is not matched by its model")
	}
}

func TestCanonical(t *testing.T) {
	for _, tt := range []struct {
		name, product string
		mem           uint64
		want          string // "" = not in the registry
	}{
		{"desktop", "NVIDIA GeForce RTX 4090", 24564 * mib, "RTX 4090"},
		{"laptop", "NVIDIA GeForce RTX 4090 Laptop GPU", 16376 * mib, "RTX 4090 Laptop"},
		{"older driver without vendor", "A100-SXM4-80GB", 81920 * mib, "A100 SXM4 80GB"},
		{"PCIe word order", "NVIDIA A100 80GB PCIe", 81920 * mib, "A100 PCIe 80GB"},
		{"H100 SXM", "NVIDIA H100 80GB HBM3", 81559 * mib, "H100 SXM"},
		{"AMD", "AMD Instinct MI300X", 196592 * mib, "MI300X"},
		{"memory decides, small", "NVIDIA GeForce RTX 3060", 8192 * mib, "RTX 3060 8GB"},
		{"memory decides, large", "NVIDIA GeForce RTX 3060", 12288 * mib, "RTX 3060 12GB"},
		{"memory unknown, one row", "NVIDIA GeForce RTX 3090", 0, "RTX 3090"},
		{"memory unknown, two rows", "NVIDIA GeForce RTX 3060", 0, ""},
		{"memory of neither row", "NVIDIA GeForce RTX 3060", 6144 * mib, ""},
		{"MIG slice is another thing", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728 * mib, ""},
		{"a family is no product", "A100", 40960 * mib, ""},
		{"unknown", "NVIDIA GB10", 0, ""},
		{"empty", "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, ok := gpu.Canonical(tt.product, tt.mem)
			if m.Name != tt.want || ok != (tt.want != "") {
				t.Errorf("Canonical(%q, %d) = %q, %v, want %q", tt.product, tt.mem, m.Name, ok, tt.want)
			}
		})
	}
}

func TestLookupShowsContradictingMemory(t *testing.T) {
	fits := func(want string, mem uint64) bool {
		return slices.ContainsFunc(gpu.Lookup(want), func(m gpu.Model) bool { return m.MemBytes >= mem })
	}
	if fits("RTX 4090", 48*gpu.GiB) || !fits("A100", 80*gpu.GiB) || fits("A100-40GB", 80*gpu.GiB) {
		t.Error("Lookup does not show whether a model can have a memory size")
	}
}

func TestRegistryIsConsistent(t *testing.T) {
	models := gpu.Models()
	if len(models) < 35 {
		t.Fatalf("%d models, want at least 35", len(models))
	}
	for _, m := range models {
		if rows := gpu.Lookup(m.Name); len(rows) != 1 || rows[0].Name != m.Name {
			t.Errorf("Lookup(%q) = %v, want that row alone", m.Name, rows)
		}
		if !gpu.KnownClass(m.Class()) || m.MemBytes == 0 {
			t.Errorf("%s: class %q, %d bytes", m.Name, m.Class(), m.MemBytes)
		}
		for _, alias := range m.Aliases {
			if rows := gpu.Lookup(alias); len(rows) != 1 {
				t.Errorf("alias %q names %d rows, want 1", alias, len(rows))
			}
		}
		for _, p := range m.Products {
			got, ok := gpu.Canonical(p, m.MemBytes)
			if !ok || got.Name != m.Name {
				t.Errorf("Canonical(%q, %d) = %q, want %q", p, m.MemBytes, got.Name, m.Name)
			}
			d := gpu.NewDevice(m.Vendor, "GPU-x", p, m.MemBytes)
			for _, want := range slices.Concat([]string{m.Name, p}, m.Aliases, m.Families) {
				if !gpu.Match(want, d) {
					t.Errorf("Match(%q) is false for %q", want, p)
				}
			}
			for _, other := range models {
				if other.Name != m.Name && gpu.Match(other.Name, d) {
					t.Errorf("%q matches %q, which is %q", other.Name, p, m.Name)
				}
			}
		}
	}
	models[0].Products[0] = "changed"
	if gpu.Models()[0].Products[0] == "changed" {
		t.Error("Models shares memory with the registry")
	}
}

func TestNewDevice(t *testing.T) {
	for _, tt := range []struct {
		name, product string
		mem           uint64
		want          gpu.Device
	}{
		{"registered", "NVIDIA GeForce RTX 4090", 24564 * mib,
			gpu.Device{ID: "GPU-1", Name: "NVIDIA GeForce RTX 4090", Model: "RTX 4090", Class: "nv-24g", MemBytes: 24564 * mib}},
		{"unregistered keeps its product", "NVIDIA GB10", 0,
			gpu.Device{ID: "GPU-1", Name: "NVIDIA GB10", Model: "NVIDIA GB10", Class: "nv-8g"}},
		{"unknown memory stays unknown", "NVIDIA GeForce RTX 3090", 0,
			gpu.Device{ID: "GPU-1", Name: "NVIDIA GeForce RTX 3090", Model: "RTX 3090", Class: "nv-24g"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := gpu.NewDevice(gpu.NVIDIA, "GPU-1", tt.product, tt.mem)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("NewDevice (-want +got):\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("Validate() = %v", err)
			}
		})
	}
}

func FuzzMatch(f *testing.F) {
	for host, d := range inventory() {
		f.Add(d.Name, host, d.MemBytes)
	}
	f.Add("A100-8", "NVIDIA A100-SXM4-80GB", uint64(0))
	f.Add("nvidia amd tesla", "\xff-\u00a0", uint64(1))
	f.Fuzz(func(t *testing.T, want, product string, mem uint64) {
		d := gpu.NewDevice(gpu.NVIDIA, "GPU-1", product, mem)
		self := strings.TrimFunc(product, func(r rune) bool { return r == '-' || r == '_' || r == ' ' }) != ""
		if printable := d.Validate() == nil; printable && self && !gpu.Match(product, d) {
			t.Errorf("%q does not match itself", product)
		}
		folded := strings.ReplaceAll(strings.ToUpper(want), " ", "-")
		if isASCII(want) && gpu.Match(want, d) != gpu.Match(folded, d) {
			t.Errorf("Match(%q) differs from Match(%q)", want, folded)
		}
		if m, ok := gpu.Canonical(product, mem); ok && !gpu.Match(m.Name, d) {
			t.Errorf("%q does not match its own model %q", product, m.Name)
		}
	})
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}
