package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// key is one thing to set. set reads its values (exactly one unless list); get returns them as set reads them.
type key struct {
	name    string // section.field
	def     string // commas divide lists
	comment string // one line
	list    bool
	set     func([]string) error
	get     func() []string
}

// env returns the name of the key's environment variable.
func (k key) env() string {
	return "LACUNA_" + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

func find(table []key, name string) (key, bool) {
	i := slices.IndexFunc(table, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return table[i], true
}

// keys is the table of everything that can be set, bound to c, in the order of the file.
func (c *Config) keys() []key {
	n, p, r := &c.Network, &c.Provide, &c.Rent
	return []key{
		text("identity.file", "identity.key", "file with the peer's private key; a relative path is in the home", &c.Identity.File, noCheck),

		text("network.name", mainNetwork, "which network to join; a name that begins with test is a test network", &n.Name, CheckNetwork),
		listen("network.listen", "auto", "where to listen; auto: port 4711 or the next free one, TCP and QUIC, IPv4 and IPv6; port 0 takes any free port", &n.Listen),
		texts("network.announce", "", "addresses to tell others instead of the own ones, for a port that a router forwards", &n.Announce, checkAnnounce),
		texts("network.bootstrap", "", "peers to join through: invites, or addresses that end in /p2p/PEER", &n.Bootstrap, checkBootstrap),
		text("network.profile", "auto", "hub, provider, light, testnet, or auto: by what the peer does", &n.Profile, oneOf("auto", "hub", "provider", "light", "testnet")),
		text("network.lan", "auto", "tell and dial private addresses: yes, no, or auto: yes on every network but main", &n.lan, oneOf("auto", "yes", "no")),
		text("network.mdns", "auto", "tell and find peers on the local network: on, off, or auto: on except on test networks", &n.mdns, oneOf("auto", "on", "off")),
		text("network.key_file", "", "file with the key of a private network, as network.key; it costs QUIC; empty: none; a relative path is in the home", &n.KeyFile, noCheck),
		text("network.tls_cert", "", "file with the certificate chain of WSS addresses in network.listen, PEM; read again when it changes", &n.TLSCert, noCheck),
		text("network.tls_key", "", "file with the private key of network.tls_cert, PEM", &n.TLSKey, noCheck),
		text("network.tls_ca", "", "file with certificates to trust beside the system's when WSS is dialled, PEM", &n.TLSCA, noCheck),
		text("network.hub", "auto", "serve peers that cannot be dialled, as a hub: auto: once others can dial this one, unless network.profile is light; or no", &n.hub, oneOf("auto", "no")),
		value("network.relay_per_day", "auto", "most that is relayed for others in 24 hours, signalling and job data of all connections together; auto: 1GB, with network.relay_bulk 100GB", &n.RelayPerDay, parseRelayed, formatSize),
		value("network.relay_bulk", "false", "let job data, logs and tunnels of others pass through this peer too", &n.RelayBulk, parseBool, strconv.FormatBool),
		value("network.relay_bulk_data", "10GB", "most that one relayed connection may carry each way, with network.relay_bulk", &n.RelayBulkData, parseMemory, formatSize),
		value("network.relay_bulk_time", "24h", "longest that one relayed connection may last, with network.relay_bulk", &n.RelayBulkTime, between(time.Minute, 30*24*time.Hour), strictyaml.FormatDuration),
		value("network.relay_bulk_rate", "10MB", "most that is relayed in a second, all connections together, with network.relay_bulk", &n.RelayBulkPerSec, parseRate, formatSize),

		value("provide.enabled", "false", "sell what this machine has to spare", &p.Enabled, parseBool, strconv.FormatBool),
		value("provide.price", "0.10 USD/h", "lowest price of one GPU for one hour", &p.Price, parsePrice, market.MicroUSD.PerHour),
		value("provide.cpu_price", "0.01 USD/h", "lowest price of one CPU slot for one hour", &p.CPUPrice, parsePrice, market.MicroUSD.PerHour),
		value("provide.place", "unknown", "where the machine stands, as eu/de/berlin; shorter or unknown is fine", &p.Place, parsePlace, market.Place.String),
		value("provide.cpu_slots", "auto", "CPU slots on sale; auto: half of the cores where there is no GPU, else none", &p.CPUSlots, parseCount, formatCount),
		value("provide.max_duration", "24h", "longest that one lease may last", &p.MaxDuration, between(time.Minute, market.MaxDuration), strictyaml.FormatDuration),
		value("provide.notice", "30s", "bids of jobs that want a longer grace than this to save their work are declined", &p.Notice, between(time.Second, market.MaxGrace), strictyaml.FormatDuration),
		value("provide.max_memory", "2GiB", "main memory that one job may have", &p.MaxMemBytes, parseMemory, market.FormatBytes),
		value("provide.max_disk", "10GiB", "disk that one job may take: its module, inputs, files and log together", &p.MaxDiskBytes, parseMemory, market.FormatBytes),
		values("provide.workloads", "wasm", "kinds of work to take in: wasm", &p.Workloads, parseWorkload, market.Workload.String),
		values("provide.tiers", "silver, bronze", "tiers to sell: gold (reserved), silver (on demand), bronze (interruptible)", &p.Tiers, market.ParseTier, market.Tier.String),
		value("provide.trial_per_day", "auto", "credit a day for all peers that never paid, together; auto: 1 USD, on a test network 1000 USD", &p.TrialPerDay, parseTrial, market.MicroUSD.String),
		value("provide.trial_devices", "auto", "devices for all peers that never paid, together, 0 = no limit; auto: 1, on a test network no limit", &p.TrialDevices, parseCount, formatCount),
		text("provide.simulate_gpus", "", "file with simulated devices, for test networks", &p.SimulateGPUs, noCheck),

		value("rent.max_price", market.MicroUSD(market.DefaultMaxPrice).PerHour(), "highest price per device and hour, for jobs that name none", &r.MaxPrice, parsePrice, market.MicroUSD.PerHour),
		value("rent.budget", market.MicroUSD(market.DefaultBudget).String(), "most that a job may cost, for jobs that name none", &r.Budget, parseAmount, market.MicroUSD.String),
		value("rent.confirm_above", "1 USD", "ask before a job that may cost more", &r.ConfirmAbove, market.ParseUSD, market.MicroUSD.String),
		value("rent.survive", strictyaml.FormatDuration(market.DefaultSurvive), "how long a job runs on while this peer is away", &r.Survive, between(time.Second, market.MaxDuration), strictyaml.FormatDuration),
		value("rent.interval", strictyaml.FormatDuration(market.DefaultInterval), "time between two receipts", &r.Interval, between(market.MinInterval, market.MaxInterval), strictyaml.FormatDuration),
		values("rent.exclude", "", "peers never to rent from, by peer id", &r.Exclude, attest.ParseKey, attest.Key.String),

		value("store.min_free", "1GiB", "free disk space below which no new work is taken on", &c.Store.MinFreeBytes, market.ParseBytes, market.FormatBytes),

		text("api.socket", "", "where programs on this machine reach the peer; empty: in the home", &c.API.Socket, checkSocket),

		value("telemetry.sample", "1s", "time between two readings of a device", &c.Telemetry.Sample, between(100*time.Millisecond, time.Minute), strictyaml.FormatDuration),
	}
}

// settle gives "auto" its meaning where only the other values tell it.
func (c *Config) settle() {
	limits := ledger.DefaultLimits(c.Network.Name)
	if c.Provide.TrialPerDay == autoTrial {
		c.Provide.TrialPerDay = limits.TrialPerDay
	}
	if c.Provide.TrialDevices == Auto {
		c.Provide.TrialDevices = limits.TrialDevices
	}
	n := &c.Network
	if n.RelayPerDay == 0 {
		n.RelayPerDay = relayPerDay
		if n.RelayBulk {
			n.RelayPerDay = relayBulkPerDay
		}
	}
	if n.Profile == "auto" {
		n.Profile = ""
	}
	if n.lan == "auto" {
		n.lan = choice(n.Name != mainNetwork, "yes", "no")
	}
	if n.mdns == "auto" {
		n.mdns = choice(!market.IsTestNetwork(n.Name), "on", "off")
	}
	n.LAN, n.MDNS, n.Hub = n.lan == "yes", n.mdns == "on", n.hub == "auto"
}

// What is relayed in a day where nobody set it. A tenth of the second is one connection's job data.
const (
	relayPerDay     = 1_000_000_000
	relayBulkPerDay = 100_000_000_000
)

// mainNetwork is the public network, where a private address belongs to a stranger.
const mainNetwork = "main"

func choice(yes bool, ifYes, ifNo string) string {
	if yes {
		return ifYes
	}
	return ifNo
}

// autoTrial stands for auto until settle; no amount is as large.
const autoTrial = market.MicroUSD(1<<64 - 1)

// value is a key of one value.
func value[T any](name, def, comment string, p *T, parse func(string) (T, error), format func(T) string) key {
	return key{name: name, def: def, comment: comment,
		set: func(s []string) error {
			if len(s) != 1 {
				return errors.New("want one value")
			}
			v, err := parse(strings.TrimSpace(s[0]))
			if err == nil {
				*p = v
			}
			return err
		},
		get: func() []string { return []string{format(*p)} }}
}

// values is a key of a list, in which nothing stands twice.
func values[T comparable](name, def, comment string, p *[]T, parse func(string) (T, error), format func(T) string) key {
	return key{name: name, def: def, comment: comment, list: true,
		set: func(list []string) error {
			var out []T
			for _, s := range list {
				v, err := parse(strings.TrimSpace(s))
				if err != nil {
					return err
				}
				if slices.Contains(out, v) {
					return fmt.Errorf("%q stands there twice", s)
				}
				out = append(out, v)
			}
			*p = out
			return nil
		},
		get: func() []string {
			out := make([]string, len(*p))
			for i, v := range *p {
				out[i] = format(v)
			}
			return out
		}}
}

func text(name, def, comment string, p *string, check func(string) error) key {
	return value(name, def, comment, p, func(s string) (string, error) { return s, check(s) }, same)
}

func texts(name, def, comment string, p *[]string, check func(string) error) key {
	return values(name, def, comment, p, func(s string) (string, error) { return s, check(s) }, same)
}

func same(s string) string { return s }

func noCheck(string) error { return nil }

func oneOf(names ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(names, s) {
			return nil
		}
		if near := strictyaml.Suggest(s, names); near != "" {
			return fmt.Errorf("%q: did you mean %s?", s, near)
		}
		return fmt.Errorf("%q: want one of %s", s, strings.Join(names, ", "))
	}
}

// CheckNetwork reports a name that no network can have: it stands in protocol names and topics.
func CheckNetwork(name string) error {
	if len(name) < 1 || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("network %.40q: want 1 to 32 of a-z, 0-9 and -", name)
	}
	return nil
}

