package layers

import (
	"path"
	"slices"
	"strings"
)

// layerLine is the line of folders: a package imports from its own folder and from those to the right.
var layerLine = []string{"cmd", "node", "p2p", "market", "attest", "gpu"}

// allowance lets one folder, with or without what is below it, import outside modules.
type allowance struct {
	dir     string
	below   bool
	modules []string // module paths without major version; packages below count too
}

// allowances is the table of outside modules. A package may use the sum of the rows that cover it. A new module gets
// its row here and its line in scripts/RATIONALE.md. "C" stands for cgo.
var allowances = []allowance{
	{"gpu/nvml", false, []string{"C", "github.com/NVIDIA/go-nvml"}},
	{"attest", true, []string{"github.com/fxamacker/cbor"}},
	{"market/match", false, []string{"golang.org/x/text"}},
	{"p2p", true, []string{
		"github.com/libp2p/go-libp2p", "github.com/libp2p/go-libp2p-kad-dht", "github.com/libp2p/go-libp2p-kbucket", "github.com/libp2p/go-libp2p-pubsub",
		"github.com/libp2p/go-msgio", "github.com/multiformats/go-multiaddr", "github.com/multiformats/go-multistream",
		"github.com/prometheus", "golang.org/x/sync", "golang.org/x/time",
	}},
	{"p2p/p2ptest", false, []string{"github.com/marcopolo/simnet"}},
	{"node", true, []string{"github.com/prometheus", "github.com/goccy/go-yaml", "golang.org/x/sync"}},
	{"node/store", true, []string{"github.com/dgraph-io/badger"}},
	{"node/runner/wasm", true, []string{"github.com/tetratelabs/wazero"}},
	{"node/nodetest", false, []string{"github.com/marcopolo/simnet"}},
	{"cmd", true, []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/goccy/go-yaml", "golang.org/x/term",
	}},
}

// home is a package path that only one folder may import, in tests too.
type home struct {
	path  string // import path, and all below it when below is set
	below bool
	dir   string
	hint  string
}

// homes lists what must not leave its folder.
var homes = []home{
	{"github.com/dgraph-io/badger", true, "node/store", "declare a Store where it is used and let node/store fulfil it"},
	{"github.com/libp2p/go-libp2p/core/peer", false, "p2p", "pass attest keys; p2p converts both ways"},
}

// under reports whether p is dir or below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// top returns the first part of a path.
func top(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
}

// local returns the folder of an import of this module.
func (t *Tree) local(importPath string) (dir string, ok bool) {
	return strings.CutPrefix(importPath, t.Module+"/")
}

// helper reports whether dir is a package of test helpers, by its name.
func helper(dir string) bool { return strings.HasSuffix(path.Base(dir), "test") }

// checkLine holds the import line. Scripts stand left of it: they may import everything, and of them only
// scripts/examples may be imported, by cmd and by tests. Tests may import test helpers (packages named …test) anywhere.
func checkLine(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		from := slices.Index(layerLine, top(f.Dir))
		for _, imp := range f.Imports {
			dir, ok := t.local(imp.Path)
			if !ok {
				continue
			}
			to := slices.Index(layerLine, top(dir))
			switch {
			case top(f.Dir) == "scripts", f.Test && helper(dir):
			case top(dir) == "scripts":
				if (top(f.Dir) != "cmd" && !f.Test) || dir != "scripts/examples" {
					faults = append(faults, at(f, imp.Pos,
						"imports %s; of scripts only scripts/examples may be imported, by cmd and by tests: move the code into a layer", dir))
				}
			case to < from || from < 0:
				faults = append(faults, at(f, imp.Pos,
					"imports %s, which is left of %s in %s: declare an interface here and let the left side fulfil it",
					dir, top(f.Dir), strings.Join(layerLine, " → ")))
			}
		}
	}
	return faults
}

// checkPairs holds that no two groups of a layer import each other, where a group is a package directly below the
// layer's folder together with its subfolders. Go forbids such a circle between packages but not between folders.
// Tests are left out: an external test may close a circle.
func checkPairs(t *Tree) []Fault {
	type edge struct{ from, to string }
	first := make(map[edge]Fault)
	for _, f := range t.Go {
		if f.Test {
			continue
		}
		for _, imp := range f.Imports {
			dir, ok := t.local(imp.Path)
			e := edge{group(f.Dir), group(dir)}
			if _, seen := first[e]; !ok || seen || e.from == e.to || top(dir) != top(f.Dir) {
				continue
			}
			first[e] = at(f, imp.Pos, "%s and %s import each other: move what both need into one of them or to the right",
				e.from, e.to)
		}
	}
	var faults []Fault
	for e, fault := range first {
		if _, ok := first[edge{e.to, e.from}]; ok {
			faults = append(faults, fault)
		}
	}
	return sorted(faults)
}

// group returns the first two parts of a folder.
func group(dir string) string {
	if parts := strings.SplitN(dir, "/", 3); len(parts) > 2 {
		return parts[0] + "/" + parts[1]
	}
	return dir
}

// checkModules holds the table of outside modules over files that are not tests; tests and scripts may use anything
// that go.mod names.
func checkModules(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		if f.Test || top(f.Dir) == "scripts" {
			continue
		}
		for _, imp := range f.Imports {
			if _, ok := t.local(imp.Path); ok || standard(imp.Path) || allowed(f.Dir, imp.Path) {
				continue
			}
			faults = append(faults, at(f, imp.Pos,
				"%s may not import %s: use what its row in scripts/layers/imports.go allows, or add a row and a reason",
				f.Dir, imp.Path))
		}
	}
	return faults
}

// standard reports whether a path is of the standard library: its first part has no dot.
func standard(importPath string) bool {
	return importPath != "C" && !strings.Contains(top(importPath), ".")
}

// allowed reports whether a row of the table covers the import.
func allowed(dir, importPath string) bool {
	for _, a := range allowances {
		if dir != a.dir && !(a.below && under(dir, a.dir)) {
			continue
		}
		if slices.ContainsFunc(a.modules, func(m string) bool { return under(importPath, m) }) {
			return true
		}
	}
	return false
}

// checkHomes holds the packages of homes in their folders, in tests too.
func checkHomes(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		for _, imp := range f.Imports {
			for _, h := range homes {
				match := imp.Path == h.path || h.below && under(imp.Path, h.path)
				if match && !under(f.Dir, h.dir) {
					faults = append(faults, at(f, imp.Pos, "%s is for %s alone: %s", imp.Path, h.dir, h.hint))
				}
			}
		}
	}
	return faults
}
