package layers_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/scripts/layers"
)

// files is a tree in memory: path to content. A go.mod is added when it is loaded.
type files map[string]string

// load loads the tree.
func (fs files) load(t *testing.T) *layers.Tree {
	t.Helper()
	m := fstest.MapFS{"go.mod": {Data: []byte("module example.com/m\n\ngo 1.26\n")}}
	for path, content := range fs {
		m[path] = &fstest.MapFile{Data: []byte(content)}
	}
	tree, err := layers.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// imports returns a source that imports the given paths, one a line, from line 3 on.
func imports(pkg string, paths ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\n", pkg)
	for _, p := range paths {
		fmt.Fprintf(&b, "import _ %q\n", p)
	}
	return b.String()
}

// TestRules shows for each rule what it reports, as "path:line", and what it lets pass.
func TestRules(t *testing.T) {
	const m, badger, peer = "example.com/m/", "github.com/dgraph-io/badger/v4", "github.com/libp2p/go-libp2p/core/peer"
	machine, host := "/wo"+"rk/", "proxy."+"golang.org"
	failing := make(map[string]bool)
	for _, tt := range []struct {
		rule, name string
		tree       files
		want       []string // nil: the rule must stay silent
	}{
		{"top_level", "known names, dotfiles and ignored files", files{
			"README.md": "", "cmd/x/main.go": "package main\n", ".ci/run": "", ".gitignore": "/lacuna\n*.prof\n", "lacuna": "", "cpu.prof": "",
		}, nil},
		{"top_level", "unknown file", files{"NOTES.md": ""}, []string{"NOTES.md"}},
		{"top_level", "unknown folder", files{"util/util.go": "package util\n"}, []string{"util"}},
		{"top_level", "file in place of a folder", files{"gpu": ""}, []string{"gpu"}},

		{"line", "to the right and within", files{
			"cmd/x/main.go": imports("main", m+"node", m+"gpu", m+"scripts/examples"), "node/node.go": imports("node", m+"p2p", m+"node/store"),
		}, nil},
		{"line", "to the left", files{"market/market.go": imports("market", "fmt", m+"p2p")}, []string{"market/market.go:4"}},
		{"line", "test to the left", files{"market/m_test.go": imports("market_test", m+"p2p")}, []string{"market/m_test.go:3"}},
		{"line", "test to a helper on the left", files{"market/m_test.go": imports("market_test", m+"p2p/p2ptest")}, nil},
		{"line", "code to a helper on the left", files{"market/m.go": imports("market", m+"p2p/p2ptest")}, []string{"market/m.go:3"}},
		{"line", "examples outside cmd", files{"node/node.go": imports("node", m+"scripts/examples")}, []string{"node/node.go:3"}},
		{"line", "other scripts in cmd", files{"cmd/x/main.go": imports("main", m+"scripts/layers")}, []string{"cmd/x/main.go:3"}},
		{"line", "scripts use everything", files{"scripts/bench/b.go": imports("bench", m+"node", m+"scripts/examples")}, nil},

		{"pairs", "one way", files{"node/a/a.go": imports("a", m+"node/b/x"), "node/b/b.go": imports("b", m+"market")}, nil},
		{"pairs", "both ways through subfolders", files{
			"node/a/a.go": imports("a", m+"node/b/x"), "node/b/b.go": imports("b", m+"node/a/y"),
		}, []string{"node/a/a.go:3", "node/b/b.go:3"}},
		{"pairs", "both ways in a test", files{
			"node/a/a.go": imports("a", m+"node/b"), "node/b/b_test.go": imports("b_test", m+"node/a"),
		}, nil},

		{"modules", "what the table allows", files{
			"attest/codec.go": imports("attest", "github.com/fxamacker/cbor/v2"), "p2p/find/f.go": imports("find", "github.com/libp2p/go-libp2p-kad-dht/providers"),
			"node/store/s.go": imports("store", badger), "market/match/m.go": imports("match", "golang.org/x/text/language"),
		}, nil},
		{"modules", "gpu is plain", files{"gpu/gpu.go": imports("gpu", "golang.org/x/sync/errgroup")}, []string{"gpu/gpu.go:3"}},
		{"modules", "cgo outside nvml", files{"gpu/meter/m.go": imports("meter", "C"), "gpu/nvml/n.go": imports("nvml", "C")}, []string{"gpu/meter/m.go:3"}},
		{"modules", "a row for one folder does not cover its subfolders", files{
			"market/match/sub/s.go": imports("sub", "golang.org/x/text/language"),
		}, []string{"market/match/sub/s.go:3"}},
		{"modules", "a module with a longer name", files{"attest/a.go": imports("attest", "github.com/fxamacker/cborgen")}, []string{"attest/a.go:3"}},
		{"modules", "tests use anything", files{"gpu/gpu_test.go": imports("gpu_test", "github.com/google/go-cmp/cmp")}, nil},

		{"homes", "at home", files{"node/store/s.go": imports("store", badger), "p2p/work/w.go": imports("work", peer)}, nil},
		{"homes", "badger elsewhere, in a test too", files{
			"node/node.go": imports("node", badger+"/options"), "node/n_test.go": imports("node_test", badger),
		}, []string{"node/n_test.go:3", "node/node.go:3"}},
		{"homes", "peer outside p2p", files{"cmd/x/main.go": imports("main", peer), "node/n.go": imports("node", peer+"store")}, []string{"cmd/x/main.go:3"}},

		{"package_docs", "documented", files{
			"gpu/gpu.go": "// Package gpu names devices.\npackage gpu\n", "gpu/other.go": "package gpu\n", "cmd/x/main.go": "// Command x runs.\npackage main\n",
			"p2p/only_test.go": "package p2p_test\n", "node/web.go": "// Package node, in short, runs.\npackage node\n",
		}, nil},
		{"package_docs", "none", files{"gpu/gpu.go": "package gpu\n"}, []string{"gpu/gpu.go:1"}},
		{"package_docs", "wrong opening", files{"gpu/gpu.go": "// This names devices.\npackage gpu\n"}, []string{"gpu/gpu.go:1"}},
		{"package_docs", "name only", files{"gpu/gpu.go": "// Package gpu\npackage gpu\n"}, []string{"gpu/gpu.go:1"}},
		{"package_docs", "wrong file", files{"gpu/a.go": "// Package gpu names devices.\npackage gpu\n", "gpu/gpu.go": "package gpu\n"}, []string{"gpu/a.go:1"}},
		{"package_docs", "twice", files{
			"gpu/a.go": "// Package gpu names devices.\npackage gpu\n", "gpu/b.go": "// Package gpu names devices.\npackage gpu\n",
		}, []string{"gpu/b.go:1"}},
		{"package_docs", "a comment apart from the clause", files{"gpu/gpu.go": "// Package gpu names devices.\n\npackage gpu\n"}, []string{"gpu/gpu.go:3"}},

		{"pure", "types, durations and seeded randomness", files{
			"market/m.go": "package market\n\nimport (\n\"math/rand/v2\"\n\"time\"\n)\n\nfunc f(now time.Time, s uint64) time.Time { _ = rand.New(rand.NewPCG(s, s)); return now.Add(time.Second) }\n",
		}, nil},
		{"pure", "clock", files{"market/m.go": "package market\n\nimport \"time\"\n\nfunc f() time.Time { return time.Now() }\n"}, []string{"market/m.go:5"}},
		{"pure", "clock as a value under another name", files{"gpu/g.go": "package gpu\n\nimport clock \"time\"\n\nfunc f() any { return clock.Since }\n"}, []string{"gpu/g.go:5"}},
		{"pure", "global randomness", files{
			"attest/a.go": "package attest\n\nimport (\n\"crypto/rand\"\nmrand \"math/rand\"\n\"math/rand/v2\"\n)\n\nfunc f() {\n_ = mrand.Int()\n_ = rand.Reader\n}\n",
			"gpu/g.go":    "package gpu\n\nimport \"math/rand/v2\"\n\nvar x = rand.IntN(3)\n",
		}, []string{"attest/a.go:10", "attest/a.go:11", "gpu/g.go:5"}},
		{"pure", "input and output", files{
			"market/m.go": "package market\n\nimport (\n\"fmt\"\n\"net\"\n\"os\"\n)\n\nfunc f() {\nfmt.Println()\n_, _ = net.Dial(\"\", \"\")\nos.Exit(1)\n}\n",
		}, []string{"market/m.go:10", "market/m.go:11", "market/m.go:12"}},
		{"pure", "a variable named like a package", files{
			"market/m.go": "package market\n\nimport \"time\"\n\ntype c struct{ Now int }\n\nfunc f(time c) int { return time.Now }\n\nvar _ time.Time\n",
		}, nil},
		{"pure", "dot import", files{"market/m.go": "package market\n\nimport . \"time\"\n\nvar x = Now()\n"}, []string{"market/m.go:3"}},
		{"pure", "the exceptions and no more", files{
			"gpu/gputest/g.go": "package gputest\n\nimport \"os\"\n\nvar _, _ = os.ReadFile(\"\")\nvar _ = os.Args\n",
			"gpu/nvml/n.go":    "package nvml\n\nimport \"os\"\n\nvar _ = os.Args\n", "node/n.go": "package node\n\nimport \"os\"\n\nvar _ = os.Args\n",
			"gpu/g_test.go": "package gpu_test\n\nimport \"os\"\n\nvar _ = os.Args\n",
		}, []string{"gpu/gputest/g.go:6"}},

		{"no_sleep", "in a bubble and outside tests", files{
			"gpu/a_test.go": "package gpu_test\n\nimport (\n\"testing/synctest\"\n\"time\"\n)\n\nvar _ = synctest.Test\nvar _ = time.Sleep\n",
			"node/n.go":     "package node\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
		}, nil},
		{"no_sleep", "in a test", files{"gpu/a_test.go": "package gpu_test\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"}, []string{"gpu/a_test.go:5"}},

		{"no_init", "a method named init", files{"gpu/g.go": "package gpu\n\ntype t int\n\nfunc (t) init() {}\n"}, nil},
		{"no_init", "init", files{"gpu/g.go": "package gpu\n\nfunc init() {}\n", "gpu/g_test.go": "package gpu\n\nfunc init() {}\n"}, []string{"gpu/g.go:3", "gpu/g_test.go:3"}},

		{"no_globals", "what is constant", files{
			"gpu/g.go": "package gpu\n\nvar ErrX = errors.New(\"x\")\nvar _ I = (*T)(nil)\nvar table = map[string]int{\"a\": 1}\nvar re = regexp.MustCompile(`x`)\n" +
				"//go:embed x.html\nvar page []byte\nvar mode = mustMode()\nvar lazy = sync.OnceValue[int](build)\n",
			"gpu/g_test.go": "package gpu\n\nvar update = flag.Bool(\"update\", false, \"\")\n", "cmd/lacuna/main.go": "package main\n\nvar version = \"dev\"\n",
		}, nil},
		{"no_globals", "state", files{
			"gpu/g.go": "package gpu\n\nvar mu sync.Mutex\nvar n = 1\nvar cache = map[string]int{}\nvar p = &T{1}\nvar (\n\ta, b = f()\n)\nvar d = New()\n",
		}, []string{"gpu/g.go:3", "gpu/g.go:4", "gpu/g.go:5", "gpu/g.go:6", "gpu/g.go:8", "gpu/g.go:8", "gpu/g.go:10"}},
		{"no_globals", "written tables", files{
			"gpu/a.go": "package gpu\n\nvar table = map[string]int{\"a\": 1}\nvar list = []T{{1}}\n\nfunc f() {\ntable[\"b\"]++\ndelete(table, \"a\")\n}\n",
			"gpu/b.go": "package gpu\n\nfunc g() {\nlist[0].n = 2\nlist = append(list, T{2})\n}\n",
		}, []string{"gpu/a.go:7", "gpu/a.go:8", "gpu/b.go:4", "gpu/b.go:5"}},
		{"no_globals", "a local of the same name", files{
			"gpu/a.go": "package gpu\n\nvar table = []int{1}\n\nfunc f() {\ntable := make([]int, 1)\ntable[0] = 1\n}\n",
		}, nil},

		{"words", "parts of other paths", files{"p2p/w.go": imports("p2p", m+"p2p/work/frame"), "README.md": "/lacuna/work/1.0.0\n"}, nil},
		{"words", "a machine's folder and a host", files{"README.md": "hello\nsee " + machine + "main\n", ".ci/run": "x=" + host}, []string{".ci/run:1", "README.md:2"}},
		{"words", "binary files", files{"gpu/x.bin": "\x00 " + host}, nil},
	} {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			got := places(find(t, tt.rule).Check(tt.tree.load(t)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: faults differ (-want +got):\n%s", tt.rule, diff)
			}
			if len(tt.want) > 0 {
				failing[tt.rule] = true
			}
		})
	}
	for _, rule := range layers.Rules() {
		if !failing[rule.Name] {
			t.Errorf("no row shows that rule %s can fail: add one", rule.Name)
		}
	}
}

