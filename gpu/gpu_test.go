package gpu_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/gpu"
)

func TestClassOf(t *testing.T) {
	for _, tt := range []struct {
		name   string
		vendor gpu.Vendor
		mem    uint64
		want   string
	}{
		{"RTX 4090", gpu.NVIDIA, 24564 * mib, "nv-24g"},
		{"A10G with ECC", gpu.NVIDIA, 22731 * mib, "nv-24g"},
		{"T4", gpu.NVIDIA, 15360 * mib, "nv-16g"},
		{"2080 Ti is no 12 GB card", gpu.NVIDIA, 11264 * mib, "nv-8g"},
		{"3080", gpu.NVIDIA, 10240 * mib, "nv-8g"},
		{"A100 40", gpu.NVIDIA, 40960 * mib, "nv-32g"},
		{"H100", gpu.NVIDIA, 81559 * mib, "nv-80g"},
		{"H200", gpu.NVIDIA, 143771 * mib, "nv-141g"},
		{"B200", gpu.NVIDIA, 183359 * mib, "nv-192g"},
		{"MI300X", gpu.AMD, 196592 * mib, "amd-192g"},
		{"decimal gigabytes", gpu.NVIDIA, 24e9, "nv-24g"},
		{"small", gpu.NVIDIA, 4040 * mib, "nv-8g"},
		{"unknown", gpu.NVIDIA, 0, "nv-8g"},
		{"huge", gpu.NVIDIA, math.MaxUint64, "nv-192g"},
		{"cpu", gpu.CPU, 2 * gpu.GiB, "cpu"},
		{"unset vendor", "", 24 * gpu.GiB, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := gpu.ClassOf(tt.vendor, tt.mem); got != tt.want {
				t.Errorf("ClassOf(%q, %d) = %q, want %q", tt.vendor, tt.mem, got, tt.want)
			}
		})
	}
}

func TestClassesFromReachesEveryFittingDevice(t *testing.T) {
	for want := uint64(0); want <= 200*gpu.GiB; want += 700 * mib {
		classes := gpu.ClassesFrom(gpu.NVIDIA, want)
		for _, m := range gpu.Models() {
			if m.Vendor == gpu.NVIDIA && m.MemBytes >= want && !slices.Contains(classes, m.Class()) {
				t.Fatalf("a bid for %d bytes misses %s in %s", want, m.Name, m.Class())
			}
		}
	}
	want := []string{"nv-80g", "nv-96g", "nv-141g", "nv-192g"}
	if diff := cmp.Diff(want, gpu.ClassesFrom(gpu.NVIDIA, 64*gpu.GiB)[1:]); diff != "" {
		t.Errorf("classes above 64 GiB's own (-want +got):\n%s", diff)
	}
	if got := gpu.ClassesFrom("", 0); got != nil {
		t.Errorf("ClassesFrom(unset) = %q, want nil", got)
	}
}

func TestMemBytesForClass(t *testing.T) {
	for _, class := range gpu.Classes() {
		mem, ok := gpu.MemBytesForClass(class)
		vendor, _, _ := strings.Cut(class, "-")
		if !ok || gpu.ClassOf(gpu.Vendor(vendor), mem) != class {
			t.Errorf("MemBytesForClass(%q) = %d, %v", class, mem, ok)
		}
	}
	for _, class := range []string{"", "nv", "nv-", "nv-7g", "nv-024g", "cpu-8g", "NV-24g", "nv-24g/eu"} {
		if gpu.KnownClass(class) {
			t.Errorf("KnownClass(%q) = true", class)
		}
	}
}

func TestNominalMemBytes(t *testing.T) {
	for _, tt := range []struct {
		name      string
		mem, want uint64
	}{
		{"short of the box", 24564 * mib, 24 * gpu.GiB},
		{"exact", 24 * gpu.GiB, 24 * gpu.GiB},
		{"between classes", 40960 * mib, 40960 * mib},
		{"another card", 11264 * mib, 11264 * mib},
		{"unknown", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := gpu.NominalMemBytes(tt.mem); got != tt.want {
				t.Errorf("NominalMemBytes(%d) = %d, want %d", tt.mem, got, tt.want)
			}
		})
	}
}

func TestCPUSlots(t *testing.T) {
	got := gpu.CPUSlots("h7", 4, 16*gpu.GiB, 2)
	want := []gpu.Device{
		{ID: "CPU-h7-0", Name: "CPU", Model: "CPU", Class: "cpu", MemBytes: 4 * gpu.GiB},
		{ID: "CPU-h7-1", Name: "CPU", Model: "CPU", Class: "cpu", MemBytes: 4 * gpu.GiB},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CPUSlots (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		name              string
		host              string
		cores, sell, want int
	}{
		{"more than there are", "h", 2, 9, 2},
		{"none", "h", 2, 0, 0},
		{"negative", "h", 2, -1, 0},
		{"no cores", "h", 0, 1, 0},
		{"no host", "", 2, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(gpu.CPUSlots(tt.host, tt.cores, gpu.GiB, tt.sell)); got != tt.want {
				t.Errorf("%d slots, want %d", got, tt.want)
			}
		})
	}
}

