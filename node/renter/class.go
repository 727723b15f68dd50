package renter

import (
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
)

// bidClass is the lowest class that serves the spec, the name under which prices are remembered.
func bidClass(s market.Spec) string {
	if s.GPUs == 0 {
		return gpu.ClassCPU
	}
	if len(s.Models) > 0 {
		if c := classOfModel(s.Models[0]); c != "" {
			return c
		}
	}
	return gpu.ClassOf(gpu.NVIDIA, s.VRAMBytes)
}

func classOfModel(name string) string {
	for _, m := range gpu.Lookup(name) {
		return m.Class()
	}
	return ""
}

// classes are the topics' classes that the bid goes to: those of the models wanted, or the class of the memory wanted
// and all above it.
func (a *openAuction) classes() []string {
	if a.bid.Class == gpu.ClassCPU {
		return []string{gpu.ClassCPU}
	}
	seen := map[string]bool{}
	var out []string
	add := func(c string) {
		if c != "" && !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	for _, name := range a.bid.Models {
		for _, m := range gpu.Lookup(name) {
			add(m.Class())
		}
	}
	if len(a.bid.Models) == 0 {
		for _, v := range []gpu.Vendor{gpu.NVIDIA, gpu.AMD, gpu.Intel} {
			if a.bid.Class == "any" || a.bid.Class == string(v) {
				for _, c := range gpu.ClassesFrom(v, a.bid.MemBytes) {
					add(c)
				}
			}
		}
	}
	return out
}

// places are the topics' places: the continents that the bid asks for, or any.
func (a *openAuction) places() []string {
	seen := map[string]bool{}
	var out []string
	for _, p := range a.bid.Require {
		if !seen[p.Continent] {
			seen[p.Continent] = true
			out = append(out, p.Continent)
		}
	}
	if len(out) == 0 {
		out = []string{market.AnyPlace}
	}
	return out
}
