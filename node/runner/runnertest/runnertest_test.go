package runnertest_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/runner/runnertest"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOutputsDigest(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b"), "two")
	write(t, filepath.Join(dir, "a", "z"), "one")
	write(t, filepath.Join(dir, "a-b"), "")
	if err := os.Symlink("b", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	sum, files, err := runnertest.OutputsDigest(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []runnertest.OutputFile{
		{Path: "a-b", Size: 0, SHA256: sha256.Sum256(nil)},
		{Path: "a/z", Size: 3, SHA256: sha256.Sum256([]byte("one"))},
		{Path: "b", Size: 3, SHA256: sha256.Sum256([]byte("two"))},
	}
	if d := cmp.Diff(want, files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	var lines strings.Builder
	for _, f := range want {
		fmt.Fprintf(&lines, "%x %d %s\n", f.SHA256, f.Size, f.Path)
	}
	if want := sha256.Sum256([]byte(lines.String())); sum != want {
		t.Errorf("digest = %x, want %x", sum, want)
	}

	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "b"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "b"), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, _, err := runnertest.OutputsDigest(dir); err != nil || again != sum {
		t.Errorf("digest after changed time and mode = %x, %v, want %x", again, err, sum)
	}
	write(t, filepath.Join(dir, "b"), "twO")
	if other, _, err := runnertest.OutputsDigest(dir); err != nil || other == sum {
		t.Errorf("digest after changed content = %x, %v, want another", other, err)
	}
	write(t, filepath.Join(dir, "x\ny"), "")
	if _, _, err := runnertest.OutputsDigest(dir); err == nil {
		t.Error("digest of a path with a line break: no error")
	}
	if _, _, err := runnertest.OutputsDigest(filepath.Join(dir, "missing")); err == nil {
		t.Error("digest of a missing folder: no error")
	}
}
