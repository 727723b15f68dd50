// Package config is what an owner can set: the file config.yaml in the home, the environment and the flags, with a
// default for everything.
//
// [Load] returns a [Config], which knows of each value where it comes from ([Config.Explain]). One table in keys.go holds
// every key with its comment, its reading and its printing; the file that [WriteDefault] writes, the environment's names
// and the messages come from it. A key stands in the table only if something acts on it.
//
// A later source wins: default, file, environment (LACUNA_ and the key in upper case, dots as underscores), flag.
// Secrets are never in it. The package starts nothing and checks no port, file or device; it says whether values make
// sense. It is used by node, cmd and the tests; a Config is plain data.
//
// History: 2026-11-30 version 1.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// FileName is the name of the file in the home.
const FileName = "config.yaml"

// Config is every value in force.
type Config struct {
	Identity  Identity
	Network   Network
	Provide   Provide
	Rent      Rent
	Store     Store
	API       API
	Telemetry Telemetry

	origins map[string]string
}

// Identity says who the peer is.
type Identity struct {
	File string // of the private key; relative paths are in the home
}

// Network says where the peer is on the network.
type Network struct {
	Name      string   // 1 to 32 of a-z, 0-9 and -
	Listen    []string // multiaddrs; or [p2p.ListenAuto] alone
	Announce  []string // multiaddrs to tell others; empty = the own ones
	Bootstrap []string // invites, or multiaddrs that end in /p2p/PEER
	Profile   string   // hub, provider, light, testnet or "" = by what the peer does

	LAN     bool   // tell and dial private addresses
	MDNS    bool   // tell and find peers on the local network
	KeyFile string // of a private network; "" = none; relative paths, here and below, are in the home
	TLSCert string // certificate chain of WSS addresses in Listen; "" = none
	TLSKey  string // its private key; "" = none
	TLSCA   string // certificates to trust beside the system's when WSS is dialled; "" = none

	Hub             bool          // serve others as a hub once they can dial this peer
	RelayPerDay     uint64        // bytes relayed in 24 h, signalling and job data of all connections together
	RelayBulk       bool          // let job data, logs and tunnels of others pass
	RelayBulkData   uint64        // bytes of one relayed connection each way, with RelayBulk
	RelayBulkTime   time.Duration // life of one relayed connection, with RelayBulk
	RelayBulkPerSec uint64        // bytes a second, all relayed connections together, with RelayBulk

	lan, mdns, hub string // as written, until settle; then what is in force
}

// Auto is the number that stands for "auto" in [Provide].
const Auto = -1

// Provide says what the peer sells. It sells nothing unless Enabled.
type Provide struct {
	Enabled      bool
	Price        market.MicroUSD // lowest, per GPU and hour
	CPUPrice     market.MicroUSD // lowest, per CPU slot and hour
	Place        market.Place    // zero = not told
	CPUSlots     int             // Auto = half of the cores where there is no GPU, else 0
	MaxDuration  time.Duration   // of one lease
	Notice       time.Duration   // longest grace that a job may ask for; bids with a longer one are declined
	MaxMemBytes  uint64          // main memory of one job
	MaxDiskBytes uint64          // disk of one job
	Workloads    []market.Workload
	Tiers        []market.Tier
	TrialPerDay  market.MicroUSD // credit a day for all peers that never settled, together
	TrialDevices int             // devices for all peers that never settled, together; 0 = no limit
	SimulateGPUs string          // file with simulated devices, "" = none
}

// Rent holds the defaults of jobs, for what their job files leave out.
type Rent struct {
	MaxPrice     market.MicroUSD // per device and hour
	Budget       market.MicroUSD // per job
	ConfirmAbove market.MicroUSD // a person is asked before a job that may cost more
	Survive      time.Duration
	Interval     time.Duration // between receipts
	Exclude      []attest.Key  // peers never to rent from
}

// Store bounds the disk.
type Store struct {
	MinFreeBytes uint64 // below it no new work is taken on
}

