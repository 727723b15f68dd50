package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/doctor"
)

// sound returns the facts of a provider on which nothing is wrong, a minute after its start.
func sound() doctor.Facts {
	skew := int64(40)
	udp := "open"
	return doctor.Facts{
		OS:      "linux",
		Home:    doctor.HomeFacts{Dir: "/h", Exists: true, Mode: 0o700, Keys: []doctor.KeyFacts{{File: "/h/identity.key", What: "identity", Mode: 0o600}}},
		Disk:    doctor.DiskFacts{Free: 50e9, Known: true, Floor: 1e9},
		Store:   doctor.StoreFacts{Exists: true, Opened: true},
		Config:  doctor.ConfigFacts{Config: config.Default("main"), File: "/h/config.yaml", Exists: true},
		IP:      doctor.IPFacts{Known: true, V4: true, V6: true, Private: "192.168.1.20"},
		Buffers: doctor.BufferFacts{Want: 7 << 20, Got: 7 << 20, OK: true},
		PID:     77, Held: true,
		Status: &api.Status{Version: "1", PID: 77, Network: "main", UptimeMS: 61_000, Devices: 1,
			Addrs: []string{"/ip4/198.51.100.7/tcp/4711"}, Listen: []string{"/ip4/0.0.0.0/tcp/4711", "/ip4/0.0.0.0/udp/4711/quic-v1", "/ip4/0.0.0.0/tcp/443/tls/ws"},
			Peers: []api.PeerView{{Peer: attest.Key{1}, Path: "direct"}},
			Clock: api.ClockView{SkewMS: &skew, Peers: 5},
			Reachability: api.Reachability{Verdict: "direct", By: []attest.Key{{1}}, AddrsWorked: []string{"/ip4/198.51.100.7/tcp/4711"},
				UDP: &udp}},
	}
}

func TestNothingIsWrong(t *testing.T) {
	findings := doctor.Judge(sound())
	if len(findings) < 10 {
		t.Errorf("%d findings, want one for each thing", len(findings))
	}
	for _, f := range findings {
		if f.Severity != doctor.OK || f.Cause != nil || f.Next != nil || f.Evidence == "" {
			t.Errorf("%s: %s %q, want ok and what was seen", f.Check, f.Severity, f.Evidence)
		}
	}
	if doctor.Worst(findings) != doctor.OK || doctor.Worst(nil) != doctor.OK {
		t.Error("the worst is not ok")
	}
}

// stopped takes the daemon away.
func stopped(f *doctor.Facts) {
	f.Status, f.Held, f.PID = nil, false, 0
	f.Ports = doctor.PortFacts{Tried: true, Listen: []string{"/ip4/0.0.0.0/tcp/4711"}}
}

