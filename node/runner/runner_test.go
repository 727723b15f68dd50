package runner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/node/runner"
)

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
