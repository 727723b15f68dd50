// Package strictyaml reads YAML files that people write, field by field, and names the line of everything that is wrong.
//
// [Parse] gives the root [Value]; [Value.Map] hands each field to the function of its name and reports the others with
// "did you mean". Scalars are taken as the text that stands in the file, so that 1_000, 0x10 or .inf never turn into
// numbers behind the reader's back; the caller parses them. Faults are gathered, not returned one by one: [Value.Fail]
// adds one and [Doc.Err] returns all. [Duration] is the one reading of a span of time that people type.
//
// It does not decode into structs, and it refuses what configuration has no use for: several documents, anchors,
// aliases, tags and merge keys. JSON is YAML too. It is used by node/config and node/jobfile. A Doc is not safe for
// concurrent use.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// MaxBytes is the largest file that is read. Nothing that a person writes by hand comes near it.
const MaxBytes = 256 << 10

// maxLines is the most lines of a file. The parser's time grows with the square of the empty lines in a block of text.
const maxLines = 10_000

// maxDepth bounds how deep values nest; the parser recurses.
const maxDepth = 200

// Fault is one thing that is wrong in a file.
type Fault struct {
	File   string // as it was given to Parse
	Line   int    // from 1; 0 = the whole file
	Column int    // from 1; 0 = the whole line
	Field  string // dotted path, such as limits.price; empty = the file's form
	Msg    string // what is wrong, and what is wanted
}

// Error returns "FILE: line 4, column 3: limits.price: …", without what is unknown.
func (f *Fault) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ": ")
	}
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d", f.Line)
		if f.Column > 0 {
			fmt.Fprintf(&b, ", column %d", f.Column)
		}
		b.WriteString(": ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	return b.String() + f.Msg
}

// Doc is one file and the faults found in it so far.
type Doc struct {
	name   string
	faults []*Fault
	lines  map[string]int // of the fields that stand in the file, by path
}

// Value is one value of a [Doc]. The zero value is of no document and must not be used.
type Value struct {
	doc  *Doc
	node ast.Node
	path string
	line int
	col  int
}

// Parse reads a document of at most [MaxBytes]; name stands in its faults. The root of an empty document is empty. The
// error is a [*Fault].
func Parse(name string, data []byte) (doc *Doc, root Value, err error) {
	doc = &Doc{name: name, lines: map[string]int{}}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // the byte order mark that some editors write
	switch {
	case len(data) > MaxBytes:
		return nil, Value{}, &Fault{File: name, Msg: fmt.Sprintf("%d bytes are too many, at most %d", len(data), MaxBytes)}
	case !utf8.Valid(data):
		return nil, Value{}, &Fault{File: name, Msg: "not UTF-8 text"}
	case bytes.Count(data, []byte("\n")) > maxLines:
		return nil, Value{}, &Fault{File: name, Msg: fmt.Sprintf("more than %d lines", maxLines)}
	case nesting(data) > maxDepth:
		return nil, Value{}, &Fault{File: name, Msg: fmt.Sprintf("nests deeper than %d", maxDepth)}
	}
	// The parser is known to panic on some malformed input; that is a fault of the file, not of this process.
	defer func() {
		if r := recover(); r != nil {
			doc, root, err = nil, Value{}, &Fault{File: name, Msg: "not readable as YAML"}
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, Value{}, syntax(name, err)
	}
	root = Value{doc: doc}
	if len(file.Docs) > 1 {
		return nil, Value{}, &Fault{File: name, Msg: "more than one document (a line ---), want one"}
	}
	if len(file.Docs) == 1 && file.Docs[0].Body != nil {
		root = doc.value(file.Docs[0].Body, "")
	}
	return doc, root, nil
}

// nesting returns a bound on how deep data nests: brackets that are open at once, and indicators in one line.
func nesting(data []byte) int {
	open, deepest, line := 0, 0, 0
	for _, c := range data {
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(open-1, 0)
		case '-', '?', '!', '&':
			line++
		case '\n':
			line = 0
		default:
			if c != ' ' {
				line = 0
			}
		}
		deepest = max(deepest, open, line)
	}
	return deepest
}

// syntax turns the parser's error into a fault of one line.
func syntax(name string, err error) *Fault {
	f := &Fault{File: name, Msg: "not readable as YAML"}
	var e yaml.Error
	if errors.As(err, &e) {
		f.Msg = "not readable as YAML: " + e.GetMessage()
		if tk := e.GetToken(); tk != nil && tk.Position != nil {
			f.Line, f.Column = tk.Position.Line, tk.Position.Column
		}
	}
	return f
}

