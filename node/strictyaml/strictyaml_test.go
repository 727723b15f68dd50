package strictyaml_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// read reads a small form: name, limits.price, tags, env.
func read(data string) (map[string]string, error) {
	doc, root, err := strictyaml.Parse("f.yaml", []byte(data))
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	text := func(v strictyaml.Value) {
		if s, ok := v.Text(); ok {
			got[v.Path()] = s
		}
	}
	root.Map(map[string]func(strictyaml.Value){
		"name":   text,
		"limits": func(v strictyaml.Value) { v.Map(map[string]func(strictyaml.Value){"price": text, "budget": text}) },
		"tags":   func(v strictyaml.Value) { got["tags"] = strings.Join(v.Texts(), "|") },
		"env": func(v strictyaml.Value) {
			for _, p := range v.Pairs() {
				text(p.Value)
			}
		},
	}, "limits.price", "limits.budget")
	return got, doc.Err()
}

func TestReadTakesTheTextAsItStands(t *testing.T) {
	tests := []struct {
		name, in string
		want     map[string]string
	}{
		{"empty", "", map[string]string{}},
		{"only a comment", "# nothing\n", map[string]string{}},
		{"empty section", "limits:\n", map[string]string{}},
		{"byte order mark", "\ufeffname: x\n", map[string]string{"name": "x"}},
		{"underscore", "limits: {price: 1_000}", map[string]string{"limits.price": "1_000"}},
		{"hexadecimal", "limits: {price: 0x10}", map[string]string{"limits.price": "0x10"}},
		{"infinity", "limits: {price: .inf}", map[string]string{"limits.price": ".inf"}},
		{"trailing zero", "limits:\n  price: 0.50 # per hour\n", map[string]string{"limits.price": "0.50"}},
		{"boolean", "name: true", map[string]string{"name": "true"}},
		{"quoted", `name: "a: \"b\""`, map[string]string{"name": `a: "b"`}},
		{"list", "tags:\n- a\n- 1\n", map[string]string{"tags": "a|1"}},
		{"one entry instead of a list", "tags: a", map[string]string{"tags": "a"}},
		{"map of any names", "env: {A: 3, B_C: x}", map[string]string{"env.A": "3", "env.B_C": "x"}},
		{"json with tabs", "{\n\t\"name\": \"x\",\n\t\"tags\": [1, \"2\"]\n}", map[string]string{"name": "x", "tags": "1|2"}},
		{"literal block", "name: |\n  a\n  b\n", map[string]string{"name": "a\nb\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("read (-want +got):\n%s", d)
			}
		})
	}
}

func TestFaultsNameTheLine(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"typing error", "name: x\nlimist: {}\n", []string{"f.yaml: line 2, column 1: limist: unknown; did you mean limits?"}},
		{"field of elsewhere", "price: 1", []string{"f.yaml: line 1, column 1: price: unknown; did you mean limits.price?"}},
		{"nothing near", "colour: 1", []string{"f.yaml: line 1, column 1: colour: unknown; there are env, limits, name, tags"}},
		{"two faults", "naem: x\nlimits:\n  pirce: 1\n", []string{"line 1, column 1: naem: unknown; did you mean name?", "line 3, column 3: limits.pirce: unknown; did you mean price?"}},
		{"no value", "name:\n", []string{"line 1, column 7: name: want a value, not nothing"}},
		{"fields for a value", "name: {a: b}\n", []string{"line 1, column 1: name: want a value, not fields"}},
		{"value for fields", "limits: 3\n", []string{"line 1, column 9: limits: want fields, such as name: value, not a value"}},
		{"list at the root", "- a\n", []string{"line 1, column 1: want fields"}},
		{"list in a list", "tags: [[a]]\n", []string{"line 1, column 8: tags[0]: want a value, not a list"}},
		{"named twice", "name: a\nname: b\n", []string{"f.yaml: line 2, column 1: not readable as YAML"}},
		{"broken", "name: \"a\n", []string{"f.yaml: line 1, column 7: not readable as YAML"}},
		{"two documents", "name: a\n---\nname: b\n", []string{"f.yaml: more than one document"}},
		{"anchor", "name: &a x\n", []string{"name: want a value, not an anchor or alias"}},
		{"tag", "name: !!str 5\n", []string{"name: want a value, not a tag"}},
		{"merge key", "<<: {name: x}\n", []string{"merge keys"}},
		{"too deep", strings.Repeat("[", 300), []string{"nests deeper than 200"}},
		{"too long", strings.Repeat("#", strictyaml.MaxBytes+1), []string{"are too many"}},
		{"too many lines", "name: |" + strings.Repeat("\n", 250_000) + "tags: a", []string{"more than 10000 lines"}},
		{"no text", "\xff\xfe", []string{"not UTF-8"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := read(tt.in)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
			if n := len(strings.Split(err.Error(), "\n")); n != len(tt.want) {
				t.Errorf("%d lines of faults, want %d: %v", n, len(tt.want), err)
			}
			if f := (*strictyaml.Fault)(nil); !errors.As(err, &f) {
				t.Errorf("error %T holds no fault", err)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	tests := []struct {
		in   string
		want time.Duration // 0 = refused
	}{
		{"30s", 30 * time.Second}, {" 2h ", 2 * time.Hour}, {"7d", 7 * 24 * time.Hour}, {"1d12h", 36 * time.Hour},
		{"1h30m", 90 * time.Minute}, {"250ms", 250 * time.Millisecond}, {"1.5h", 90 * time.Minute},
		{"", 0}, {"30", 0}, {"1d30", 0}, {"-1s", 0}, {"+1s", 0}, {"1d-2h", 0}, {"0s", 0}, {"0", 0}, {"d", 0}, {"1 h", 0},
		{"2 hours", 0}, {"1,5h", 0}, {"99999999d", 0}, {"106000d24000000h", 0}, {"NaNh", 0},
	}
	for _, tt := range tests {
		got, err := strictyaml.Duration(tt.in)
		if got != tt.want && tt.want != 0 || (err == nil) != (tt.want != 0) {
			t.Errorf("Duration(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
		if err == nil {
			if again, err := strictyaml.Duration(strictyaml.FormatDuration(got)); err != nil || again != got {
				t.Errorf("FormatDuration(%v) = %q, which reads as %v, %v", got, strictyaml.FormatDuration(got), again, err)
			}
		}
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"max_price", "budget", "to"}
	for in, want := range map[string]string{
		"maxprice": "max_price", "max-price": "max_price", "Budget": "budget", "bugdet": "budget", "ot": "to",
		"zzz": "", "x": "", "price": "", strings.Repeat("b", 100): "",
	} {
		if got := strictyaml.Suggest(in, names); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"name: x", "limits: {price: 1}", "tags: [a, 'b']", "? a\n: b", "a: &b c\nd: *b", "- - - x", "{\"a\":\n\t1}", "|\n x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := read(s)
		if err == nil && got == nil {
			t.Error("neither values nor an error")
		}
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("an error without a word")
		}
	})
}
