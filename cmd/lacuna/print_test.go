package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/renter"
)

var update = flag.Bool("update", false, "write the golden files")

// now is the time of all printing in these tests.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newTestCLI() (c *cli, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &cli{stdout: stdout, stderr: stderr, format: "table", now: func() time.Time { return now },
		getenv: func(string) (string, bool) { return "", false }}, stdout, stderr
}

// golden holds got against testdata/golden/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}

// decode reads what the daemon answers.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func key(seed byte) attest.Key { return signer(seed).Key() }

func testJob() renter.Job {
	running, ended := now.Add(-90*time.Second), now.Add(-30*time.Second)
	provider, lease, code := key(2), attest.Sum([]byte("lease")), 0
	ms := func(n uint64) *uint64 { return &n }
	return renter.Job{ID: "1f3a9c0b22d4", Name: "digits", State: renter.JobSucceeded, ExitCode: &code,
		Spec: market.Spec{Module: "/home/ada/train.wasm", Args: []string{"--fast"}, GPUs: 1, Models: []string{"RTX 4090", "A100"},
			VRAMBytes: 16 << 30}.WithDefaults(),
		CreatedAt: now.Add(-95 * time.Second), RunningAt: &running, EndedAt: &ended, Provider: &provider, Lease: &lease,
		Leases: []attest.Digest{lease}, Price: 210_000, Receipts: 6, Cost: 3_500, Vouched: 3_500, RanMS: 60_000,
		AuctionMS: ms(120), ToRunMS: ms(4_830), Fetched: true}
}

func TestPrintJobs(t *testing.T) {
	failed, open := testJob(), testJob()
	code := 3
	failed.ID, failed.Name, failed.State, failed.ExitCode, failed.CreatedAt = "22d41f3a9c0b", "", renter.JobFailed, &code, now.Add(-50*time.Hour)
	open.ID, open.Name, open.State, open.Provider, open.Price, open.Receipts, open.Cost = "9c0b22d41f3a", "next", renter.JobBidding, nil, 0, 0, 0
	stopped := testJob()
	stopped.ID, stopped.State, stopped.Reason = "0b22d41f3a9c", renter.JobStopped, "memory_limit"
	for _, format := range []string{"table", "jsonl", "yaml", "json"} {
		t.Run(format, func(t *testing.T) {
			c, stdout, _ := newTestCLI()
			c.format = format
			if err := c.printJobs([]renter.Job{open, failed, stopped, testJob()}); err != nil {
				t.Fatal(err)
			}
			golden(t, "jobs."+format, stdout.String())
		})
	}
}

func TestPrintNoJobs(t *testing.T) {
	for format, want := range map[string]string{"json": "[]\n", "yaml": "[]\n", "jsonl": "",
		"table": "JOB   NAME   STATE   PROVIDER   PRICE   RECEIPTS   COST   AGE\n"} {
		c, stdout, _ := newTestCLI()
		c.format = format
		if err := c.printJobs(nil); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != want {
			t.Errorf("%s: printed %q, want %q", format, stdout.String(), want)
		}
	}
}

func TestPrintJob(t *testing.T) {
	c, stdout, _ := newTestCLI()
	j := testJob()
	if err := c.print(j, func(tab *table) { c.jobFields(tab, j) }); err != nil {
		t.Fatal(err)
	}
	golden(t, "job.table", stdout.String())
}

