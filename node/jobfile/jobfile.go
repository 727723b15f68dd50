// Package jobfile reads the file in which a renter says what to run and within which limits.
//
// [Parse] turns YAML (or JSON) into a [market.Spec], or reports everything that is wrong with it, each with its line
// and field. What the file does not say is left zero in the Spec: the owner's own defaults and [market.Spec.WithDefaults]
// fill it. The fields:
//
//	name: digits
//	wasm: train.wasm                        # the module, a file on this machine; the only field that must be there
//	command: [--epochs, "3"]                # arguments of the module
//	env: {EPOCHS: "3"}
//	inputs: [{from: ./data, to: /data}]     # file or folder here → path in the job
//	outputs: [{from: /out, to: ./results}]  # folder in the job → folder here
//	resources: {gpus: 1, gpu: [RTX 4090, A100], vram: 16GiB, cpus: 4, memory: 1GiB, disk: 20GiB}
//	tier: silver                            # gold, silver or bronze
//	limits: {price: 0.60 USD/h, budget: 5 USD, duration: 2h, start_within: 2m, interval: 10s, log: 16MiB}
//	survive: 8h
//	checkpoint: {path: /ckpt, every: 5m, grace: 30s}
//	place: {require: [EU], latency: 50ms, providers: [], exclude: []}
//
// Naming a gpu or vram without gpus means one GPU. Fields that are known but not in this version are refused by name,
// never ignored: a job must not run with less than its file asks for.
//
// The package opens no file; [Resolve] makes relative paths absolute. It is used by cmd and may be used concurrently.
//
// History: 2026-11-30 version 1.
package jobfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// laterFields are fields of the format that this version cannot honour, with what to do instead.
var laterFields = map[string]string{
	"image":    "use wasm",
	"secrets":  "a job gets no secrets",
	"registry": "use wasm",
	"keep":     "outputs are fetched when the job ends",
	"start":    "a job starts as soon as it is awarded",
	"audit":    "leave it out",
	"driver":   "leave it out",
	"retry":    "a lost job moves to another provider by itself",
	"matrix":   "submit one job per combination",
	"pool":     "a job runs on one provider",
	"network":  "a job has no network",
	"ports":    "a job has no network",

	"apiVersion": "a Kubernetes Job is not read", "kind": "a Kubernetes Job is not read", "metadata": "a Kubernetes Job is not read",
	"spec": "a Kubernetes Job is not read",

	"place.prefer": "use place.require", "place.min_success": "leave it out",
	"inputs.private": "inputs go to the winner alone", "inputs.digest": "inputs are files of this machine",
}

// fieldsOf maps the field that [market.Spec.Validate] names to the file's.
var fieldsOf = map[string]string{
	"gpus": "resources.gpus", "gpu": "resources.gpu", "cpus": "resources.cpus", "memory": "resources.memory", "disk": "resources.disk",
	"price": "limits.price", "budget": "limits.budget", "duration": "limits.duration", "start_within": "limits.start_within",
	"interval": "limits.interval", "wasm": "wasm", "name": "name", "survive": "survive", "tier": "tier", "inputs": "inputs",
	"outputs": "outputs", "checkpoint.path": "checkpoint.path", "checkpoint.every": "checkpoint.every",
	"checkpoint.grace": "checkpoint.grace", "place.require": "place.require", "place.latency": "place.latency",
}

// paths are the dotted fields, for suggestions when one stands in the wrong section.
var paths = []string{
	"resources.gpus", "resources.gpu", "resources.vram", "resources.cpus", "resources.memory", "resources.disk",
	"limits.price", "limits.budget", "limits.duration", "limits.start_within", "limits.interval", "limits.log",
	"checkpoint.every", "checkpoint.grace", "place.require", "place.latency", "place.providers", "place.exclude",
	"wasm", "name", "command", "env", "survive", "tier", "inputs", "outputs",
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Parse reads a job file; name stands in the messages. What the file leaves out is zero in the Spec. The error joins
// one [*strictyaml.Fault] for each thing that is wrong.
func Parse(data []byte, name string) (market.Spec, error) {
	doc, root, err := strictyaml.Parse(name, data)
	if err != nil {
		return market.Spec{}, err
	}
	if root.Empty() {
		return market.Spec{}, &strictyaml.Fault{File: name, Msg: "empty; it needs at least wasm: FILE.wasm"}
	}
	r := reader{doc: doc}
	r.root(root)
	if err := doc.Err(); err != nil {
		return market.Spec{}, err // with fields missing the checks below would report what is not wrong
	}
	s := r.spec
	if s.GPUs == 0 && (len(s.Models) > 0 || s.VRAMBytes > 0) {
		if r.gpusGiven {
			doc.FailAt("resources.gpus", "0, but gpu or vram asks for one; want 1 or more")
		}
		s.GPUs = 1
	}
	r.whole(s)
	return s, doc.Err()
}

// whole holds the Spec against the rules that span fields.
func (r *reader) whole(s market.Spec) {
	err := s.WithDefaults().Validate()
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		field, msg, ok := strings.Cut(line, ": ")
		first, _, _ := strings.Cut(field, ",")
		if path := fieldsOf[first]; ok && path != "" {
			r.doc.FailAt(path, "%s", msg)
		} else {
			r.doc.FailAt("", "%s", line)
		}
	}
}

