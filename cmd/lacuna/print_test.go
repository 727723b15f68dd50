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
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/doctor"
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
		"peers":[{"peer":"` + key(2).String() + `","addr":"/ip4/192.0.2.2/tcp/4711","path":"direct","latency_ms":12},{"peer":"` + key(3).String() + `","addr":"/ip4/192.0.2.3/tcp/4711","path":"limited","latency_ms":null,"trouble":"open hello: no common protocol version: D3KooWAA speaks hello/1 and is too old, this peer speaks 2"}],
		"reachability":{"verdict":"direct","checked_at":"2026-11-30T11:59:20Z","by":["` + key(2).String() + `","` + key(3).String() + `"],
		"addrs_worked":["/ip4/192.0.2.1/tcp/4711","/ip4/192.0.2.1/udp/4711/quic-v1"]},
		"clock":{"skew_ms":7100,"peers":9},"twin":{"addr":"/ip4/192.0.2.77/tcp/4711","seen_at":"2026-11-30T11:59:50Z"},
		"relaying":{"circuits":1,"places":3,"bytes":12000000,"day_max_bytes":1000000000},
		"notes":["tcp port 4710 on 0.0.0.0 is taken by caddy (pid 77); listening on port 4711"],"simulated":true,"devices":2,"leases_running":1,"jobs_running":0,
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