func TestTerminalHead(t *testing.T) {
	c, stdout, _ := newTestCLI()
	c.outTTY = true
	if err := c.printTable(table{head: []string{"A", "B"}, rows: [][]string{{"x", "y"}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := stdout.String(), "\x1b[2mA   B\x1b[0m\nx   y\n"; got != want {
		t.Errorf("on a terminal printed %q, want %q", got, want)
	}
	stdout.Reset()
	c.noColor = true
	if err := c.printTable(table{head: []string{"A", "B"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := stdout.String(), "A   B\n"; got != want {
		t.Errorf("without colour printed %q, want %q", got, want)
	}
}

func TestPrintStatus(t *testing.T) {
	full := `{"peer":"` + key(1).String() + `","network":"testnet","role":"provider","version":"0.1.0","pid":4711,"home":"/home/ada/.local/share/lacuna",
		"uptime_ms":7260000,"addrs":["/ip4/192.0.2.1/tcp/4711","/ip4/192.0.2.1/udp/4711/quic-v1"],
		"peers":[{"peer":"` + key(2).String() + `","addr":"/ip4/192.0.2.2/tcp/4711","latency_ms":12},{"peer":"` + key(3).String() + `","addr":"/ip4/192.0.2.3/tcp/4711","latency_ms":null}],
		"reachability":{"verdict":"direct"},"simulated":true,"devices":2,"leases_running":1,"jobs_running":0,
		"last_bid_heard_at":"2026-11-30T11:59:20Z","bids_heard":17,"promised_microusd":0,"received_microusd":0,"vouched_to_us_microusd":123400,
		"drops":{"bad_signature":1,"rate_limit":3}}`
	empty := `{"peer":"` + key(1).String() + `","network":"main","role":"light","version":"0.1.0","pid":4711,"home":"/h","uptime_ms":1000,"addrs":[],"peers":[],
		"reachability":{"verdict":""},"devices":0,"leases_running":0,"jobs_running":0,"last_bid_heard_at":null,"bids_heard":0}`
	for name, text := range map[string]string{"status.table": full, "status-empty.table": empty} {
		t.Run(name, func(t *testing.T) {
			c, stdout, _ := newTestCLI()
			if err := c.printStatus(decode[api.Status](t, text)); err != nil {
				t.Fatal(err)
			}
			golden(t, name, stdout.String())
		})
	}
}

func TestPrintDevices(t *testing.T) {
	c, stdout, _ := newTestCLI()
	devices := decode[[]api.DeviceView](t, `[
		{"id":"GPU-5f1c33d2-91a0-4b1e","name":"NVIDIA GeForce RTX 4090","model":"RTX 4090","class":"nv-24g","mem_bytes":25769803776,
		 "price_per_gpu_hour_microusd":210000,"state":"leased","lease":"`+attest.Sum([]byte("lease")).String()+`",
		 "telemetry":{"device":"GPU-5f1c33d2-91a0-4b1e","at":"2026-11-30T12:00:00Z","util_bp":9730,"mem_used_mib":1536,"power_mw":381400,"temp_c":71}},
		{"id":"SIM-1","name":"A100","model":"A100","class":"nv-40g","simulated":true,"price_per_gpu_hour_microusd":600000,"state":"free","lease":null,"telemetry":null}]`)
	if err := c.printDevices(devices); err != nil {
		t.Fatal(err)
	}
	golden(t, "devices.table", stdout.String())
}

func TestPrintAsks(t *testing.T) {
	c, stdout, _ := newTestCLI()
	asks := decode[[]api.AskView](t, `[
		{"peer":"`+key(2).String()+`","lots":[{"model":"RTX 4090","class":"nv-24g","mem_bytes":25769803776,"count":2,"free":1,"price_per_gpu_hour_microusd":210000}],
		 "place":{"continent":"eu","country":"de"},"tiers":["silver","bronze"],"workloads":["wasm"],"expires_at":"2026-11-30T12:30:00Z","agent":"lacuna/0.1.0","addrs":[],"score_bp":8140,"self":false},
		{"peer":"`+key(3).String()+`","lots":[{"model":"CPU","class":"cpu","count":4,"free":4,"price_per_gpu_hour_microusd":10000,"simulated":true}],
		 "place":{},"tiers":["bronze"],"workloads":["wasm"],"expires_at":"2026-11-30T12:00:10Z","agent":"lacuna/0.1.0","addrs":[],"score_bp":null,"self":true}]`)
	if err := c.printAsks(asks); err != nil {
		t.Fatal(err)
	}
	golden(t, "asks.table", stdout.String())
}
