package gputest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/gpu/gputest"
)

const full = `[
 {"model": "RTX 4090", "id": "SIM-a1", "memory": "24GiB", "count": 1, "price": "0.21 USD/h", "place": "eu/de/berlin",
  "load": [{"for": "10s", "util": 9500, "power_mw": 380000, "mem_mib": 18000, "temp_c": 66},
           {"for": "5s", "util": 100, "power_mw": 90000}],
  "idle": {"util": 0, "power_mw": 21000, "temp_c": 38},
  "faults": [{"kind": "lost", "lease": 2, "after": "1500ms"}, {"kind": "xid", "lease": 3, "after": "1s"}],
  "owner": [{"at": "20s", "for": "10s", "util": 7000}]},
 {"model": "A100", "memory": "80GB", "count": 2, "unreadable": ["power", "ecc", "xids", "retired_pages"],
  "idle": {"util": 3, "power_mw": 5}}
]`

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func parse(t *testing.T, text string) *gputest.Set {
	t.Helper()
	s, err := gputest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDevices(t *testing.T) {
	s := parse(t, full)
	got, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []gpu.Device{
		{ID: "SIM-a1", Name: "NVIDIA GeForce RTX 4090", Model: "RTX 4090", Class: "nv-24g", MemBytes: 24 * gpu.GiB, Simulated: true},
		{ID: "SIM-a100-2", Name: "NVIDIA A100-SXM4-80GB", Model: "A100 SXM4 80GB", Class: "nv-80g", MemBytes: 80e9, Simulated: true},
		{ID: "SIM-a100-3", Name: "NVIDIA A100-SXM4-80GB", Model: "A100 SXM4 80GB", Class: "nv-80g", MemBytes: 80e9, Simulated: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Devices (-want +got):\n%s", diff)
	}
	if s.Price("SIM-a1") != "0.21 USD/h" || s.Price("SIM-a100-2") != "" || s.Price("other") != "" || s.Place() != "eu/de/berlin" {
		t.Errorf("price %q, place %q", s.Price("SIM-a1"), s.Place())
	}
}

func TestIDsAndMemory(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		id         string
		mem        uint64
	}{
		{"registry memory", `[{"model":"NVIDIA GeForce RTX 4090"}]`, "SIM-nvidiageforcertx4090-1", 24 * gpu.GiB},
		{"count adds a number", `[{"model":"T4","id":"SIM-x","count":2}]`, "SIM-x-1", 16 * gpu.GiB},
		{"unregistered", `[{"model":"Thing 1","memory":"512MB"}]`, "SIM-thing1-1", 512e6},
		{"driver's figure", `[{"model":"RTX 4090","memory":"24564MiB"}]`, "SIM-rtx4090-1", 24564 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devices, _ := parse(t, tt.text).Devices()
			if d := devices[0]; d.ID != tt.id || d.MemBytes != tt.mem {
				t.Errorf("id %q, %d bytes, want %q, %d", d.ID, d.MemBytes, tt.id, tt.mem)
			}
		})
	}
}

