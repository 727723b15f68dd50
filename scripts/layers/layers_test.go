package layers_test

import (
	"os"
	"slices"
	"testing"

	"github.com/lacuna-network/lacuna/scripts/layers"
)

// TestTree holds every rule over this repository.
func TestTree(t *testing.T) {
	tree, err := layers.Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	const self = "scripts/layers/layers.go"
	if !slices.ContainsFunc(tree.Go, func(f *layers.File) bool { return f.Path == self }) {
		t.Fatalf("Load found %d Go files and not %s: the rules would look at the wrong tree", len(tree.Go), self)
	}
	for _, rule := range layers.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, fault := range rule.Check(tree) {
				t.Error(fault)
			}
			if t.Failed() {
				t.Log("rule: " + rule.Doc)
			}
		})
	}
}
