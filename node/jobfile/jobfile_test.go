package jobfile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/jobfile"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

const peer = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"

func key(t testing.TB) attest.Key {
	t.Helper()
	k, err := attest.ParseKey(peer)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const full = `
name: digits
wasm: train.wasm
command: [--epochs, 3, "a b"]
env: {EPOCHS: "3", N: 1_0, ON: true}
inputs:
  - {from: ./data, to: /data}
  - from: /abs
    to: /more
outputs: [{from: /out, to: ./results}]
resources: {gpus: 2, gpu: [RTX 4090, A100], vram: 16GiB, cpus: 4, memory: 1.5Gi, disk: 20GB}
tier: bronze
limits: {price: 0.60 USD/h, budget: $5, duration: 2h, start_within: 2m, interval: 1s, log: 1MiB}
survive: 8h
checkpoint: {path: /ckpt, every: 5m, grace: 30s}
place: {require: [EU, na/us], latency: 50ms, providers: [` + peer + `], exclude: []}
`

func TestParse(t *testing.T) {
	want := market.Spec{
		Name: "digits", Module: "train.wasm", Args: []string{"--epochs", "3", "a b"},
		Env:     map[string]string{"EPOCHS": "3", "N": "1_0", "ON": "true"},
		Inputs:  []market.Transfer{{From: "./data", To: "/data"}, {From: "/abs", To: "/more"}},
		Outputs: []market.Transfer{{From: "/out", To: "./results"}},
		GPUs:    2, CPUs: 4, Models: []string{"RTX 4090", "A100"}, VRAMBytes: 16 << 30, MemBytes: 3 << 29, DiskBytes: 20e9, LogBytes: 1 << 20,
		Tier: market.Bronze, MaxPrice: 600_000, Budget: 5 * market.USD, Duration: 2 * time.Hour, StartWithin: 2 * time.Minute,
		Survive: 8 * time.Hour, Interval: time.Second, Checkpoint: "/ckpt", Every: 5 * time.Minute, Grace: 30 * time.Second,
		Require: []market.Place{{Continent: "eu"}, {Continent: "na", Country: "us"}}, Latency: 50 * time.Millisecond, Providers: []attest.Key{key(t)},
	}
	got, err := jobfile.Parse([]byte(full), "job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	small, err := jobfile.Parse([]byte("{\n\t\"wasm\": \"a.wasm\"\n}"), "job.json")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(market.Spec{Module: "a.wasm"}, small); d != "" {
		t.Errorf("what the file leaves out is not zero (-want +got):\n%s", d)
	}
}

func TestNamingAGPUMeansOne(t *testing.T) {
	for name, resources := range map[string]string{"gpu": "{gpu: A100}", "vram": "{vram: 16GB}"} {
		s, err := jobfile.Parse([]byte("wasm: a\nresources: "+resources), "")
		if err != nil || s.GPUs != 1 {
			t.Errorf("%s alone: %d GPUs, %v, want 1", name, s.GPUs, err)
		}
	}
}

func TestFaultsNameLineAndField(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string // one fault each, in order
	}{
		{"empty", "", []string{"job.yaml: empty; it needs at least wasm"}},
		{"no module", "name: x\n", []string{"job.yaml: wasm: no module"}},
		{"image", "name: x\n\n\nimage: ubuntu\n", []string{"line 4, column 8: image: not in this version; use wasm"}},
		{"all later fields at once", "wasm: a\nsecrets: {}\nmatrix: {A: [1]}\npool: {nodes: 4}\nports: [1]\nregistry: {}\n", []string{
			"line 2, column 1: secrets: not in this version", "line 3, column 1: matrix: not in this version; submit one job per combination",
			"line 4, column 1: pool: not in this version", "line 5, column 8: ports: not in this version", "line 6, column 1: registry: not in this version"}},
		{"later field of a section", "wasm: a\nplace: {prefer: [de]}\n", []string{"line 2, column 17: place.prefer: not in this version; use place.require"}},
		{"later field of an input", "wasm: a\ninputs:\n- {from: a, to: /a, private: true}\n", []string{"line 3, column 30: inputs[0].private: not in this version"}},
		{"kubernetes", "apiVersion: batch/v1\nkind: Job\n", []string{"apiVersion: not in this version; a Kubernetes Job", "kind: not in this version"}},
		{"typing error", "wasm: a\nlimits:\n  bugdet: 5 USD\n", []string{"line 3, column 3: limits.bugdet: unknown; did you mean budget?"}},
		{"wrong section", "wasm: a\nprice: 1\n", []string{"line 2, column 1: price: unknown; did you mean limits.price?"}},
		{"prefix of no other field", "wasm: a\nvram: 1GiB\n", []string{"vram: unknown; did you mean resources.vram?"}},
		{"price with a comma", "wasm: a\nlimits: {price: \"0,5\"}\n", []string{"line 2, column 17: limits.price: price \"0,5\": want US dollars"}},
		{"price in euro", "wasm: a\nlimits: {price: 0.5 EUR/h}\n", []string{"limits.price: "}},
		{"price with underscore", "wasm: a\nlimits: {price: 1_000}\n", []string{"limits.price: "}},
		{"hexadecimal price", "wasm: a\nlimits: {price: 0x1p-2}\n", []string{"limits.price: "}},
		{"price NaN", "wasm: a\nlimits: {price: .nan}\n", []string{"limits.price: "}},
		{"no price", "wasm: a\nlimits: {price: }\n", []string{"limits.price: want a value, not nothing"}},
		{"price 0", "wasm: a\nlimits: {price: 0}\n", []string{"limits.price: want more than 0"}},
		{"size without unit", "wasm: a\nresources: {memory: 16384}\n", []string{"line 2, column 21: resources.memory: size \"16384\" has no unit"}},
		{"thousandth of a byte", "wasm: a\nresources: {memory: 400m}\n", []string{"resources.memory: "}},
		{"negative size", "wasm: a\nresources: {memory: -1G}\n", []string{"resources.memory: "}},
		{"huge size", "wasm: a\nresources: {disk: 99999999T}\n", []string{"resources.disk: "}},
		{"memory out of range", "wasm: a\nresources: {memory: 16GiB}\n", []string{"line 2: resources.memory: a WASM job takes 1MiB to 4GiB"}},
		{"bare duration", "wasm: a\nlimits: {duration: 60}\n", []string{"limits.duration: duration \"60\" has no unit"}},
		{"survive below the interval", "wasm: a\nsurvive: 5s\n", []string{"line 2: survive: want at least the interval"}},
		{"fraction of a GPU", "wasm: a\nresources: {gpus: 0.5}\n", []string{"resources.gpus: \"0.5\": want a whole number"}},
		{"gpu but none", "wasm: a\nresources: {gpus: 0, gpu: A100}\n", []string{"line 2: resources.gpus: 0, but gpu or vram"}},
		{"no CPU", "wasm: a\nresources: {cpus: 0}\n", []string{"resources.cpus: \"0\": want a whole number, 1 to 64"}},
		{"command line", "wasm: a\ncommand: python train.py\n", []string{"line 2, column 10: command: want a list"}},
		{"environment name", "wasm: a\nenv: {\"A B\": 1}\n", []string{"line 2, column 7: env.A B: want a name"}},
		{"environment value", "wasm: a\nenv: {A: [1]}\n", []string{"env.A: want a value, not a list"}},
		{"input from the web", "wasm: a\ninputs: [{from: https://x/y, to: /a}]\n", []string{"line 2, column 17: inputs[0].from: \"https://x/y\": https:// is not in this version", "want both"}},
		{"output without to", "wasm: a\noutputs: [{from: /out}]\n", []string{"outputs[0]: want both from and to"}},
		{"guest path", "wasm: a\noutputs: [{from: out, to: x}]\n", []string{"line 2: outputs: \"out\" is not an absolute path"}},
		{"path taken twice", "wasm: a\ninputs: [{from: a, to: /x}]\noutputs: [{from: /x, to: b}]\n", []string{"line 3: outputs: \"/x\" is taken by inputs"}},
		{"checkpoint without path", "wasm: a\ncheckpoint: {every: 5m}\n", []string{"checkpoint: no path"}},
		{"tier", "wasm: a\ntier: diamond\n", []string{"line 2, column 7: tier: tier \"diamond\": want gold, silver or bronze"}},
		{"place", "wasm: a\nplace: {require: [EU, mars]}\n", []string{"line 2, column 23: place.require[1]: "}},
		{"latency without a unit", "wasm: a\nplace: {latency: 50}\n", []string{"line 2, column 18: place.latency: duration \"50\" has no unit"}},
		{"latency of nothing", "wasm: a\nplace: {latency: 1us}\n", []string{"line 2: place.latency: want 1ms to 10s"}},
		{"peer", "wasm: a\nplace: {providers: joe}\n", []string{"line 2, column 20: place.providers: peer id"}},
		{"several at once", "wasm: a\nlimits: {price: x, budget: y}\ntier: z\n", []string{"limits.price", "limits.budget", "tier"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jobfile.Parse([]byte(tt.in), "job.yaml")
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d faults, want %d:\n%v", len(lines), len(tt.want), err)
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %q, want %q in it", lines[i], want)
				}
			}
			if f := (*strictyaml.Fault)(nil); !errors.As(err, &f) {
				t.Errorf("error %T holds no fault", err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	in := market.Spec{Module: "a.wasm", Inputs: []market.Transfer{{From: "./d", To: "/d"}, {From: "/abs", To: "/e"}}, Outputs: []market.Transfer{{From: "/o", To: "../r"}}}
	want := market.Spec{Module: "/jobs/x/a.wasm", Inputs: []market.Transfer{{From: "/jobs/x/d", To: "/d"}, {From: "/abs", To: "/e"}}, Outputs: []market.Transfer{{From: "/o", To: "/jobs/r"}}}
	if d := cmp.Diff(want, jobfile.Resolve(in, "/jobs/x")); d != "" {
		t.Errorf("Resolve (-want +got):\n%s", d)
	}
	if in.Inputs[0].From != "./d" {
		t.Error("Resolve changed its argument")
	}
}

func TestDefaultsFillOnlyWhatIsMissing(t *testing.T) {
	d := jobfile.Defaults{MaxPrice: 7, Budget: 8, Survive: time.Hour, Interval: time.Minute, Exclude: []attest.Key{{1}, {2}}}
	got := d.Apply(market.Spec{MaxPrice: 1, Survive: time.Second, Exclude: []attest.Key{{2}}})
	want := market.Spec{MaxPrice: 1, Budget: 8, Survive: time.Second, Interval: time.Minute, Exclude: []attest.Key{{2}, {1}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Apply (-want +got):\n%s", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("wasm: a\nlimits: {price: 1}")
	f.Add("{\"wasm\": \"x\", \"env\": {\"A\": null}}")
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := jobfile.Parse([]byte(s), "f")
		if err != nil {
			return
		}
		if err := spec.WithDefaults().Validate(); err != nil {
			t.Errorf("Parse lets through what Validate refuses: %v", err)
		}
	})
}
