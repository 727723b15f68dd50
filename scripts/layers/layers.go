// Package layers checks the shape of the source tree: which folder may import which, which outside modules each may
// use, that every package explains itself, and the house rules that a parser can see.
//
// [Load] reads a tree into a [Tree]; each [Rule] of [Rules] looks at it and returns a [Fault] for each place that
// breaks it. The package parses files and nothing more: it resolves no types, runs no command and reads nothing
// outside the given file system. Where syntax alone cannot decide, a rule keeps to what it can see and its Doc says so.
//
// Its own test is the one caller: it holds the rules over this repository and proves on small bad trees that each can
// fail. A Tree is not changed once loaded, so rules may run at the same time.
package layers

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
)

// A Fault is one place that breaks a rule.
type Fault struct {
	Path string // slash-separated, from the root of the tree
	Line int    // from 1; 0 when the fault is the whole file or folder
	Msg  string // what is wrong and what to do about it
}

// String returns the fault as "path:line: message", without the line when there is none.
func (f Fault) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Path, f.Msg)
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Msg)
}

// A Rule is one property of the tree.
type Rule struct {
	Name  string              // lower_snake, unique
	Doc   string              // one sentence: what holds
	Check func(*Tree) []Fault // nil when the tree keeps the rule
}

// Rules returns all rules, in the order in which they are best read and mended.
func Rules() []Rule {
	return []Rule{
		{"top_level", "The root holds the known folders and files and nothing else.", checkTopLevel},
		{"line", "Imports point right along cmd, node, p2p, market, attest, gpu.", checkLine},
		{"pairs", "No two packages of one layer, taken with their subfolders, import each other.", checkPairs},
		{"modules", "Each folder imports only the outside modules that the table allows it.", checkModules},
		{"homes", "Badger stays in node/store and peer.ID in p2p, tests included.", checkHomes},
		{"package_docs", "Every package has one doc comment, in the file named after it.", checkPackageDocs},
		{"pure", "market, attest and gpu read no clock, no global randomness and do no I/O.", checkPure},
		{"no_sleep", "No test sleeps outside a file that uses testing/synctest.", checkNoSleep},
		{"no_init", "No package has an init function.", checkNoInit},
		{"no_globals", "Package variables are sentinels, tables that no one writes, or embedded files.", checkNoGlobals},
		{"words", "No text names one machine's folders or one download host.", checkWords},
	}
}

// at returns a fault at pos in file f.
func at(f *File, pos token.Pos, format string, args ...any) Fault {
	return Fault{Path: f.Path, Line: f.line(pos), Msg: fmt.Sprintf(format, args...)}
}

// sorted returns faults by path and line, so that a report reads from top to bottom.
func sorted(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return faults
}

// selectors calls visit for each pkg.Name in f, where pkg is an import and not a local variable of the same name.
// path is the import path of pkg.
func selectors(f *File, visit func(sel *ast.SelectorExpr, path string)) {
	names := make(map[string]string, len(f.Imports))
	for _, imp := range f.Imports {
		names[imp.Name] = imp.Path
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// The parser resolves identifiers within the file: one that it could resolve is not a package.
		if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil {
			if path, ok := names[id.Name]; ok {
				visit(sel, path)
			}
		}
		return true
	})
}