// reader fills a Spec from the file.
type reader struct {
	doc       *strictyaml.Doc
	spec      market.Spec
	gpusGiven bool
}

// fields reads a map; later fields of its section are refused by name.
func (r *reader) fields(v strictyaml.Value, section string, known map[string]func(strictyaml.Value)) {
	for field, instead := range laterFields {
		if name, ok := strings.CutPrefix(field, section); ok && !strings.Contains(name, ".") {
			known[name] = func(v strictyaml.Value) { v.Fail("not in this version; %s", instead) }
		}
	}
	v.Map(known, paths...)
}

func (r *reader) root(v strictyaml.Value) {
	s := &r.spec
	r.fields(v, "", map[string]func(strictyaml.Value){
		"name":    func(v strictyaml.Value) { into(v, &s.Name, nonEmpty) },
		"wasm":    func(v strictyaml.Value) { into(v, &s.Module, localPath) },
		"command": func(v strictyaml.Value) { s.Args = r.command(v) },
		"env":     func(v strictyaml.Value) { s.Env = r.env(v) },
		"inputs":  func(v strictyaml.Value) { s.Inputs = r.transfers(v, localPath, nonEmpty) },
		"outputs": func(v strictyaml.Value) { s.Outputs = r.transfers(v, nonEmpty, localPath) },
		"tier":    func(v strictyaml.Value) { into(v, &s.Tier, market.ParseTier) },
		"survive": func(v strictyaml.Value) { into(v, &s.Survive, strictyaml.Duration) },
		"resources": func(v strictyaml.Value) {
			r.fields(v, "resources.", map[string]func(strictyaml.Value){
				"gpus":   func(v strictyaml.Value) { r.gpusGiven = true; into(v, &s.GPUs, count(0)) },
				"gpu":    func(v strictyaml.Value) { each(v, &s.Models, model) },
				"vram":   func(v strictyaml.Value) { into(v, &s.VRAMBytes, size) },
				"cpus":   func(v strictyaml.Value) { into(v, &s.CPUs, count(1)) },
				"memory": func(v strictyaml.Value) { into(v, &s.MemBytes, size) },
				"disk":   func(v strictyaml.Value) { into(v, &s.DiskBytes, size) },
			})
		},
		"limits": func(v strictyaml.Value) {
			r.fields(v, "limits.", map[string]func(strictyaml.Value){
				"price":        func(v strictyaml.Value) { into(v, &s.MaxPrice, positive(market.ParsePrice)) },
				"budget":       func(v strictyaml.Value) { into(v, &s.Budget, positive(market.ParseUSD)) },
				"duration":     func(v strictyaml.Value) { into(v, &s.Duration, strictyaml.Duration) },
				"start_within": func(v strictyaml.Value) { into(v, &s.StartWithin, strictyaml.Duration) },
				"interval":     func(v strictyaml.Value) { into(v, &s.Interval, strictyaml.Duration) },
				"log":          func(v strictyaml.Value) { into(v, &s.LogBytes, size) },
			})
		},
		"checkpoint": func(v strictyaml.Value) {
			r.fields(v, "checkpoint.", map[string]func(strictyaml.Value){
				"path":  func(v strictyaml.Value) { into(v, &s.Checkpoint, nonEmpty) },
				"every": func(v strictyaml.Value) { into(v, &s.Every, strictyaml.Duration) },
				"grace": func(v strictyaml.Value) { into(v, &s.Grace, strictyaml.Duration) },
			})
			if s.Checkpoint == "" {
				v.Fail("no path; want the job's folder for checkpoints, such as path: /ckpt")
			}
		},
		"place": func(v strictyaml.Value) {
			r.fields(v, "place.", map[string]func(strictyaml.Value){
				"require":   func(v strictyaml.Value) { each(v, &s.Require, market.ParsePlace) },
				"latency":   func(v strictyaml.Value) { into(v, &s.Latency, strictyaml.Duration) },
				"providers": func(v strictyaml.Value) { each(v, &s.Providers, attest.ParseKey) },
				"exclude":   func(v strictyaml.Value) { each(v, &s.Exclude, attest.ParseKey) },
			})
		},
	})
}

func (r *reader) command(v strictyaml.Value) []string {
	if !v.IsList() {
		v.Fail(`want a list of arguments for the module, such as [--epochs, "3"]; there is no shell that would split a line`)
		return nil
	}
	var out []string
	for _, e := range v.List() {
		if s, ok := e.Text(); ok {
			if strings.Contains(s, "\x00") {
				e.Fail("holds a zero byte")
			}
			out = append(out, s)
		}
	}
	return out
}