// TestLoadLeavesOut checks that what the go command does not build is not judged as code, and yet as text.
func TestLoadLeavesOut(t *testing.T) {
	tree := files{
		"gpu/gpu.go": "package gpu\n", "gpu/testdata/x.go": "package x\n", "gpu/_old/x.go": "package x\n", ".ci/x.go": "package x\n",
		"scripts/sub/go.mod": "module sub\n", "scripts/sub/deep/x.go": "package x\n", ".git/config": "x",
	}.load(t)
	var code, texts []string
	for _, f := range tree.Go {
		code = append(code, f.Path)
	}
	for _, text := range tree.Texts {
		texts = append(texts, text.Path)
	}
	if diff := cmp.Diff([]string{"gpu/gpu.go"}, code); diff != "" {
		t.Errorf("Go files differ (-want +got):\n%s", diff)
	}
	want := []string{".ci/x.go", "go.mod", "gpu/_old/x.go", "gpu/gpu.go", "gpu/testdata/x.go", "scripts/sub/deep/x.go", "scripts/sub/go.mod"}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("texts differ (-want +got):\n%s", diff)
	}
}

// TestLoadFaults checks that a tree that cannot be judged is an error and not a pass.
func TestLoadFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		tree fstest.MapFS
		want string
	}{
		{"no module", fstest.MapFS{}, "read module"},
		{"module without a name", fstest.MapFS{"go.mod": {Data: []byte("go 1.26\n")}}, "no module line"},
		{"broken source", fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, "gpu/x.go": {Data: []byte("packag x")}}, "parse gpu/x.go"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := layers.Load(tt.tree); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// find returns the rule of the given name.
func find(t *testing.T, name string) layers.Rule {
	t.Helper()
	for _, rule := range layers.Rules() {
		if rule.Name == name {
			return rule
		}
	}
	t.Fatalf("no rule %q", name)
	return layers.Rule{}
}

// places returns "path:line" of each fault, or "path" without a line.
func places(faults []layers.Fault) []string {
	var at []string
	for _, f := range faults {
		place := f.Path
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d", f.Path, f.Line)
		}
		at = append(at, place)
	}
	return at
}
