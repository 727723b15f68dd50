package layers

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// pureDirs are the folders of plain logic: they get now and seed as arguments. impureDirs are the exceptions in them.
var (
	pureDirs   = []string{"market", "attest", "gpu"}
	impureDirs = []string{"gpu/nvml"} // talks to the driver
)

// impure maps a package to the names of it that pure code must not use. An empty list stands for all of them.
var impure = map[string][]string{
	"time":          {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"fmt":           {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"os":            {},
	"os/exec":       {},
	"os/signal":     {},
	"os/user":       {},
	"syscall":       {},
	"log":           {},
	"net":           {}, // net/netip and net/url are values and stay allowed
	"net/http":      {},
	"net/rpc":       {},
	"net/smtp":      {},
	"path/filepath": {"Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"},
}

// seeded maps the packages of randomness to the names that draw nothing from a source of their own; everything else
// in them is the process's randomness.
var seeded = map[string][]string{
	"math/rand":    {"New", "NewSource", "NewZipf", "Rand", "Source", "Source64", "Zipf"},
	"math/rand/v2": {"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"},
	"crypto/rand":  {},
}

// pureExceptions are uses allowed in one folder, each as "package.Name".
var pureExceptions = map[string][]string{
	"gpu/gputest": {"os.ReadFile", "os.Open"}, // scripted load is read from the file that the flag names
}

// checkPure holds that pure code reads no clock, no randomness but what it is given, and does no I/O. It sees direct
// use only: a call through another package is that package's matter.
func checkPure(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		in := func(dir string) bool { return under(f.Dir, dir) }
		if f.Test || !slices.ContainsFunc(pureDirs, in) || slices.ContainsFunc(impureDirs, in) {
			continue
		}
		selectors(f, func(sel *ast.SelectorExpr, p string) {
			bad, listed := impure[p]
			good, random := seeded[p]
			name := sel.Sel.Name
			if slices.Contains(pureExceptions[f.Dir], p+"."+name) {
				return
			}
			if listed && (len(bad) == 0 || slices.Contains(bad, name)) || random && !slices.Contains(good, name) {
				faults = append(faults, at(f, sel.Pos(),
					"%s.%s in %s, which is pure: take now, a seed, a reader or the data as an argument", p, name, f.Dir))
			}
		})
		for _, imp := range f.Imports {
			_, listed := impure[imp.Path]
			_, random := seeded[imp.Path]
			if imp.Name == "." && (listed || random) {
				faults = append(faults, at(f, imp.Pos, "dot import of %s hides what %s uses: import it by name", imp.Path, f.Dir))
			}
		}
	}
	return faults
}

// checkNoSleep holds that tests wait for events. Only a file that imports testing/synctest may sleep, since time in a
// bubble costs none; that the sleep is within the bubble is for the reader to see.
func checkNoSleep(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		if !f.Test || f.imports("testing/synctest") {
			continue
		}
		selectors(f, func(sel *ast.SelectorExpr, p string) {
			if p == "time" && sel.Sel.Name == "Sleep" {
				faults = append(faults, at(f, sel.Pos(),
					"test sleeps: wait on a channel or a condition, or run in a testing/synctest bubble"))
			}
		})
	}
	return faults
}

// checkPackageDocs holds that each package has exactly one doc comment, that it opens with "Package name" ("Command
// name" will do for a main package), and that it stands in the file named after the package (main.go for main) where
// there is one. Packages that are all tests need none.
func checkPackageDocs(t *Tree) []Fault {
	packages := make(map[string][]*File)
	for _, f := range t.Go {
		if !f.Test {
			packages[f.Dir] = append(packages[f.Dir], f)
		}
	}
	var faults []Fault
	for dir, files := range packages {
		name := files[0].AST.Name.Name
		want := path.Join(dir, name+".go")
		named := slices.ContainsFunc(files, func(f *File) bool { return f.Path == want })
		documented := 0
		for _, f := range files {
			if f.AST.Doc == nil {
				continue
			}
			documented++
			text := f.AST.Doc.Text()
			switch {
			case named && f.Path != want:
				faults = append(faults, at(f, f.AST.Doc.Pos(), "package comment stands outside %s: move it there", want))
			case documented > 1:
				faults = append(faults, at(f, f.AST.Doc.Pos(), "second package comment of %s: merge it into the first", dir))
			case !opens(text, "Package", name) && !(name == "main" && opens(text, "Command", path.Base(dir))):
				faults = append(faults, at(f, f.AST.Doc.Pos(), "package comment must open with %q", "Package "+name))
			}
		}
		if documented == 0 {
			faults = append(faults, Fault{Path: files[0].Path, Line: files[0].line(files[0].AST.Package),
				Msg: "package " + name + " has no doc comment: say in " + want + " what it is for and what it does not do"})
		}
	}
	return sorted(faults)
}

// opens reports whether text starts with the two given words.
func opens(text, first, second string) bool {
	words := strings.Fields(text)
	return len(words) > 2 && words[0] == first && strings.TrimRight(words[1], ".,:;") == second
}