func (r *reader) env(v strictyaml.Value) map[string]string {
	if v.Empty() {
		return nil
	}
	out := map[string]string{}
	for _, p := range v.Pairs() {
		s, ok := p.Value.Text()
		switch {
		case !ok:
		case !envName.MatchString(p.Key):
			p.At.Fail("want a name of letters, digits and _")
		case strings.Contains(s, "\x00"):
			p.Value.Fail("holds a zero byte")
		default:
			out[p.Key] = s
		}
	}
	return out
}

func (r *reader) transfers(v strictyaml.Value, from, to func(string) (string, error)) []market.Transfer {
	section := v.Path() + "."
	var out []market.Transfer
	for _, e := range v.List() {
		var t market.Transfer
		r.fields(e, section, map[string]func(strictyaml.Value){
			"from": func(v strictyaml.Value) { into(v, &t.From, from) },
			"to":   func(v strictyaml.Value) { into(v, &t.To, to) },
		})
		if t.From == "" || t.To == "" {
			e.Fail("want both from and to")
		}
		out = append(out, t)
	}
	return out
}

// into parses the one value at v.
func into[T any](v strictyaml.Value, p *T, parse func(string) (T, error)) {
	s, ok := v.Text()
	if !ok {
		return
	}
	got, err := parse(s)
	if err != nil {
		v.Fail("%s", err)
		return
	}
	*p = got
}

// each parses a list, or one value that stands for a list of one. Nothing may stand in it twice.
func each[T comparable](v strictyaml.Value, p *[]T, parse func(string) (T, error)) {
	entries := []strictyaml.Value{v}
	if v.IsList() {
		entries = v.List()
	}
	for _, e := range entries {
		s, ok := e.Text()
		if !ok {
			continue
		}
		got, err := parse(s)
		switch {
		case err != nil:
			e.Fail("%s", err)
		case slices.Contains(*p, got):
			e.Fail("%q stands there twice", s)
		default:
			*p = append(*p, got)
		}
	}
}

func nonEmpty(s string) (string, error) {
	if s == "" {
		return "", errors.New("empty")
	}
	return s, nil
}

func localPath(s string) (string, error) {
	if i := strings.Index(s, "://"); i > 0 {
		return "", fmt.Errorf("%q: %s is not in this version; want a path on this machine", s, s[:i+3])
	}
	return nonEmpty(s)
}

func model(s string) (string, error) {
	if s = strings.TrimSpace(s); s == "" || len(s) > 64 {
		return "", errors.New("want a GPU's name of at most 64 characters, such as RTX 4090")
	}
	return s, nil
}

func size(s string) (uint64, error) {
	n, err := market.ParseBytes(s)
	if err == nil && n == 0 {
		err = errors.New("want more than 0")
	}
	return n, err
}

func count(least int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || int(n) < least || n > 64 {
			return 0, fmt.Errorf("%q: want a whole number, %d to 64", s, least)
		}
		return int(n), nil
	}
}

func positive(parse func(string) (market.MicroUSD, error)) func(string) (market.MicroUSD, error) {
	return func(s string) (market.MicroUSD, error) {
		m, err := parse(s)
		if err == nil && m == 0 {
			err = errors.New("want more than 0")
		}
		return m, err
	}
}

// Resolve returns s with the paths of this machine absolute: relative ones are taken from dir, the folder of the job
// file.
func Resolve(s market.Spec, dir string) market.Spec {
	abs := func(p string) string {
		if p == "" || filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	s.Module = abs(s.Module)
	s.Inputs, s.Outputs = slices.Clone(s.Inputs), slices.Clone(s.Outputs)
	for i := range s.Inputs {
		s.Inputs[i].From = abs(s.Inputs[i].From)
	}
	for i := range s.Outputs {
		s.Outputs[i].To = abs(s.Outputs[i].To)
	}
	return s
}

// Defaults are the owner's own, for what a job file leaves out.
type Defaults struct {
	MaxPrice market.MicroUSD
	Budget   market.MicroUSD
	Survive  time.Duration
	Interval time.Duration
	Exclude  []attest.Key // never rented from, whatever the file says
}

// Apply returns s with the owner's defaults where s has none, and with the owner's exclusions added.
func (d Defaults) Apply(s market.Spec) market.Spec {
	fill(&s.MaxPrice, d.MaxPrice)
	fill(&s.Budget, d.Budget)
	fill(&s.Survive, d.Survive)
	fill(&s.Interval, d.Interval)
	s.Exclude = slices.Clone(s.Exclude)
	for _, k := range d.Exclude {
		if !slices.Contains(s.Exclude, k) {
			s.Exclude = append(s.Exclude, k)
		}
	}
	return s
}

func fill[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
