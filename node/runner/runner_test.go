package runner_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/runner"
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
	sum, files, err := runner.OutputsDigest(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []runner.OutputFile{
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
	if again, _, err := runner.OutputsDigest(dir); err != nil || again != sum {
		t.Errorf("digest after changed time and mode = %x, %v, want %x", again, err, sum)
	}
	write(t, filepath.Join(dir, "b"), "twO")
	if other, _, err := runner.OutputsDigest(dir); err != nil || other == sum {
		t.Errorf("digest after changed content = %x, %v, want another", other, err)
	}
	write(t, filepath.Join(dir, "x\ny"), "")
	if _, _, err := runner.OutputsDigest(dir); err == nil {
		t.Error("digest of a path with a line break: no error")
	}
	if _, _, err := runner.OutputsDigest(filepath.Join(dir, "missing")); err == nil {
		t.Error("digest of a missing folder: no error")
	}
}

func TestJobValidate(t *testing.T) {
	tests := []struct {
		name string
		edit func(*runner.Job)
		want string // part of the error, "" for none
	}{
		{"good", func(*runner.Job) {}, ""},
		{"no folder", func(j *runner.Job) { j.Dir = "" }, "no scratch folder"},
		{"no module", func(j *runner.Job) { j.Module = "" }, "no module"},
		{"no memory", func(j *runner.Job) { j.MemBytes = 0 }, "no memory"},
		{"negative deadline", func(j *runner.Job) { j.Deadline = -1 }, "negative deadline"},
		{"relative", func(j *runner.Job) { j.Outputs = []string{"out"} }, "not absolute"},
		{"dots", func(j *runner.Job) { j.Outputs = []string{"/out/../.."} }, "not absolute"},
		{"root", func(j *runner.Job) { j.Checkpoint = "/" }, "not absolute"},
		{"same twice", func(j *runner.Job) { j.Outputs = []string{"/o", "/o"} }, "lie in one another"},
		{"output in input", func(j *runner.Job) { j.Outputs = []string{"/data/out"} }, "lie in one another"},
		{"tmp taken", func(j *runner.Job) { j.Outputs = []string{"/tmp/out"} }, "lie in one another"},
		{"siblings", func(j *runner.Job) { j.Outputs = []string{"/data2", "/dat"} }, ""},
		{"env name", func(j *runner.Job) { j.Env = map[string]string{"a=b": ""} }, "environment"},
		{"env value", func(j *runner.Job) { j.Env = map[string]string{"a": "\x00"} }, "environment"},
		{"argument", func(j *runner.Job) { j.Args = []string{"\x00"} }, "argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := runner.Job{
				Dir: "d", Module: "m", MemBytes: 1, Outputs: []string{"/out"}, Checkpoint: "/ckpt",
				Inputs: []runner.Mount{{Host: "h", Guest: "/data"}},
			}
			tt.edit(&j)
			err := j.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate() = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	want := []string{
		"state(0)", "exited", "output_limit", "memory_limit", "disk_limit", "deadline", "killed",
		"trapped", "invalid_module", "crashed", "state(10)",
	}
	for i, w := range want {
		if got := runner.State(i).String(); got != w {
			t.Errorf("State(%d) = %q, want %q", i, got, w)
		}
	}
	if got := fmt.Sprint(runner.Stream(0), runner.Stdout, runner.Stderr); got != "stream(0) stdout stderr" {
		t.Errorf("streams = %q", got)
	}
}
