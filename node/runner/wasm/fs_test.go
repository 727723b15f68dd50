package wasm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/runner/runnertest"
)

func TestCheckpointIsThereOnResume(t *testing.T) {
	j, l := newJob(t, "resume")
	j.Checkpoint, j.Resumed = "/ckpt", true
	write(t, filepath.Join(j.OutputDir("/ckpt"), "state"), "before")
	write(t, filepath.Join(j.OutputDir("/out"), "stale"), "")
	want(t, run(t, j), runner.Exited, 0, "")
	if got := l.out.String(); got != "before <nil> \"1\"\n" {
		t.Errorf("guest saw %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(j.OutputDir("/ckpt"), "state")); string(b) != "next" {
		t.Errorf("checkpoint = %q, %v, want next", b, err)
	}
	if _, files, err := runnertest.OutputsDigest(j.OutputDir("/out")); err != nil || len(files) != 0 {
		t.Errorf("outputs = %v, %v, want none", files, err)
	}
}

func TestEscape(t *testing.T) {
	j, l := newJob(t, "escape")
	data := filepath.Join(t.TempDir(), "deep", "data")
	write(t, filepath.Join(data, "file"), "")
	write(t, filepath.Join(data, "..", "..", "secret"), "secret")
	for name, to := range map[string]string{"link": "/etc/passwd", "folder": "/etc", "up": "../../secret"} {
		if err := os.Symlink(to, filepath.Join(data, name)); err != nil {
			t.Fatal(err)
		}
	}
	j.Inputs = []runner.Mount{{Host: data, Guest: "/data"}}
	want(t, run(t, j), runner.Exited, 0, "")
	if got := l.out.String() + l.err.String(); got != "tried\n" {
		t.Errorf("the guest got out:\n%s", got)
	}
}

func TestInputsAreReadOnly(t *testing.T) {
	j, l := newJob(t, "readonly", "/data/file", "/single/name", "/single/other")
	host := t.TempDir()
	names := []string{filepath.Join(host, "data", "file"), filepath.Join(host, "one"), filepath.Join(host, "two")}
	for _, n := range names {
		write(t, n, "original")
	}
	if err := os.Symlink("two", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	j.Inputs = []runner.Mount{
		{Host: filepath.Join(host, "data"), Guest: "/data"},
		{Host: names[1], Guest: "/single/name"},
		{Host: filepath.Join(host, "link"), Guest: "/single/other"},
	}
	want(t, run(t, j), runner.Exited, 0, "")
	if got := l.out.String() + l.err.String(); got != "/data/file=original\n/single/name=original\n/single/other=original\n" {
		t.Errorf("guest printed:\n%s", got)
	}
	for _, n := range names {
		if b, err := os.ReadFile(n); string(b) != "original" {
			t.Errorf("%s = %q, %v, want original", n, b, err)
		}
	}
}

func TestSecondRunGivesTheSameBytes(t *testing.T) {
	var sums [2][32]byte
	var seen [2]string
	for i := range sums {
		j, l := newJob(t, "observe")
		data := t.TempDir()
		names := []string{"b", "a", "c", "d"}
		if i == 1 {
			names = []string{"d", "c", "b", "a"}
		}
		for _, n := range names {
			write(t, filepath.Join(data, n), n)
		}
		old := time.Unix(int64(1e9*(i+1)), 0)
		if err := os.Chtimes(filepath.Join(data, "a"), old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(data, "b"), []os.FileMode{0o600, 0o755}[i]); err != nil {
			t.Fatal(err)
		}
		j.Inputs = []runner.Mount{{Host: data, Guest: "/data"}}
		r := run(t, j)
		if r.State != runner.Exited || r.ExitCode != 0 {
			t.Fatalf("result = %+v, %s", r, l.err.String())
		}
		sum, _, err := runnertest.OutputsDigest(j.OutputDir("/out"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(j.OutputDir("/out"), "seen"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i], seen[i] = sum, string(b)
	}
	if d := cmp.Diff(seen[0], seen[1]); d != "" || sums[0] != sums[1] {
		t.Errorf("two runs differ (-first +second):\n%s", d)
	}
	for _, part := range []string{"2022-01-01 00:00:00", "/data [a b c d]", "1970-01-01"} {
		if !strings.Contains(seen[0], part) {
			t.Errorf("guest saw no %q in\n%s", part, seen[0])
		}
	}
}

func TestRelativePaths(t *testing.T) {
	j, l := newJob(t, "hello")
	t.Chdir(filepath.Dir(j.Dir))
	module, err := filepath.Rel(filepath.Dir(j.Dir), guestModule)
	if err != nil {
		t.Fatal(err)
	}
	j.Dir, j.Module = filepath.Base(j.Dir), module
	write(t, filepath.Join(j.Dir, "in", "x"), "")
	j.Inputs = []runner.Mount{{Host: filepath.Join(j.Dir, "in"), Guest: "/data"}}
	want(t, run(t, j), runner.Exited, 0, "")
	if l.out.String() != "hello\n" {
		t.Errorf("guest printed %q", l.out.String())
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
