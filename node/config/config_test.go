package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/p2p"
)

const peer = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"

func none(string) string { return "" }

// home returns a home with that config file.
func home(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoadWithoutAFileGivesTheDefaults(t *testing.T) {
	c, err := config.Load(t.TempDir(), none, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Network.Name != "main" || c.Provide.Enabled || c.Provide.Price != market.USD/10 || c.Provide.CPUPrice != market.USD/100 ||
		c.Provide.CPUSlots != config.Auto || c.Provide.TrialPerDay != market.USD || c.Provide.TrialDevices != 1 ||
		c.Rent.Interval != market.DefaultInterval || c.Network.Profile != "" || c.Network.Bootstrap != nil {
		t.Errorf("defaults are %+v", c)
	}
	for _, e := range c.Explain() {
		if e.Origin != "default" || e.Comment == "" || strings.Contains(e.Comment, "\n") {
			t.Errorf("%s: origin %q, comment %q", e.Key, e.Origin, e.Comment)
		}
	}
	if d := config.Default("test-x"); d.Provide.TrialPerDay != 1000*market.USD || d.Provide.TrialDevices != 0 {
		t.Errorf("trial cap on a test network is %v on %d devices", d.Provide.TrialPerDay, d.Provide.TrialDevices)
	}
}

func TestTheLaterSourceWins(t *testing.T) {
	dir := home(t, "network:\n  name: one\nprovide:\n  price: $0.20/h\n  tiers: [bronze]\nrent:\n  exclude: ["+peer+"]\n")
	env := func(name string) string {
		return map[string]string{"LACUNA_NETWORK_NAME": "two", "LACUNA_PROVIDE_TIERS": "gold,silver"}[name]
	}
	c, err := config.Load(dir, env, map[string]string{"network.name": "three", "provide.enabled": "true"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]string{}
	for _, e := range c.Explain() {
		if e.Origin != "default" {
			got[e.Key] = [2]string{e.Value, strings.TrimPrefix(e.Origin, dir)}
		}
	}
	want := map[string][2]string{
		"network.name":    {"three", "flag"},
		"provide.enabled": {"true", "flag"},
		"provide.price":   {"0.20 USD/h", "/config.yaml:4"},
		"provide.tiers":   {"gold, silver", "env LACUNA_PROVIDE_TIERS"},
		"rent.exclude":    {peer, "/config.yaml:7"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("origins (-want +got):\n%s", d)
	}
	if len(c.Rent.Exclude) != 1 || c.Rent.Exclude[0].String() != peer || len(c.Provide.Tiers) != 2 || c.Provide.Price != market.USD/5 {
		t.Errorf("values are %+v", c)
	}
}

func TestFaultsNameLineAndWish(t *testing.T) {
	tests := []struct {
		name, file string
		want       []string
	}{
		{"unknown key", "provide:\n  pirce: 1\n", []string{"line 2, column 3: provide.pirce: unknown; did you mean price?"}},
		{"unknown section", "netwrok: {}\n", []string{"line 1, column 1: netwrok: unknown; did you mean network?"}},
		{"key at the top", "cpu_slots: 3\n", []string{"did you mean provide.cpu_slots?"}},
		{"several faults", "network:\n  name: Main\nstore:\n  min_free: 5\n", []string{"line 2, column 9: network.name: ", "want 1 to 32 of a-z", "line 4, column 13: store.min_free: ", "no unit"}},
		{"list for a value", "network:\n  name: [a]\n", []string{"network.name: want one value, not a list"}},
		{"no value", "network:\n  name:\n", []string{"network.name: want a value"}},
		{"comma in a price", "provide: {price: \"0,5\"}\n", []string{"line 1, column 18: provide.price: ", "0.60 USD/h"}},
		{"price of another money", "provide:\n  price: 0.5 EUR/h\n", []string{"provide.price: "}},
		{"price of infinity", "provide:\n  price: .inf\n", []string{"provide.price: "}},
		{"price of 0", "provide:\n  price: 0\n", []string{"price of 0"}},
		{"bare duration", "rent:\n  survive: 60\n", []string{"rent.survive: ", "no unit"}},
		{"duration out of range", "rent:\n  interval: 1h\n", []string{"want 200ms to 10m"}},
		{"not a boolean", "provide:\n  enabled: yes\n", []string{"want true or false"}},
		{"place", "provide:\n  place: mars\n", []string{"provide.place: "}},
		{"workload", "provide:\n  workloads: [docker]\n", []string{"want wasm"}},
		{"tier twice", "provide:\n  tiers: [gold, gold]\n", []string{"stands there twice"}},
		{"profile", "network:\n  profile: hubs\n", []string{"did you mean hub?"}},
		{"listen", "network:\n  listen: [0.0.0.0:4711]\n", []string{"network.listen: ", "/ip4/0.0.0.0/tcp/4711"}},
		{"listen port", "network:\n  listen: [/ip4/0.0.0.0/tcp/70000]\n", []string{"network.listen: "}},
		{"listen family", "network:\n  listen: [/ip6/1.2.3.4/tcp/1]\n", []string{"network.listen: "}},
		{"listen on auto and more", "network:\n  listen: [auto, /ip4/0.0.0.0/tcp/1]\n", []string{"network.listen: ", "want it alone"}},
		{"listen on something that is not spoken", "network:\n  listen: [/ip4/0.0.0.0/tcp/1/tls]\n", []string{"network.listen: ", "/tls/ws"}},
		{"listen on QUIC of another version", "network:\n  listen: [/ip4/0.0.0.0/udp/1/quic]\n", []string{"network.listen: "}},
		{"listen with a zone", "network:\n  listen: [/ip6/fe80::1%eth0/tcp/1]\n", []string{"network.listen: "}},
		{"announce auto", "network:\n  announce: [auto]\n", []string{"network.announce: "}},
		{"lan", "network:\n  lan: true\n", []string{"network.lan: ", "want one of auto, yes, no"}},
		{"mdns", "network:\n  mdns: yes\n", []string{"network.mdns: ", "want one of auto, on, off"}},
		{"hub", "network:\n  hub: yes\n", []string{"network.hub: ", "want one of auto, no"}},
		{"hub and no hub", "network:\n  profile: hub\n  hub: no\n", []string{"network.hub: no, but network.profile: hub"}},
		{"relay without a unit", "network:\n  relay_per_day: 5\n", []string{"network.relay_per_day: ", "no unit"}},
		{"relay time", "network:\n  relay_bulk_time: 1s\n", []string{"network.relay_bulk_time: ", "want 1m to"}},
		{"relay rate", "network:\n  relay_bulk_rate: 1kB\n", []string{"network.relay_bulk_rate: ", "at least 10kB"}},
		{"bootstrap without a peer", "network:\n  bootstrap: [/ip4/192.0.2.1/tcp/1]\n", []string{"want an invite"}},
		{"bootstrap by a line that is no invite", "network:\n  bootstrap: [lacuna1abc]\n", []string{"network.bootstrap: ", "not a valid invite"}},
		{"bootstrap by a peer without an address", "network:\n  bootstrap: [/p2p/" + peer + "]\n", []string{"network.bootstrap: "}},
		{"bootstrap through a relay without an address", "network:\n  bootstrap: [/p2p/" + peer + "/p2p-circuit/p2p/" + peer + "]\n", []string{"network.bootstrap: "}},
		{"bootstrap through a relay without a name", "network:\n  bootstrap: [/ip4/192.0.2.1/tcp/1/p2p-circuit/p2p/" + peer + "]\n", []string{"network.bootstrap: "}},
		{"announce everything", "network:\n  announce: [/ip4/0.0.0.0/tcp/1]\n", []string{"network.announce: ", "stands for all addresses"}},
		{"announce everything, IPv6", "network:\n  announce: [/ip6/::/tcp/1]\n", []string{"network.announce: ", "stands for all addresses"}},
		{"announce port 0", "network:\n  announce: [/ip4/192.0.2.1/tcp/00]\n", []string{"network.announce: ", "port 0"}},
		{"announce a group", "network:\n  announce: [/ip4/224.0.0.1/udp/1/quic-v1]\n", []string{"network.announce: ", "a group"}},
		{"announce loopback", "network:\n  name: our-lab\n  announce: [/ip4/127.0.0.1/tcp/1]\n", []string{"network.announce: ", "only to this machine itself", "our-lab"}},
		{"announce localhost", "network:\n  announce: [/dns4/localhost/tcp/1]\n", []string{"network.announce: ", "only to this machine itself"}},
		{"certificate without its key", "network:\n  tls_cert: c.pem\n", []string{"network.tls_cert and network.tls_key"}},
		{"key without its certificate", "network:\n  tls_key: k.pem\n", []string{"network.tls_cert and network.tls_key"}},
		{"listen twice on a port", "network:\n  listen: [/ip4/0.0.0.0/tcp/1, /ip4/127.0.0.1/tcp/1/ws]\n", []string{"network.listen: ", "overlap"}},
		{"one of two near words", "network:\n  mdns: of\n", []string{"did you mean off?"}},
		{"relative socket", "api:\n  socket: run/api.sock\n", []string{"api.socket: ", "want an absolute path of at most 103 bytes"}},
		{"long socket", "api:\n  socket: /" + strings.Repeat("s", 103) + "\n", []string{"api.socket: "}},
		{"peer id", "rent:\n  exclude: [joe]\n", []string{"rent.exclude: ", "12D3KooW"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Load(home(t, tt.file), none, nil)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
	_, err := config.Load("", func(n string) string {
		return map[string]string{"LACUNA_RENT_BUDGET": "1,5"}[n]
	}, map[string]string{"no.key": "1", "store.min_free": "1"})
	for _, want := range []string{"environment variable LACUNA_RENT_BUDGET: ", "no.key: no such key", "store.min_free: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestWriteDefault(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, config.FileName)
	if err := config.WriteDefault(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if err := config.WriteDefault(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("second write: %v, want os.ErrExist", err)
	}
	c, err := config.Load(dir, none, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(config.Default("").Explain(), c.Explain()); d != "" {
		t.Errorf("the default file changes something (-default +file):\n%s", d)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// With every # in front of a key taken away the file says the same.
	var bare strings.Builder
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "  # "); ok && strings.Contains(strings.SplitN(rest, " ", 2)[0], ":") {
			line = "  " + rest
		}
		bare.WriteString(line)
	}
	full, err := config.Load(home(t, bare.String()), none, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, bare.String())
	}
	for i, e := range full.Explain() {
		if want := config.Default("").Explain()[i]; e.Value != want.Value || e.Origin == "default" {
			t.Errorf("%s = %q from %s, want %q from the file", e.Key, e.Value, e.Origin, want.Value)
		}
	}
}

func TestWriteValues(t *testing.T) {
	dir := t.TempDir()
	values := map[string]string{
		"network.name": "test-a", "network.listen": "/ip4/127.0.0.1/tcp/0, /ip4/127.0.0.1/udp/0/quic-v1",
		"provide.simulate_gpus": `C:\a "b" #c`, "rent.interval": "1s",
	}
	if err := config.Write(filepath.Join(dir, config.FileName), values); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(dir, none, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Network.Name != "test-a" || len(c.Network.Listen) != 2 || c.Provide.SimulateGPUs != `C:\a "b" #c` || c.Rent.Interval != time.Second {
		t.Errorf("read back %+v", c)
	}
	for name, bad := range map[string]map[string]string{"key": {"network.nam": "x"}, "value": {"network.name": "X"}} {
		if _, err := config.Render(bad); err == nil {
			t.Errorf("Render with a bad %s: no error", name)
		}
	}
}

func TestAutoIsSettledByTheNetwork(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		lan, mdns  bool
	}{
		{"main", "", false, true},
		{"another network", "network: {name: our-lab}", true, true},
		{"test network", "network: {name: test-a}", true, false},
		{"main with both chosen", "network: {lan: yes, mdns: off}", true, false},
		{"test network with both chosen", "network: {name: test, lan: no, mdns: on}", false, true},
	} {
		c, err := config.Load(home(t, tt.file), none, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Network.LAN != tt.lan || c.Network.MDNS != tt.mdns {
			t.Errorf("%s: LAN %v, MDNS %v, want %v, %v", tt.name, c.Network.LAN, c.Network.MDNS, tt.lan, tt.mdns)
		}
		for _, e := range c.Explain() {
			want := map[string]string{"network.lan": map[bool]string{true: "yes", false: "no"}[tt.lan], "network.mdns": map[bool]string{true: "on", false: "off"}[tt.mdns]}[e.Key]
			if want != "" && e.Value != want {
				t.Errorf("%s: %s is shown as %q, want %q", tt.name, e.Key, e.Value, want)
			}
		}
	}
}

func TestNetworkKeys(t *testing.T) {
	c, err := config.Load(t.TempDir(), none, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := c.Network
	if !slices.Equal(n.Listen, []string{p2p.ListenAuto}) || !n.Hub || n.RelayBulk || n.RelayPerDay != 1e9 || n.RelayBulkData != 10e9 ||
		n.RelayBulkTime != 24*time.Hour || n.RelayBulkPerSec != 10e6 || n.KeyFile+n.TLSCert+n.TLSKey+n.TLSCA != "" {
		t.Errorf("defaults are %+v", n)
	}
	if c, err = config.Load(home(t, "network: {relay_bulk: true}"), none, nil); err != nil || c.Network.RelayPerDay != 100e9 {
		t.Errorf("with relay_bulk %d bytes a day are relayed, %v; want 100 GB", c.Network.RelayPerDay, err)
	}
	const file = `network:
  listen: [/ip4/0.0.0.0/tcp/443/tls/ws, /ip6/::/tcp/443/wss, /dns4/hub.example.org/tcp/80/ws, /dns6/hub.example.org/tcp/443/tls/sni/hub.example.org/ws]
  announce: [/dns/hub.example.org/tcp/443/wss]
  bootstrap: [/dns4/hub.example.org/tcp/443/tls/ws/p2p/` + peer + `]
  key_file: network.key
  tls_cert: /etc/cert.pem
  tls_key: key.pem
  tls_ca: ca.pem
  hub: no
  relay_per_day: 1.5GiB
  relay_bulk: true
  relay_bulk_data: 100GB
  relay_bulk_time: 1h
  relay_bulk_rate: 2500kB/s
`
	if c, err = config.Load(home(t, file), none, nil); err != nil {
		t.Fatal(err)
	}
	n = c.Network
	if len(n.Listen) != 4 || len(n.Announce) != 1 || len(n.Bootstrap) != 1 || n.KeyFile != "network.key" || n.TLSCert != "/etc/cert.pem" || n.TLSKey != "key.pem" ||
		n.TLSCA != "ca.pem" || n.Hub || n.RelayPerDay != 3<<29 || !n.RelayBulk || n.RelayBulkData != 100e9 || n.RelayBulkTime != time.Hour || n.RelayBulkPerSec != 2.5e6 {
		t.Errorf("values are %+v", n)
	}
	want := map[string]string{"network.relay_per_day": "1.5GiB", "network.relay_bulk_data": "100GB", "network.relay_bulk_rate": "2500kB", "network.hub": "no"}
	for _, e := range c.Explain() {
		if w, ok := want[e.Key]; ok && e.Value != w {
			t.Errorf("%s is shown as %q, want %q", e.Key, e.Value, w)
		}
	}
}

func TestAddressesThatFit(t *testing.T) {
	for _, tt := range []struct{ name, file string }{
		{"loopback on a test network", "network: {name: test-a, announce: [/ip4/127.0.0.1/tcp/1, \"/ip6/::1/tcp/1\"]}"},
		{"both families", "network: {listen: [/ip4/0.0.0.0/tcp/1, \"/ip6/::/tcp/1\", /ip4/0.0.0.0/udp/1/quic-v1]}"},
		{"TCP and WebSocket on one port", "network: {listen: [/ip4/0.0.0.0/tcp/1, /ip4/0.0.0.0/tcp/1/ws]}"},
		{"any free ports", "network: {listen: [/ip4/0.0.0.0/tcp/0, /ip4/127.0.0.1/tcp/0]}"},
		{"a peer behind a relay", "network: {bootstrap: [/ip4/192.0.2.1/udp/1/quic-v1/p2p/" + peer + "/p2p-circuit/p2p/" + peer + "]}"},
	} {
		if _, err := config.Load(home(t, tt.file), none, nil); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("network:\n  name: x\n")
	f.Add("network: {listen: [/ip4/0.0.0.0/tcp/443/tls/ws], lan: yes, relay_per_day: 5GB}")
	f.Add("network: {profile: hub, hub: no, tls_cert: a, announce: [/ip4/127.0.0.1/tcp/1]}")
	f.Add("provide: {price: 0.1, tiers: [gold], cpu_slots: auto, place: eu/de}")
	f.Fuzz(func(t *testing.T, s string) {
		err := config.Check("f", []byte(s))
		dir := t.TempDir()
		if werr := os.WriteFile(filepath.Join(dir, config.FileName), []byte(s), 0o600); werr != nil {
			t.Fatal(werr)
		}
		if _, lerr := config.Load(dir, none, nil); (lerr == nil) != (err == nil) {
			t.Errorf("Check = %v, Load = %v", err, lerr)
		}
	})
}

func TestAConfigThatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/zero", filepath.Join(dir, config.FileName)); err != nil { // reading it would never end
		t.Fatal(err)
	}
	if _, err := config.Load(dir, none, nil); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("Load = %v, want no regular file", err)
	}
}