func TestJudge(t *testing.T) {
	verdict := func(v string, devices int) func(*doctor.Facts) {
		return func(f *doctor.Facts) {
			f.Status.Reachability = api.Reachability{Verdict: v, By: []attest.Key{{1}}, AddrsFailed: []string{"/ip4/198.51.100.7/tcp/4711"}, Relays: []attest.Key{{2}}}
			f.Status.Devices = devices
		}
	}
	skew := func(ms int64) func(*doctor.Facts) {
		return func(f *doctor.Facts) { f.Status.Clock.SkewMS = &ms }
	}
	blocked := "blocked"
	for _, tt := range []struct {
		name     string
		change   func(*doctor.Facts)
		check    string
		severity doctor.Severity // "" = there is no such finding
		says     []string        // parts of evidence, cause and next
	}{
		{"no home", func(f *doctor.Facts) { f.Home = doctor.HomeFacts{Dir: "/h"} }, "home", doctor.Note, []string{"/h is not there", "lacuna up"}},
		{"an unusable home", func(f *doctor.Facts) { f.Home.Err = "permission denied" }, "home", doctor.Fault, []string{"permission denied", "--home"}},
		{"an open home", func(f *doctor.Facts) { f.Home.Mode = 0o755 }, "home", doctor.Fault, []string{"0755", "chmod 700 /h", "--fix"}},
		{"an open key", func(f *doctor.Facts) { f.Home.Keys[0].Mode = 0o644 }, "keys", doctor.Fault, []string{"/h/identity.key", "0644", "--fix"}},
		{"a broken key", func(f *doctor.Facts) { f.Home.Keys[0].Err = "not a key" }, "keys", doctor.Fault, []string{"not a key", "backup"}},
		{"no network key", func(f *doctor.Facts) {
			f.Home.Keys = append(f.Home.Keys, doctor.KeyFacts{File: "/h/network.key", What: "network key", Err: "network key: /h/network.key is not there"})
		}, "keys", doctor.Fault, []string{"/h/network.key is not there", "copy the file"}},
		{"no key yet", func(f *doctor.Facts) { f.Home.Keys = nil }, "keys", "", nil},
		{"a wrong config", func(f *doctor.Facts) { f.Config.Err = "line 2: no such key" }, "config", doctor.Fault, []string{"line 2", "lacuna config check"}},
		{"no config", func(f *doctor.Facts) { f.Config.Exists = false }, "config", doctor.OK, []string{"default"}},
		{"a full disk", func(f *doctor.Facts) { f.Disk.Free = 0.9e9 }, "disk", doctor.Fault, []string{"900 MB", "1 GB", "store.min_free"}},
		{"a disk that fills up", func(f *doctor.Facts) { f.Disk.Free = 1.5e9 }, "disk", doctor.Warn, []string{"1.5 GB"}},
		{"a broken store", func(f *doctor.Facts) { f.Store.Err = "checksum" }, "store", doctor.Fault, []string{"checksum", "backup"}},
		{"damaged records", func(f *doctor.Facts) { f.Status.StoreDamaged = 3 }, "store", doctor.Fault, []string{"3 records"}},
		{"no store yet", func(f *doctor.Facts) { stopped(f); f.Store = doctor.StoreFacts{} }, "store", "", nil},
		{"no daemon", stopped, "daemon", doctor.Note, []string{"lacuna up -d"}},
		{"no daemon, and nothing is known of peers", stopped, "peers", "", nil},
		{"a daemon without its socket", func(f *doctor.Facts) { f.Status = nil }, "daemon", doctor.Fault, []string{"pid 77", "kill 77"}},
		{"a taken port", func(f *doctor.Facts) {
			stopped(f)
			f.Ports.Err, f.Ports.Hint = "tcp port 4711 on 0.0.0.0 is taken by caddy (pid 9)", "stop it (kill 9)"
		},
			"ports", doctor.Fault, []string{"caddy", "kill 9"}},
		{"another port", func(f *doctor.Facts) { f.Status.Notes = []string{"tcp port 4711 is taken; listening on port 4712"} }, "ports", doctor.Note, []string{"4712"}},
		{"what is listened on", func(*doctor.Facts) {}, "ports", doctor.OK, []string{"tcp 4711, quic 4711, wss 443"}},
		{"deaf", func(f *doctor.Facts) { f.Status.Listen = nil }, "ports", doctor.Warn, []string{"no address", "network.listen auto"}},
		{"IPv6 only", func(f *doctor.Facts) { f.IP.V4 = false }, "ip", doctor.Note, []string{"IPv6 only"}},
		{"offline", func(f *doctor.Facts) { f.IP = doctor.IPFacts{Known: true} }, "ip", doctor.Fault, []string{"on no network"}},
		{"offline, on a test network", func(f *doctor.Facts) { f.IP, f.Config.Network.Name = doctor.IPFacts{Known: true}, "test-a" }, "ip", doctor.Note, []string{"test network"}},
		{"UDP blocked", func(f *doctor.Facts) { f.Status.Reachability.UDP = &blocked }, "udp", doctor.Warn, []string{"TCP and WebSocket are used"}},
		{"UDP not known", func(f *doctor.Facts) { f.Status.Reachability.UDP = nil }, "udp", "", nil},
		{"alone", func(f *doctor.Facts) { f.Status.Peers = nil }, "peers", doctor.Fault, []string{"lacuna join INVITE", "lacuna invite"}},
		{"alone, and the key is another", func(f *doctor.Facts) {
			f.Status.Peers, f.Status.LastDialError = nil, "…ab12 was tried 5s ago: the handshake failed"
		}, "peers", doctor.Fault, []string{"…ab12 was tried 5s ago: the handshake failed"}},
		{"few and none straight", func(f *doctor.Facts) { verdict("relayed", 1)(f); f.Status.Peers[0].Inbound = true }, "peers", doctor.Note, []string{"connected to 1, 0 of them"}},
		{"few, which come to this one", func(f *doctor.Facts) { f.Status.Peers[0].Inbound = true }, "peers", doctor.OK, []string{"connected to 1, 0 of them"}},
		{"hole-punched", verdict("hole-punched", 1), "reachable", doctor.OK, []string{"TCP and UDP 4711 to 192.168.1.20", "UPnP"}},
		{"a relayed seller", verdict("relayed", 1), "reachable", doctor.Warn, []string{"could not dial /ip4/198.51.100.7/tcp/4711", "TCP and UDP 4711 to 192.168.1.20"}},
		{"a relayed renter", verdict("relayed", 0), "reachable", doctor.Note, []string{"a renter needs no more"}},
		{"an unreachable seller", verdict("unreachable", 1), "reachable", doctor.Fault, []string{"hub", "4711"}},
		{"an unreachable renter", verdict("unreachable", 0), "reachable", doctor.Warn, []string{"hub"}},
		{"no verdict", verdict("unknown", 1), "reachable", doctor.Note, []string{"hub"}},
		{"no verdict yet", func(f *doctor.Facts) { verdict("unknown", 1)(f); f.Status.UptimeMS = 20_000 }, "reachable", doctor.Note, []string{"look again in a minute"}},
		{"a place at a relay", verdict("relayed", 1), "relays", doctor.OK, []string{"1 peer holds a place"}},
		{"no place at a relay", func(f *doctor.Facts) { verdict("unreachable", 1)(f); f.Status.Reachability.Relays = nil }, "relays", doctor.Warn, []string{"hub"}},
		{"a relay itself", func(f *doctor.Facts) {
			f.Status.Relaying = &api.RelayingView{Circuits: 2, Places: 7, Bytes: 5e6, DayMaxBytes: 1e9}
		}, "relays", doctor.OK,
			[]string{"7 peers", "2 connections", "5 MB", "1 GB"}},
		{"5 s are fine", skew(5_000), "clock", doctor.OK, []string{"5s behind the median of 5 peers"}},
		{"more than 5 s", skew(5_001), "clock", doctor.Warn, []string{"timedatectl"}},
		{"ahead", skew(-60_000), "clock", doctor.Warn, []string{"1m0s ahead of"}},
		{"more than 2 min", skew(-121_000), "clock", doctor.Fault, []string{"refused"}},
		{"clock not known", func(f *doctor.Facts) { f.Status.Clock = api.ClockView{Peers: 1} }, "clock", doctor.Note, nil},
		{"a twin", func(f *doctor.Facts) { f.Status.Twin = &api.TwinView{Addr: "/ip4/192.0.2.9/tcp/1", SeenAt: time.Now()} }, "twin", doctor.Fault,
			[]string{"/ip4/192.0.2.9/tcp/1", "identity.key"}},
		{"small buffers", func(f *doctor.Facts) { f.Buffers = doctor.BufferFacts{Want: 7 << 20, Got: 416 << 10} }, "udp_buffers", doctor.Note,
			[]string{"416 KiB", "7168 KiB", "sysctl -w net.core.rmem_max=7500000"}},
		{"small buffers elsewhere", func(f *doctor.Facts) { f.OS, f.Buffers = "darwin", doctor.BufferFacts{Want: 7 << 20, Got: 1} }, "udp_buffers", doctor.Note, []string{"kern.ipc.maxsockbuf"}},
		{"buffers not told", func(f *doctor.Facts) { f.Buffers = doctor.BufferFacts{Want: 7 << 20, OK: true} }, "udp_buffers", "", nil},
		{"a proxy", func(f *doctor.Facts) { f.Proxies = []string{"HTTPS_PROXY=http://proxy:3128"} }, "proxy", doctor.Note, []string{"http://proxy:3128", "WebSocket"}},
		{"mDNS off", func(f *doctor.Facts) { f.Config.Network.MDNS = false }, "mdns", doctor.Note, []string{"network.mdns"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sound()
			tt.change(&f)
			var found *doctor.Finding
			for _, v := range doctor.Judge(f) {
				if v.Check == tt.check {
					found = &v
				}
			}
			if found == nil || tt.severity == "" {
				if (found == nil) != (tt.severity == "") {
					t.Fatalf("finding %s is %v, want %q", tt.check, found, tt.severity)
				}
				return
			}
			text := found.Evidence
			for _, more := range []*string{found.Cause, found.Next} {
				if more != nil {
					text += "\n" + *more
				}
			}
			if found.Severity != tt.severity {
				t.Errorf("%s is %s, want %s:\n%s", tt.check, found.Severity, tt.severity, text)
			}
			for _, part := range tt.says {
				if !strings.Contains(text, part) {
					t.Errorf("%s does not say %q:\n%s", tt.check, part, text)
				}
			}
			if (found.Severity == doctor.Warn || found.Severity == doctor.Fault) && (found.Next == nil || found.Cause == nil) {
				t.Errorf("%s is %s without a cause or a next step:\n%s", tt.check, found.Severity, text)
			}
		})
	}
}
