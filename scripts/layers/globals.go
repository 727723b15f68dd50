package layers

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// globalExceptions are package variables that the rule cannot judge, each as "folder.name", with the reason.
var globalExceptions = map[string]string{
	"cmd/lacuna.version": "set by the linker when a release is built",
}

// constantCalls are functions whose result no one can write to, or which compute a table when it is first read.
var constantCalls = []string{
	"regexp.MustCompile", "regexp.MustCompilePOSIX", "netip.MustParsePrefix", "netip.MustParseAddr", "time.Date",
	"errors.New", "sync.OnceValue", "sync.OnceValues", "template.Must",
}

// checkNoInit holds that no package runs code before main, in tests too.
func checkNoInit(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				faults = append(faults, at(f, fn.Pos(), "init function: build the value in New or in main and pass it"))
			}
		}
	}
	return faults
}

// checkNoGlobals holds that a package variable is one of
//
//   - a blank check (var _ Port = (*T)(nil)),
//   - a sentinel: Err… or err… set by a call,
//   - a file embedded with go:embed,
//   - a table: a composite literal that is not empty,
//   - the result of one of constantCalls, or of a function named must… or Must…, as those fail only on our own text,
//   - listed in globalExceptions,
//
// and that nothing in its package assigns to it, to its elements or fields, deletes from it or clears it. Writes
// through a pointer or a copied slice are not seen. Test files are free.
func checkNoGlobals(t *Tree) []Fault {
	var faults []Fault
	declared := make(map[string]map[string]*ast.ValueSpec) // by folder and name
	for _, f := range t.Go {
		if f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				spec := spec.(*ast.ValueSpec)
				embedded := hasEmbed(gen.Doc) || hasEmbed(spec.Doc)
				for i, name := range spec.Names {
					if declared[f.Dir] == nil {
						declared[f.Dir] = make(map[string]*ast.ValueSpec)
					}
					if name.Name != "_" { // every package writes to that one
						declared[f.Dir][name.Name] = spec
					}
					if _, ok := globalExceptions[f.Dir+"."+name.Name]; ok || embedded || constant(spec, i) {
						continue
					}
					faults = append(faults, at(f, name.Pos(),
						"package variable %s is state: make it a field, a constant or a literal table; compute a table with sync.OnceValue", name.Name))
				}
			}
		}
	}
	for _, f := range t.Go {
		if !f.Test {
			faults = append(faults, writes(f, declared[f.Dir])...)
		}
	}
	return sorted(faults)
}

// hasEmbed reports whether a comment holds a go:embed directive.
func hasEmbed(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// constant reports whether the i-th variable of spec has a value that the rule takes for constant.
func constant(spec *ast.ValueSpec, i int) bool {
	name := spec.Names[i].Name
	if name == "_" {
		return true
	}
	if len(spec.Values) != len(spec.Names) {
		return false
	}
	switch v := ast.Unparen(spec.Values[i]).(type) {
	case *ast.CompositeLit:
		return len(v.Elts) > 0
	case *ast.CallExpr:
		called := callee(v)
		bare := called[strings.LastIndex(called, ".")+1:]
		return strings.HasPrefix(name, "Err") || strings.HasPrefix(name, "err") ||
			slices.Contains(constantCalls, called) || strings.HasPrefix(bare, "must") || strings.HasPrefix(bare, "Must")
	}
	return false
}

// callee returns the name of the called function as written, "pkg.Name" or "name"; type arguments are dropped. It is
// empty for anything else.
func callee(call *ast.CallExpr) string {
	fun := ast.Unparen(call.Fun)
	switch ix := fun.(type) {
	case *ast.IndexExpr:
		fun = ix.X
	case *ast.IndexListExpr:
		fun = ix.X
	}
	switch fn := fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
	}
	return ""
}

// writes returns a fault for each statement of f that writes to one of the given package variables.
func writes(f *File, vars map[string]*ast.ValueSpec) []Fault {
	var faults []Fault
	check := func(target ast.Expr) {
		id := root(target)
		if id == nil {
			return
		}
		spec, ok := vars[id.Name]
		// Without an object the name comes from another file of the package; with one it must be the declaration itself.
		if !ok || id.Obj != nil && id.Obj.Decl != spec {
			return
		}
		faults = append(faults, at(f, target.Pos(), "writes to package variable %s: make it a field", id.Name))
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, target := range n.Lhs {
					check(target)
				}
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.CallExpr:
			if name := callee(n); (name == "delete" || name == "clear") && len(n.Args) > 0 {
				check(n.Args[0])
			}
		}
		return true
	})
	return faults
}

// root returns the variable that an assignable expression starts at, nil when there is none.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}