func TestReachLine(t *testing.T) {
	some := `"peers":[{"peer":"` + key(2).String() + `"}],`
	witness := `"by":["` + key(2).String() + `"],"checked_at":"2026-11-30T11:59:20Z"`
	relays := `"relays":["` + key(2).String() + `","` + key(3).String() + `","` + key(4).String() + `"]`
	for _, tt := range []struct{ name, peers, reach, want string }{
		{"by definition", some, `"verdict":"direct","by":[]`, "direct"},
		{"one kind of packet", some, `"verdict":"direct",` + witness + `,"addrs_worked":["/ip4/192.0.2.1/tcp/1"]`, "direct, found by TP6QRMuD 40s ago (tcp)"},
		{"hole-punched", some, `"verdict":"hole-punched",` + witness + `,` + relays, "by hole punching, found by TP6QRMuD 40s ago, introduced by TP6QRMuD, uRXA2U9x and 1 other"},
		{"relayed", some, `"verdict":"relayed",` + relays, "relayed through TP6QRMuD, uRXA2U9x and 1 other; direct connections by hole punching are tried"},
		{"unreachable", some, `"verdict":"unreachable"`, "unreachable: nobody could dial this peer, and none relays for it; what helps: lacuna doctor"},
		{"alone", "", `"verdict":"unknown"`, "not known: nobody is connected who could try"},
		{"early", some, `"verdict":"unknown"`, "not known yet"},
	} {
		c, _, _ := newTestCLI()
		if got := c.reachLine(decode[api.Status](t, `{`+tt.peers+`"reachability":{`+tt.reach+`}}`)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPrintFindings(t *testing.T) {
	findings := []doctor.Finding{
		{Check: "home", Severity: doctor.OK, Evidence: "/h"},
		{Check: "keys", Severity: doctor.OK, Evidence: "identity in /h/identity.key", Fixed: ptr("mode 0600 now: /h/identity.key")},
		{Check: "udp", Severity: doctor.Warn, Evidence: "UDP does not get out of this network", Cause: ptr("a firewall drops it"), Next: ptr("allow outgoing UDP")},
		{Check: "config", Severity: doctor.Fault, Evidence: "/h/config.yaml", Cause: ptr("line 2: a: no such key\nline 3: b: no such key")},
	}
	for _, format := range []string{"table", "json"} {
		c, stdout, _ := newTestCLI()
		c.format = format
		if err := c.printFindings(findings); err != nil {
			t.Fatal(err)
		}
		golden(t, "doctor."+format, stdout.String())
	}
}

func ptr[T any](v T) *T { return &v }

func TestPrintDevices(t *testing.T) {
	c, stdout, _ := newTestCLI()
	lease := attest.Sum([]byte("lease"))
	err := c.printDevices([]api.DeviceView{
		{ID: market.NewDeviceID(key(2), "GPU-1"), Name: "NVIDIA GeForce RTX 4090", Model: "RTX 4090", Class: "nv-24g", MemBytes: ptr(uint64(24 << 30)),
			Price: 210_000, State: "leased", Lease: &lease, Telemetry: &gpu.Sample{UtilBP: ptr(uint64(9_730)), MemUsedMiB: ptr(uint64(1_536)),
				PowerMW: ptr(uint64(381_400)), TempC: ptr(uint64(71))}},
		{ID: market.NewDeviceID(key(2), "SIM-1"), Name: "A100", Model: "A100", Class: "nv-40g", Simulated: true, Price: 600_000, State: "free"},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "devices.table", stdout.String())
}

func TestPrintAsks(t *testing.T) {
	c, stdout, _ := newTestCLI()
	asks := decode[[]api.AskView](t, `[
		{"peer":"`+key(2).String()+`","lots":[{"model":"RTX 4090","class":"nv-24g","mem_bytes":25769803776,"count":2,"free":1,"price_per_gpu_hour_microusd":210000}],
		 "place":"eu/de","place_fault":"claims eu/de, but …","tiers":["silver","bronze"],"workloads":["wasm"],"expires_at":"2026-11-30T12:30:00Z","agent":"lacuna/0.1.0","reach":"relayed","latency_ms":48.26,"addrs":[],"score_bp":8140,"self":false},
		{"peer":"`+key(3).String()+`","lots":[{"model":"CPU","class":"cpu","count":4,"free":4,"price_per_gpu_hour_microusd":10000,"simulated":true}],
		 "place":null,"tiers":["bronze"],"workloads":["wasm"],"expires_at":"2026-11-30T12:00:10Z","agent":"lacuna/0.1.0","reach":"unknown","latency_ms":null,"addrs":[],"score_bp":null,"self":true}]`)
	if err := c.printAsks(asks); err != nil {
		t.Fatal(err)
	}
	golden(t, "asks.table", stdout.String())
}

func TestPrintAuctions(t *testing.T) {
	c, stdout, _ := newTestCLI()
	offer := func(peer byte, price market.MicroUSD, mean uint64, excluded string) api.OfferView {
		return api.OfferView{Peer: key(peer), Price: price, MeanBP: mean, Theta: 20, Score: auction.Score(price, 20, mean), Kept: excluded == "", Excluded: excluded}
	}
	won := api.AuctionView{Bid: attest.Sum([]byte("bid")), WindowMS: 1000, TookMS: 1003, ClosedBy: "window", Heard: 5, MaxPrice: market.USD,
		Offers:       []api.OfferView{offer(2, 210_000, 9_730, ""), offer(3, 150_000, 8_000, ""), offer(4, 1_900_000, 8_000, "price_above_limit")},
		Declines:     []api.DeclineView{{Peer: key(5), Failures: []market.Failure{{Reason: market.VRAMTooSmall, Wanted: "16GiB", Available: "12GiB"}}}},
		DeclineCount: 3, Award: &api.WinnerView{Peer: key(2), Price: 210_000}, Recomputed: true}
	lost := api.AuctionView{Bid: attest.Sum([]byte("next")), WindowMS: 250, TookMS: 250, ClosedBy: "window", ReferencePrice: ptr(market.MicroUSD(200_000)),
		Offers: []api.OfferView{offer(3, 150_000, 8_000, "")}, Refusals: []api.DeclineView{{Peer: key(3), Failures: []market.Failure{{Reason: market.Sold, Wanted: "1 devices", Available: "taken by another award"}}}},
		Failed: []attest.Key{key(4)}, RecomputeError: "offer of x could win, but nobody did"}
	if err := c.printAuctions([]api.AuctionView{won, lost}); err != nil {
		t.Fatal(err)
	}
	golden(t, "auctions.table", stdout.String())
}

func testLease() api.LeaseView {
	return api.LeaseView{ID: attest.Sum([]byte("lease")), Role: "provider", State: "done", Renter: key(1), Provider: key(2), Models: []string{"RTX 4090", "RTX 4090"},
		Tier: "silver", Price: 210_000, Budget: market.USD, DurationMS: 3_600_000, Simulated: true, AwardedAt: now.Add(-5 * time.Minute),
		ReadyAt: ptr(now.Add(-4 * time.Minute)), Receipts: 6, Acknowledged: 5, RanMS: 60_000, Due: 3_500, Vouched: 2_900,
		Outcome: &api.OutcomeView{Code: "limit", Reason: "memory_limit", Signers: 1}}
}

func TestPrintLeases(t *testing.T) {
	c, stdout, _ := newTestCLI()
	rented := testLease()
	rented.Role, rented.State, rented.Reason = "renter", "failed", "memory_limit"
	if err := c.printLeases([]api.LeaseView{testLease(), rented}); err != nil {
		t.Fatal(err)
	}
	if err := c.print(nil, func(t *table) { c.leaseFields(t, testLease()) }); err != nil {
		t.Fatal(err)
	}
	golden(t, "leases.table", stdout.String())
}

func TestPrintReceipts(t *testing.T) {
	c, stdout, _ := newTestCLI()
	measured := api.ReceiptView{Seq: 1, ID: attest.Sum([]byte("1")), State: "running", T0: now, T1: now.Add(10 * time.Second), RanMS: ptr(uint64(10_000)),
		Units: map[string]uint64{"billable_device_ms": 10_000, "energy_mj": 3_351_200}, Telemetry: map[string]uint64{"util_avg_bp": 9_510, "temp_max_c": 66},
		Cost: 583, Total: 583, Acknowledged: true}
	bare := api.ReceiptView{Seq: 2, ID: attest.Sum([]byte("2")), State: "final", T0: now, T1: now.Add(1400 * time.Millisecond), Cost: 81, Total: 664}
	if err := c.printReceipts([]api.ReceiptView{measured, bare}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []api.ReceiptView{measured, bare} {
		if err := c.print(r, func(t *table) { c.receiptFields(t, r) }); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "receipts.table", stdout.String())
}

func TestPrintReputation(t *testing.T) {
	c, stdout, _ := newTestCLI()
	lease := attest.Sum([]byte("lease"))
	r := api.ReputationView{Peer: key(2), ScoreBP: 4_630, QuantileBP: 4_630, ShortBP: 5_120, MeanBP: 9_730, Prior: api.PriorView{FirstLeases: 4, OK: 3, BP: 7_750},
		S: "12.345", F: "0.500", Terms: []api.TermView{
			{At: now.Add(-26 * time.Hour), What: "lease_done", OK: true, Value: 3_500, DecayBP: 9_886, Raw: "7.000", Capped: "5.000", Decayed: "4.943", Lease: &lease},
			{At: now.Add(-time.Hour), What: "lost", Value: 200, DecayBP: 10_000, Raw: "0.500", Capped: "0.500", Decayed: "0.500"}}}
	if err := c.printReputations([]api.ReputationView{r}); err != nil {
		t.Fatal(err)
	}
	if err := c.printReputation(r, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "reputation.table", stdout.String())
}