func TestDeviceValidate(t *testing.T) {
	good := gpu.Device{ID: "GPU-aaaa", Name: "NVIDIA GeForce RTX 3090", Model: "RTX 3090", Class: "nv-24g"}
	for _, tt := range []struct {
		name   string
		change func(*gpu.Device)
		ok     bool
	}{
		{"good", func(*gpu.Device) {}, true},
		{"an index for an id", func(d *gpu.Device) { d.ID = "1" }, false},
		{"no id", func(d *gpu.Device) { d.ID = "" }, false},
		{"no name", func(d *gpu.Device) { d.Name = "" }, false},
		{"control character", func(d *gpu.Device) { d.Name = "RTX\x1b[2J" }, false},
		{"not UTF-8", func(d *gpu.Device) { d.Model = "\xff" }, false},
		{"overlong", func(d *gpu.Device) { d.ID = strings.Repeat("x", 129) }, false},
		{"unknown class", func(d *gpu.Device) { d.Class = "nv-25g" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := good
			tt.change(&d)
			err := d.Validate()
			if (err == nil) != tt.ok || (err != nil && !errors.Is(err, gpu.ErrBadDevice)) {
				t.Errorf("Validate() = %v, want ok = %v", err, tt.ok)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	a := gpu.Usage{gpu.BillableDeviceMS: 5, gpu.EnergyMJ: math.MaxUint64}
	b := gpu.Usage{gpu.BillableDeviceMS: 7, gpu.EnergyMJ: 1, gpu.TokensOut: 0}
	want := gpu.Usage{gpu.BillableDeviceMS: 12, gpu.EnergyMJ: math.MaxUint64, gpu.TokensOut: 0}
	if got := a.Add(b); !got.Equal(want) {
		t.Errorf("Add = %v, want %v", got, want)
	}
	if got := a.Clone(); !got.Equal(a) || got.Equal(b) {
		t.Errorf("Clone = %v, want %v", got, a)
	}
	for _, tt := range []struct {
		name      string
		now, prev gpu.Usage
		want      bool
	}{
		{"from nothing", gpu.Usage{gpu.ActiveMS: 1}, nil, true},
		{"nothing from nothing", nil, nil, true},
		{"same", a, a, true},
		{"falls", gpu.Usage{gpu.ActiveMS: 1}, gpu.Usage{gpu.ActiveMS: 2}, false},
		{"vanishes", gpu.Usage{}, gpu.Usage{gpu.ActiveMS: 0}, false},
		{"appears", gpu.Usage{gpu.ActiveMS: 2, gpu.BytesIn: 0}, gpu.Usage{gpu.ActiveMS: 2}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.now.AtLeast(tt.prev); got != tt.want {
				t.Errorf("%v.AtLeast(%v) = %v, want %v", tt.now, tt.prev, got, tt.want)
			}
		})
	}
	if (gpu.Usage{gpu.ActiveMS: 0}).Equal(gpu.Usage{}) {
		t.Error("a counter of 0 equals an absent one")
	}
}

func TestValidateRefusesUnknownKeys(t *testing.T) {
	for _, u := range gpu.Units() {
		if err := (gpu.Usage{u: 1}).Validate(); err != nil || strings.Contains(u.String(), "(") {
			t.Errorf("%v: %v", u, err)
		}
	}
	for f := gpu.UtilAvgBP; f <= gpu.PCIeTxMB; f++ {
		if err := (gpu.Telemetry{f: 1}).Validate(); err != nil || strings.Contains(f.String(), "(") {
			t.Errorf("%v: %v", f, err)
		}
	}
	for _, err := range []error{
		gpu.Usage{0: 1}.Validate(), gpu.Usage{9: 1}.Validate(),
		gpu.Telemetry{0: 1}.Validate(), gpu.Telemetry{14: 1}.Validate(),
	} {
		if !errors.Is(err, gpu.ErrUnknownKey) {
			t.Errorf("Validate() = %v, want ErrUnknownKey", err)
		}
	}
	if err := (gpu.Telemetry{gpu.UtilP10BP: 10_001}).Validate(); err == nil {
		t.Error("a utilisation above 100 % passes")
	}
}

func FuzzUsageAdd(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{3, 2, 1})
	f.Add([]byte{8, 255}, []byte{8, 255})
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, b := usageFrom(x), usageFrom(y)
		beforeA := maps.Clone(a)
		sum := a.Add(b)
		if !sum.Equal(b.Add(a)) {
			t.Errorf("%v + %v depends on the order", a, b)
		}
		if !sum.AtLeast(a) || !sum.AtLeast(b) {
			t.Errorf("%v + %v = %v lost something", a, b, sum)
		}
		if !a.Equal(beforeA) {
			t.Error("Add changed its receiver")
		}
	})
}

// usageFrom reads pairs of key and magnitude.
func usageFrom(b []byte) gpu.Usage {
	u := gpu.Usage{}
	for ; len(b) >= 2; b = b[2:] {
		u[gpu.Unit(b[0]%8+1)] = uint64(1)<<(b[1]%64) | uint64(b[1])
	}
	return u
}