func TestSampleFollowsTheLease(t *testing.T) {
	s := parse(t, full)
	s.Start(epoch)
	read := func(d time.Duration) gpu.Sample {
		t.Helper()
		got, err := s.Sample("SIM-a1", at(d))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	base := func(d time.Duration) gpu.Sample {
		return gpu.Sample{Device: "SIM-a1", At: at(d), ECCErrors: new(uint64), XIDs: new(uint64), RetiredPages: new(uint64)}
	}
	check := func(what string, got, want gpu.Sample) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}

	idle := base(time.Second)
	idle.UtilBP, idle.PowerMW, idle.TempC = new(uint64(0)), new(uint64(21000)), new(uint64(38))
	check("idle", read(time.Second), idle)

	if err := s.LeaseStarted("SIM-a1", at(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{2 * time.Second, 11 * time.Second, 18 * time.Second} { // the last: second round
		load := base(d)
		load.UtilBP, load.PowerMW, load.MemUsedMiB, load.TempC = new(uint64(9500)), new(uint64(380000)), new(uint64(18000)), new(uint64(66))
		check("first step at "+d.String(), read(d), load)
	}
	second := base(12 * time.Second)
	second.UtilBP, second.PowerMW = new(uint64(100)), new(uint64(90000))
	check("second step: what it leaves out is absent", read(12*time.Second), second)

	if err := s.LeaseEnded("SIM-a1"); err != nil {
		t.Fatal(err)
	}
	owner := base(20 * time.Second)
	owner.UtilBP, owner.PowerMW, owner.TempC = new(uint64(7000)), new(uint64(21000)), new(uint64(38))
	check("owner over idle", read(20*time.Second), owner)

	*read(20 * time.Second).UtilBP = 1
	check("a sample is the caller's own", read(20*time.Second), owner)
}

func TestOwnerActive(t *testing.T) {
	s := parse(t, full)
	for _, tt := range []struct {
		name string
		at   time.Duration // the first one starts the set
		want bool
	}{
		{"start", 0, false},
		{"before", 19999 * time.Millisecond, false},
		{"first instant", 20 * time.Second, true},
		{"last instant", 30*time.Second - 1, true},
		{"after", 30 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := s.OwnerActive("SIM-a1", at(tt.at)); got != tt.want {
				t.Errorf("OwnerActive(%v) = %v, want %v", tt.at, got, tt.want)
			}
		})
	}
	if s.OwnerActive("SIM-a100-2", at(25*time.Second)) || s.OwnerActive("other", at(25*time.Second)) {
		t.Error("owner active on another device")
	}
}

func TestFaultBefallsItsLease(t *testing.T) {
	s := parse(t, full)
	fault := func(d time.Duration) string {
		kind, ok := s.Fault("SIM-a1", at(d))
		if ok != (kind != "") {
			t.Errorf("Fault = %q, %v", kind, ok)
		}
		return kind
	}
	start := func(d time.Duration) {
		t.Helper()
		if err := s.LeaseStarted("SIM-a1", at(d)); err != nil {
			t.Fatal(err)
		}
	}
	start(0)
	if got := fault(time.Hour); got != "" {
		t.Errorf("first lease: %q", got)
	}
	start(100 * time.Second) // replaces the first: the second lease
	if got := fault(101*time.Second + 499*time.Millisecond); got != "" {
		t.Errorf("too early: %q", got)
	}
	for range 2 { // asking changes nothing
		if got := fault(101*time.Second + 500*time.Millisecond); got != gputest.KindLost {
			t.Errorf("second lease: %q, want lost", got)
		}
	}
	if _, err := s.Sample("SIM-a1", at(102*time.Second)); !errors.Is(err, gputest.ErrLost) {
		t.Errorf("Sample of a lost device: %v, want ErrLost", err)
	}
	if err := s.LeaseEnded("SIM-a1"); err != nil {
		t.Fatal(err)
	}
	if got := fault(200 * time.Second); got != "" {
		t.Errorf("after the lease: %q", got)
	}
	start(300 * time.Second)
	got, err := s.Sample("SIM-a1", at(301*time.Second))
	if err != nil || *got.XIDs != 1 || *got.ECCErrors != 0 || fault(301*time.Second) != gputest.KindXID {
		t.Errorf("third lease: %+v, %v", got, err)
	}
}

func TestLostGoesBeforeOtherFaults(t *testing.T) {
	s := parse(t, `[{"model":"T4","id":"SIM-1","faults":[
		{"kind":"lost","after":"3s"},{"kind":"ecc","after":"2s"},{"kind":"hang","after":"1s"}]}]`)
	if err := s.LeaseStarted("SIM-1", epoch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "hang", "hang", "lost"} {
		if got, _ := s.Fault("SIM-1", at(time.Duration(i)*time.Second)); got != want {
			t.Errorf("after %d s: %q, want %q", i, got, want)
		}
	}
}

func TestUnreadableIsAbsent(t *testing.T) {
	s := parse(t, full)
	got, err := s.Sample("SIM-a100-2", epoch)
	if err != nil {
		t.Fatal(err)
	}
	want := gpu.Sample{Device: "SIM-a100-2", At: epoch, UtilBP: new(uint64(3))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Sample (-want +got):\n%s", diff)
	}
}

func TestUnknownDevice(t *testing.T) {
	s := parse(t, full)
	_, err := s.Sample("0", epoch)
	for _, err := range []error{err, s.LeaseStarted("0", epoch), s.LeaseEnded("0")} {
		if !errors.Is(err, gputest.ErrNoDevice) {
			t.Errorf("%v, want ErrNoDevice", err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		wants      []string // in the message
	}{
		{"unknown key", `[{"model":"T4","utl":1}]`, []string{"entry 1", `"utl"`, "known keys: count, faults, id, idle, load, memory, model, owner, place, price, unreadable"}},
		{"unknown key in a step", `[{"model":"T4","load":[{"for":"1s","power":1}]}]`, []string{"load: entry 1", `"power"`, "power_mw"}},
		{"key in another case", `[{"Model":"T4"}]`, []string{`"Model"`}},
		{"key twice", `[{"model":"T4","model":"L4"}]`, []string{"model", "twice"}},
		{"no model", `[{"count":1}]`, []string{"model", "missing"}},
		{"size without a unit", `[{"model":"T4","memory":"16"}]`, []string{"memory", "GiB"}},
		{"size as a number", `[{"model":"T4","memory":16}]`, []string{"memory", "24GiB"}},
		{"size with a short unit", `[{"model":"T4","memory":"16G"}]`, []string{"memory"}},
		{"size of 0", `[{"model":"T4","memory":"0GiB"}]`, []string{"memory"}},
		{"size beyond uint64", `[{"model":"T4","memory":"18446744073709551615GiB"}]`, []string{"memory"}},
		{"size of another card", `[{"model":"RTX 4090","memory":"48GiB"}]`, []string{"memory", "RTX 4090"}},
		{"model of several cards", `[{"model":"A100"}]`, []string{"A100 SXM4 40GB", "A100 PCIe 80GB"}},
		{"unregistered without memory", `[{"model":"RTX 9999"}]`, []string{"memory", "RTX 9999"}},
		{"id without prefix", `[{"model":"T4","id":"GPU-1"}]`, []string{"SIM-"}},
		{"id twice", `[{"model":"T4","id":"SIM-1"},{"model":"T4","id":"SIM-1"}]`, []string{"entry 2", "SIM-1"}},
		{"unprintable id", `[{"model":"T4","id":"SIM-\u0007"}]`, []string{"id"}},
		{"two places", `[{"model":"T4","place":"eu"},{"model":"T4","place":"us"}]`, []string{"place"}},
		{"count of 0", `[{"model":"T4","count":0}]`, []string{"count"}},
		{"too many", `[{"model":"T4","count":1024},{"model":"T4"}]`, []string{"1024"}},
		{"negative reading", `[{"model":"T4","idle":{"util":-1}}]`, []string{"idle: util"}},
		{"fraction", `[{"model":"T4","idle":{"util":1.5}}]`, []string{"idle: util"}},
		{"above 100 %", `[{"model":"T4","idle":{"util":10001}}]`, []string{"10000"}},
		{"null reading", `[{"model":"T4","idle":{"util":null}}]`, []string{"idle: util"}},
		{"step without for", `[{"model":"T4","load":[{"util":1}]}]`, []string{"for: is missing"}},
		{"step of no time", `[{"model":"T4","load":[{"for":"0s"}]}]`, []string{"for"}},
		{"duration without a unit", `[{"model":"T4","load":[{"for":"10"}]}]`, []string{"for", "10"}},
		{"duration as a number", `[{"model":"T4","load":[{"for":10}]}]`, []string{"for", "1500ms"}},
		{"load too long", `[{"model":"T4","load":[{"for":"8000h"},{"for":"8000h"}]}]`, []string{"load"}},
		{"fault of an unknown kind", `[{"model":"T4","faults":[{"kind":"fire"}]}]`, []string{"fire", "lost, hang, xid, ecc"}},
		{"fault of lease 0", `[{"model":"T4","faults":[{"kind":"lost","lease":0}]}]`, []string{"lease"}},
		{"owner in the past", `[{"model":"T4","owner":[{"at":"-1s","for":"1s"}]}]`, []string{"owner", "at"}},
		{"unknown reading", `[{"model":"T4","unreadable":["fan"]}]`, []string{"fan", "power"}},
		{"null list", `[{"model":"T4","load":null}]`, []string{"load"}},
		{"not a list", `{"model":"T4"}`, []string{"list"}},
		{"not objects", `["T4"]`, []string{"object"}},
		{"empty list", `[]`, []string{"no devices"}},
		{"null", `null`, []string{"list"}},
		{"empty", ``, []string{"JSON"}},
		{"two values", `[{"model":"T4"}] []`, []string{"more than one"}},
		{"too large", strings.Repeat(" ", 1<<20+1), []string{"1048576"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := gputest.Parse([]byte(tt.text))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not mention %q", err, want)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	if _, err := gputest.Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load(missing) = %v, want ErrNotExist", err)
	}
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := gputest.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := s.Devices(); len(d) != 3 {
		t.Errorf("%d devices, want 3", len(d))
	}
	if err := os.WriteFile(path, []byte(`[{"modell":"T4"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gputest.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Load(bad) = %v, want an error that names the file", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := parse(t, full)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			now := at(time.Duration(i) * time.Second)
			if err := s.LeaseStarted("SIM-a100-2", now); err != nil {
				t.Error(err)
			}
			if _, err := s.Sample("SIM-a100-2", now); err != nil {
				t.Error(err)
			}
			s.Fault("SIM-a100-2", now)
			s.OwnerActive("SIM-a100-2", now)
			if err := s.LeaseEnded("SIM-a100-2"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := s.Sample("SIM-a100-2", epoch); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`[{"model":"T4","load":[{"for":"1ns"}],"owner":[{"at":"0s","for":"1h"}]}]`))
	f.Add([]byte(`[{"model":"\ud800","memory":"1MiB"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := gputest.Parse(data)
		if err != nil {
			return
		}
		devices, err := s.Devices()
		if err != nil || len(devices) == 0 {
			t.Fatalf("accepted with %d devices, %v", len(devices), err)
		}
		ids := map[string]bool{}
		for _, d := range devices {
			if err := d.Validate(); err != nil || !d.Simulated || ids[d.ID] || d.MemBytes == 0 {
				t.Errorf("bad device %+v: %v", d, err)
			}
			ids[d.ID] = true
		}
		d := devices[0]
		for i, after := range []time.Duration{-time.Second, 0, time.Second, 1000 * time.Hour} {
			if i == 1 {
				if err := s.LeaseStarted(d.ID, epoch); err != nil {
					t.Error(err)
				}
			}
			kind, _ := s.Fault(d.ID, at(after))
			one, errOne := s.Sample(d.ID, at(after))
			two, errTwo := s.Sample(d.ID, at(after))
			if diff := cmp.Diff(one, two); diff != "" || (errOne == nil) != (errTwo == nil) {
				t.Errorf("two readings at one instant differ:\n%s", diff)
			}
			if lost := kind == gputest.KindLost; lost != errors.Is(errOne, gputest.ErrLost) {
				t.Errorf("fault %q, but Sample gives %v", kind, errOne)
			}
		}
	})
}
