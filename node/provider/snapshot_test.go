package provider_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/node/provider"
)

// TestSnapshots writes checkpoints in the ways that programs do. What was renamed into place is whole at once, and nothing
// else is for its sake.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	s := provider.WatchSnapshots(dir)
	defer s.Close()
	if !s.Renames() {
		t.Skip("renames are not noticed on this system")
	}
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	due := func(when string, after time.Duration, want string) {
		t.Helper()
		if got := s.Due(time.Now().Add(after)); got != want {
			t.Errorf("%s: %q is due, want %q", when, got, want)
		}
	}
	const still = 3 * time.Second
	due("empty", still, "")
	write(".part", "one")
	due("work in progress", still, "")
	rename(".part", "state")
	due("renamed into place", 0, "state")
	due("nothing new", still, "")
	write("log", "half")
	write(".part", "two")
	rename(".part", "state")
	due("renamed, but another one is being written", 0, "")
	due("until that one is still", still, "log state")
	write("log", "half and more")
	due("a rename of before says nothing of what comes later", 0, "")
	due("still again", still, "log state")
	write(".new/a/b", "three")
	rename(".new", "folder")
	due("a whole folder renamed into place", 0, "folder/a/b log state")
}