// API says where programs on this machine reach the peer.
type API struct {
	Socket string // "" = in the home, or in a short temporary folder where that path is too long
}

// Telemetry says how closely devices are watched.
type Telemetry struct {
	Sample time.Duration // between two readings of a device
}

// Default returns the values of a newcomer, on the network of that name ("" = main).
func Default(network string) Config {
	c, err := Load("", func(string) string { return "" }, overrideName(network))
	if err != nil {
		panic("config: defaults do not hold: " + err.Error())
	}
	return c
}

func overrideName(network string) map[string]string {
	if CheckNetwork(network) != nil {
		return nil
	}
	return map[string]string{"network.name": network}
}

// Load returns the values in force for a home: the file's, unless the environment has one, unless overrides has one.
// Overrides come from flags and are keyed like the file, as "network.name". A missing file is an empty one, and so is a
// home of "". All faults are reported at once; those of the file are [*strictyaml.Fault].
func Load(home string, env func(string) string, overrides map[string]string) (Config, error) {
	c := Config{origins: map[string]string{}}
	table := c.keys()
	var errs []error
	for _, k := range table {
		c.origins[k.name] = "default"
		if err := k.set(split(k, k.def)); err != nil {
			errs = append(errs, fmt.Errorf("%s: default: %w", k.name, err))
		}
	}
	if home != "" {
		path := filepath.Join(home, FileName)
		data, err := readRegular(path)
		switch {
		case err == nil:
			errs = append(errs, c.read(path, data, table))
		case !errors.Is(err, fs.ErrNotExist):
			return c, fmt.Errorf("read config: %w", err)
		}
	}
	for _, k := range table {
		if v := env(k.env()); v != "" {
			c.origins[k.name] = "env " + k.env()
			if err := k.set(split(k, v)); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", k.env(), err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		v := overrides[name]
		k, ok := find(table, name)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: no such key", name))
			continue
		}
		c.origins[name] = "flag"
		if err := k.set(split(k, v)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	c.settle()
	return c, errors.Join(append(errs, c.whole())...)
}

// readRegular reads a file, but none of the kind that may never end.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: no regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Check reports everything that is wrong with the bytes of a config file; name stands in the messages.
func Check(name string, data []byte) error {
	c, err := parse(name, data)
	c.settle()
	return errors.Join(err, c.whole())
}

// parse returns the values of a config file alone as they are written, not settled, with the faults of each.
func parse(name string, data []byte) (*Config, error) {
	c := &Config{origins: map[string]string{}}
	table := c.keys()
	var errs []error
	for _, k := range table {
		errs = append(errs, k.set(split(k, k.def)))
	}
	errs = append(errs, c.read(name, data, table))
	return c, errors.Join(errs...)
}

// read sets what stands in the file.
func (c *Config) read(name string, data []byte, table []key) error {
	doc, root, err := strictyaml.Parse(name, data)
	if err != nil {
		return err
	}
	sections := map[string]func(strictyaml.Value){}
	fields := map[string]map[string]func(strictyaml.Value){}
	var paths []string
	for _, k := range table {
		section, field, _ := strings.Cut(k.name, ".")
		if fields[section] == nil {
			fields[section] = map[string]func(strictyaml.Value){}
			sections[section] = func(v strictyaml.Value) { v.Map(fields[section], paths...) }
		}
		paths = append(paths, k.name)
		fields[section][field] = func(v strictyaml.Value) {
			var values []string
			if v.IsList() && !k.list {
				v.Fail("want one value, not a list")
				return
			}
			if values = v.Texts(); values == nil && !v.IsList() {
				return // reported
			}
			c.origins[k.name] = fmt.Sprintf("%s:%d", name, v.Line())
			if err := k.set(values); err != nil {
				v.Fail("%s", err)
			}
		}
	}
	root.Map(sections, paths...)
	return doc.Err()
}

// split turns the one text of a default, a variable or a flag into a key's values; commas divide lists.
func split(k key, s string) []string {
	if !k.list {
		return []string{s}
	}
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
