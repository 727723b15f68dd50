package gpu

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Canonical looks up the driver's product string, with case, spaces and hyphens
// folded and the vendor's words in front optional. Where cards of different
// memory share a product string memBytes decides, as the driver reports it; it
// reports false if that is 0 (unknown) or fits none of them, and for products
// that the registry does not have. For other products memBytes is not looked
// at: a card keeps its name whatever memory it has. The returned Model shares
// nothing with the registry.
func Canonical(product string, memBytes uint64) (Model, bool) {
	rows := byProduct()[key(product)]
	if len(rows) == 1 {
		return models[rows[0]].clone(), true
	}
	for _, i := range rows {
		if models[i].HasMem(memBytes) {
			return models[i].clone(), true
		}
	}
	return Model{}, false
}

// Lookup returns the models that want names, in the registry's order: one for a
// canonical name, an alias or a product string, several for a family such as
// "A100", none for a name that the registry does not have.
func Lookup(want string) []Model {
	var found []Model
	for _, i := range byName()[key(want)] {
		found = append(found, models[i].clone())
	}
	return found
}

// Match reports whether d is what want asks for. Case, spaces and hyphens do
// not matter, nor do "NVIDIA", "GeForce", "Tesla" or "AMD" in front; all else
// must be equal: the canonical name, an alias or a family of d's model, or d's
// own product string. No part of a name ever matches. The model is derived from
// d's product string and memory; d.Model counts only where Name is empty, so
// that a label cannot contradict the product.
func Match(want string, d Device) bool {
	k := key(want)
	if k == "" {
		return false
	}
	name := d.Name
	if name == "" {
		name = d.Model
	}
	if k == key(name) {
		return true
	}
	model, ok := Canonical(name, d.MemBytes)
	if !ok && d.Name == "" {
		if rows := byName()[key(d.Model)]; len(rows) == 1 {
			model, ok = models[rows[0]], true
		}
	}
	return ok && slices.ContainsFunc(byName()[k], func(i int) bool { return models[i].Name == model.Name })
}

// key folds a name for comparison.
func key(s string) string {
	folded := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || unicode.IsSpace(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
	for _, word := range [...]string{"nvidia", "amd", "geforce", "tesla"} {
		if rest := strings.TrimPrefix(folded, word); rest != "" {
			folded = rest
		}
	}
	return folded
}

// The indexes over models, by key; built at their first use, never written again.
var (
	byProduct = sync.OnceValue(func() map[string][]int {
		return indexModels(func(m Model) []string { return m.Products })
	})
	byName = sync.OnceValue(func() map[string][]int {
		return indexModels(func(m Model) []string { return slices.Concat(list(m.Name), m.Products, m.Aliases, m.Families) })
	})
)

func indexModels(names func(Model) []string) map[string][]int {
	index := make(map[string][]int)
	for i, m := range models {
		for _, n := range names(m) {
			if k := key(n); !slices.Contains(index[k], i) {
				index[k] = append(index[k], i)
			}
		}
	}
	return index
}