func checkSocket(s string) error {
	if s != "" && (!filepath.IsAbs(s) || len(s) > home.MaxSocket) {
		return fmt.Errorf("%.120q: want an absolute path of at most %d bytes", s, home.MaxSocket)
	}
	return nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q: want true or false", s)
}

func parsePrice(s string) (market.MicroUSD, error) {
	m, err := market.ParsePrice(s)
	if err == nil && m == 0 {
		err = errors.New("price of 0: want more")
	}
	return m, err
}

func parseAmount(s string) (market.MicroUSD, error) {
	m, err := market.ParseUSD(s)
	if err == nil && m == 0 {
		err = errors.New("amount of 0: want more")
	}
	return m, err
}

func parseTrial(s string) (market.MicroUSD, error) {
	if s == "auto" {
		return autoTrial, nil
	}
	return market.ParseUSD(s)
}

func parsePlace(s string) (market.Place, error) {
	if s == "" || s == "unknown" {
		return market.Place{}, nil
	}
	return market.ParsePlace(s)
}

func parseCount(s string) (int, error) {
	if s == "auto" {
		return Auto, nil
	}
	n, err := strconv.ParseUint(s, 10, 12)
	if err != nil || n > 1024 {
		return 0, fmt.Errorf("%q: want auto, or 0 to 1024", s)
	}
	return int(n), nil
}

