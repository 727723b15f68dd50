package layers

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Tree is a loaded repository.
type Tree struct {
	Module string  // module path from go.mod
	Top    []Entry // entries of the root that .gitignore does not name
	Go     []*File // every Go file of the module, testdata and nested modules left out, by path
	Texts  []Text  // every text file, Go files and testdata included, by path
}

// An Entry is one name at the root.
type Entry struct {
	Name string
	Dir  bool
}

// A Text is one file that is valid UTF-8 without NUL bytes.
type Text struct {
	Path string
	Data []byte
}

// A File is one parsed Go file.
type File struct {
	Path    string // slash-separated, from the root
	Dir     string // folder of Path
	Test    bool   // name ends in _test.go
	AST     *ast.File
	Imports []Import
	fset    *token.FileSet
}

// An Import is one import of a file.
type Import struct {
	Name string // name that the file calls it by; "_" and "." as written
	Path string
	Pos  token.Pos
}

// line returns the line of pos, from 1.
func (f *File) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// imports reports whether the file imports the given path.
func (f *File) imports(importPath string) bool {
	for _, imp := range f.Imports {
		if imp.Path == importPath {
			return true
		}
	}
	return false
}

// Load reads the tree at the root of fsys, which must hold a go.mod. It skips .git and what .gitignore names. An
// error means that a file could not be read or parsed.
func Load(fsys fs.FS) (*Tree, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	m := regexp.MustCompile(`(?m)^module\s+(\S+)`).FindSubmatch(mod)
	if m == nil {
		return nil, errors.New("read module: go.mod has no module line")
	}
	ignore, err := fs.ReadFile(fsys, ".gitignore")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read .gitignore: %w", err)
	}
	t := &Tree{Module: string(m[1])}
	patterns := ignorePatterns(ignore)
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == ".":
			return nil
		case p == ".git" || ignored(patterns, p):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if path.Dir(p) == "." {
			t.Top = append(t.Top, Entry{p, d.IsDir()})
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return t.add(fsys, p)
	})
	if err != nil {
		return nil, fmt.Errorf("walk tree: %w", err)
	}
	return t, nil
}

// add reads the file at p into the tree.
func (t *Tree) add(fsys fs.FS, p string) error {
	data, err := fs.ReadFile(fsys, p)
	if err != nil {
		return err
	}
	if utf8.Valid(data) && !bytes.ContainsRune(data, 0) {
		t.Texts = append(t.Texts, Text{p, data})
	}
	if path.Ext(p) != ".go" || outsideBuild(fsys, path.Dir(p)) {
		return nil
	}
	f, err := parse(p, data)
	if err != nil {
		return err
	}
	t.Go = append(t.Go, f)
	return nil
}

// parse parses one Go file.
func parse(p string, data []byte) (*File, error) {
	f := &File{Path: p, Dir: path.Dir(p), Test: strings.HasSuffix(p, "_test.go"), fset: token.NewFileSet()}
	var err error
	if f.AST, err = parser.ParseFile(f.fset, p, data, parser.ParseComments); err != nil {
		return nil, fmt.Errorf("parse %s: %w", p, err)
	}
	for _, spec := range f.AST.Imports {
		imp := Import{Pos: spec.Pos()}
		if imp.Path, err = strconv.Unquote(spec.Path.Value); err != nil {
			return nil, fmt.Errorf("parse %s: import %s: %w", p, spec.Path.Value, err)
		}
		if imp.Name = importName(imp.Path); spec.Name != nil {
			imp.Name = spec.Name.Name
		}
		f.Imports = append(f.Imports, imp)
	}
	return f, nil
}

// importName guesses a package's name from its path: the last part that is not a major version.
func importName(p string) string {
	if ok, _ := path.Match("v[0-9]*", path.Base(p)); ok && path.Dir(p) != "." {
		return path.Base(path.Dir(p))
	}
	return path.Base(p)
}

// outsideBuild reports whether the go command ignores dir when it builds the root module: a folder below testdata,
// below a name that starts with "." or "_", or of a nested module.
func outsideBuild(fsys fs.FS, dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		name := path.Base(dir)
		if name == "testdata" || name[0] == '.' || name[0] == '_' {
			return true
		}
		if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// ignorePatterns returns the patterns of a .gitignore, without comments. Negations are not understood and are dropped.
func ignorePatterns(data []byte) []string {
	var patterns []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(strings.TrimSpace(line), "/")
		if line != "" && line[0] != '#' && line[0] != '!' {
			patterns = append(patterns, line)
		}
	}
	return patterns
}

// ignored reports whether a pattern names p: "/name" at the root only, "name" in any folder.
func ignored(patterns []string, p string) bool {
	for _, pattern := range patterns {
		name := path.Base(p)
		if rooted, ok := strings.CutPrefix(pattern, "/"); ok {
			pattern, name = rooted, p
		}
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}