// Err returns all faults so far, by line, or nil. Its parts are [*Fault].
func (d *Doc) Err() error {
	slices.SortStableFunc(d.faults, func(a, b *Fault) int { return a.Line - b.Line })
	errs := make([]error, len(d.faults))
	for i, f := range d.faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// Line returns the line of the field with that dotted path, 0 if it does not stand in the file or was not read.
func (d *Doc) Line(path string) int { return d.lines[path] }

// FailAt adds a fault to the field with that path, on its line if it stands in the file.
func (d *Doc) FailAt(path, format string, args ...any) {
	d.faults = append(d.faults, &Fault{File: d.name, Line: d.lines[path], Field: path, Msg: fmt.Sprintf(format, args...)})
}

func (d *Doc) value(n ast.Node, path string) Value {
	v := Value{doc: d, node: n, path: path}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		v.line, v.col = tk.Position.Line, tk.Position.Column
	}
	return v
}

// Path returns the dotted path of v, "" for the root.
func (v Value) Path() string { return v.path }

// Line returns the line of v, 0 for the root of an empty document.
func (v Value) Line() int { return v.line }

// Empty reports whether nothing stands there: an empty document, a field without a value, or null.
func (v Value) Empty() bool {
	if v.node == nil {
		return true
	}
	_, ok := v.node.(*ast.NullNode)
	return ok
}

// Fail adds a fault at v.
func (v Value) Fail(format string, args ...any) {
	v.doc.faults = append(v.doc.faults,
		&Fault{File: v.doc.name, Line: v.line, Column: v.col, Field: v.path, Msg: fmt.Sprintf(format, args...)})
}

// Text returns the scalar at v as it stands in the file, without quotes. Anything else is a fault and false.
func (v Value) Text() (string, bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return v.node.GetToken().Value, true
	}
	v.Fail("want a value, not %s", v.kind())
	return "", false
}

// IsList reports whether v is a list.
func (v Value) IsList() bool { _, ok := v.node.(*ast.SequenceNode); return ok }

// List returns the entries of the list at v. Anything else is a fault and nil.
func (v Value) List() []Value {
	seq, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.Fail("want a list, such as [a, b], not %s", v.kind())
		return nil
	}
	out := make([]Value, 0, len(seq.Values))
	for i, n := range seq.Values {
		path := fmt.Sprintf("%s[%d]", v.path, i)
		if n == nil {
			out = append(out, Value{doc: v.doc, path: path, line: v.line})
			continue
		}
		out = append(out, v.doc.value(n, path))
	}
	return out
}

// Texts returns the scalars of the list at v, leaving out and reporting what is none. A single scalar is a list of one.
func (v Value) Texts() []string {
	if !v.IsList() {
		if s, ok := v.Text(); ok {
			return []string{s}
		}
		return nil
	}
	var out []string
	for _, e := range v.List() {
		if s, ok := e.Text(); ok {
			out = append(out, s)
		}
	}
	return out
}

// Pair is one entry of a map.
type Pair struct {
	Key   string
	At    Value // the key, for faults
	Value Value
}

// Pairs returns the entries of the map at v in the order of the file. Anything else is a fault and nil.
func (v Value) Pairs() []Pair {
	var values []*ast.MappingValueNode
	switch n := v.node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		v.Fail("want fields, such as name: value, not %s", v.kind())
		return nil
	}
	var out []Pair
	for _, n := range values {
		at := v.doc.value(n.Key, v.path)
		if _, ok := n.Key.(ast.ScalarNode); !ok {
			at.Fail("want the name of a field")
			continue
		}
		if _, ok := n.Key.(*ast.MergeKeyNode); ok {
			at.Fail("merge keys (<<) are not read here")
			continue
		}
		key := n.Key.GetToken().Value
		at.path = key
		if v.path != "" {
			at.path = v.path + "." + key
		}
		if n.Value == nil {
			at.Fail("no value")
			continue
		}
		value := v.doc.value(n.Value, at.path)
		if _, ok := n.Value.(*ast.MappingNode); ok || value.line == 0 {
			value.line, value.col = at.line, at.col // a block begins at its first field, which may stand lines below
		}
		v.doc.lines[at.path] = at.line
		out = append(out, Pair{key, at, value})
	}
	return out
}

func (v Value) kind() string {
	switch v.node.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "fields"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias"
	case *ast.TagNode:
		return "a tag"
	}
	return "a value"
}