func formatCount(n int) string {
	if n == Auto {
		return "auto"
	}
	return strconv.Itoa(n)
}

func parseMemory(s string) (uint64, error) {
	n, err := market.ParseBytes(s)
	if err == nil && n < 1<<20 {
		err = fmt.Errorf("%q: want at least 1MiB", s)
	}
	return n, err
}

// parseRelayed reads a size; auto is 0 until settle.
func parseRelayed(s string) (uint64, error) {
	if s == "auto" {
		return 0, nil
	}
	return parseMemory(s)
}

func parseRate(s string) (uint64, error) {
	n, err := market.ParseBytes(strings.TrimSuffix(s, "/s"))
	if err == nil && n < 10_000 {
		err = fmt.Errorf("%q: want at least 10kB", s)
	}
	return n, err
}

// formatSize prints what was written in powers of ten so again.
func formatSize(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes uint64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return market.FormatBytes(n)
}

func parseWorkload(s string) (market.Workload, error) {
	if s == market.WASM.String() {
		return market.WASM, nil
	}
	return 0, fmt.Errorf("%q: want wasm", s)
}

func between(least, most time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := strictyaml.Duration(s)
		if err == nil && (d < least || d > most) {
			err = fmt.Errorf("%q: want %s to %s", s, strictyaml.FormatDuration(least), strictyaml.FormatDuration(most))
		}
		return d, err
	}
}
