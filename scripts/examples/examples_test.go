package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/runner/runnertest"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
	"github.com/lacuna-network/lacuna/scripts/examples"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// cacheDir is shared by the tests, so that the module is compiled once.
var cacheDir string

func TestMain(m *testing.M) {
	if code, ok := wasm.ChildMain(); ok {
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("", "examples-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cacheDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// output keeps what a job prints and calls line for each part.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	part func(string)
}

func (o *output) add(_ runner.Stream, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	if o.part != nil {
		o.part(string(p))
	}
}

// job lays out the example in a folder.
func job(t *testing.T, args ...string) (runner.Job, *output) {
	t.Helper()
	module, data := examples.Digits()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.wasm"), module, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "data"), data); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "scratch"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := &output{}
	return runner.Job{
		ID: "digits", Dir: filepath.Join(dir, "scratch"), Module: filepath.Join(dir, "m.wasm"), Args: args,
		Inputs:  []runner.Mount{{Host: filepath.Join(dir, "data"), Guest: "/data"}},
		Outputs: []string{"/out"}, Checkpoint: "/ckpt",
		MemBytes: 128 << 20, LogBytes: 64 << 10, DiskBytes: 4 << 20, Deadline: 5 * time.Minute, Log: o.add,
	}, o
}

func start(t *testing.T, j runner.Job) runner.Process {
	t.Helper()
	r, err := wasm.New(wasm.Options{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Start(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// finish runs a job to its good end and returns its outputs.
func finish(t *testing.T, j runner.Job, o *output) []runnertest.OutputFile {
	t.Helper()
	r := start(t, j).Result()
	if r.State != runner.Exited || r.ExitCode != 0 {
		t.Fatalf("result = %+v\n%s", r, o.b.String())
	}
	t.Logf("took %v, %d MB\n%s", r.Running, r.MaxRSSBytes>>20, o.b.String())
	_, files, err := runnertest.OutputsDigest(j.OutputDir("/out"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDigitsLearns(t *testing.T) {
	j, o := job(t)
	finish(t, j, o)
	b, err := os.ReadFile(filepath.Join(j.OutputDir("/out"), "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Accuracy, Loss float64
		Epochs         int
		TrainImages    int `json:"train_images"`
		TestImages     int `json:"test_images"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if m.Accuracy < 0.9 || m.Accuracy > 1 || m.Loss <= 0 || m.Loss > 0.5 {
		t.Errorf("metrics = %s, want an accuracy of 0.9 and more", b)
	}
	if m.Epochs != 6 || m.TrainImages != 4000 || m.TestImages != 1000 {
		t.Errorf("metrics = %s, want 6 epochs on 4000 and 1000 images", b)
	}
	if got := strings.Count(o.b.String(), "/6  loss 0."); got != 6 {
		t.Errorf("%d lines of progress, want 6", got)
	}
}

func TestDigitsResumesToTheSameBytes(t *testing.T) {
	args := []string{"-epochs", "4", "-images", "600"}
	j, o := job(t, args...)
	want := finish(t, j, o)
	if strings.Contains(o.b.String(), "resumed") {
		t.Errorf("run without a checkpoint says\n%s", o.b.String())
	}

	j, o = job(t, append(args[:len(args):len(args)], "-epochs", "400")...)
	second := make(chan struct{})
	var once sync.Once
	o.part = func(s string) {
		if strings.Contains(s, "epoch 2/") {
			once.Do(func() { close(second) })
		}
	}
	p := start(t, j)
	<-second
	// Stopped, not yet killed: the state that is there now is what would be
	// left of a machine that lost power here.
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(filepath.Join(j.OutputDir("/ckpt"), "state"))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill("winner is gone")
	if r := p.Result(); r.State != runner.Killed {
		t.Fatalf("result = %+v, want killed", r)
	}

	j, o = job(t, args...)
	j.Resumed = true
	if err := os.MkdirAll(j.OutputDir("/ckpt"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.OutputDir("/ckpt"), "state"), state, 0o600); err != nil {
		t.Fatal(err)
	}
	got := finish(t, j, o)
	if !strings.HasPrefix(o.b.String(), "resumed after epoch ") {
		t.Errorf("resumed run says\n%s", o.b.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("outputs (-uninterrupted +resumed):\n%s", d)
	}
}

func TestDigitsRefuses(t *testing.T) {
	tests := []struct {
		name string
		args []string
		ckpt string
		code int
		want string
	}{
		{"no epochs", []string{"-epochs", "0"}, "", 2, "Usage"},
		{"argument", []string{"x"}, "", 2, "Usage"},
		{"no data", []string{"-data", "/nowhere"}, "", 1, "/nowhere/train-images-idx3-ubyte.gz"},
		{"damaged checkpoint", nil, "half a state", 1, "read checkpoint: state is damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, o := job(t, tt.args...)
			if tt.ckpt != "" {
				if err := os.MkdirAll(j.OutputDir("/ckpt"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(j.OutputDir("/ckpt"), "state"), []byte(tt.ckpt), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := start(t, j).Result()
			if r.State != runner.Exited || r.ExitCode != tt.code || !strings.Contains(o.b.String(), tt.want) {
				t.Errorf("result = %+v, output %q, want exit code %d and %q", r, o.b.String(), tt.code, tt.want)
			}
		})
	}
}

func TestCommittedModuleIsFresh(t *testing.T) {
	version, err := os.ReadFile("digits/digits.wasm.go-version")
	if err != nil {
		t.Fatal(err)
	}
	if v := strings.TrimSpace(string(version)); v != runtime.Version() {
		t.Skipf("module was built by %s, this is %s", v, runtime.Version())
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		requiretest.Skip(t, "wasip1", err.Error())
	}
	out := filepath.Join(t.TempDir(), "digits.wasm")
	if msg, err := exec.Command(sh, "digits/build.sh", out).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, msg)
	}
	built, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if committed, _ := examples.Digits(); !bytes.Equal(built, committed) {
		t.Errorf("digits.wasm is stale (%d bytes, a rebuild has %d): run go generate in scripts/examples", len(committed), len(built))
	}
}
