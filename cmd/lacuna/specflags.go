package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// specFlags are the flags of run that describe the job, as they are typed.
type specFlags struct {
	name                 string
	env, volumes, out    []string
	gpus, cpus           int
	models               []string
	vram, memory, disk   string
	tier, price, budget  string
	duration             time.Duration
	startWithin, survive time.Duration
	interval, latency    time.Duration
	checkpoint           string
	require              []string
	providers, exclude   []string
}

func (f *specFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.name, "name", "", "name of the job, for ps, logs, stop and the like")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `K=V`, or K to pass on the value it has here; repeatable")
	fs.StringArrayVarP(&f.volumes, "volume", "v", nil, "input `SRC:DST[:ro]`: a file or folder here, and its path in the job; read-only, repeatable")
	fs.StringArrayVar(&f.out, "out", nil, "output `GUEST:HOST`: a folder in the job, and where its files go here; repeatable")
	fs.IntVar(&f.gpus, "gpus", 0, "number of GPUs; 0 runs on CPU slots (1 when --gpu or --vram is given)")
	fs.StringSliceVar(&f.models, "gpu", nil, "GPU `model`, such as \"RTX 4090\" or A100; several mean any of them")
	fs.StringVar(&f.vram, "vram", "", "least memory per GPU, such as 16GiB")
	fs.IntVar(&f.cpus, "cpus", 0, "CPU slots, for a job without GPUs (default 1)")
	fs.StringVar(&f.memory, "memory", "", "main memory of the job (default "+market.FormatBytes(market.DefaultMemBytes)+")")
	fs.StringVar(&f.disk, "disk", "", "files the job may write (default "+market.FormatBytes(market.DefaultDiskBytes)+")")
	fs.StringVar(&f.tier, "tier", "", "gold (reserved), silver (on demand) or bronze (interruptible) (default silver)")
	fs.StringVar(&f.price, "price", "", "highest price per device and hour, such as \"0.60 USD/h\" (default rent.max_price of the config)")
	fs.StringVar(&f.budget, "budget", "", "the job never costs more, such as \"5 USD\" (default rent.budget of the config)")
	fs.Var((*duration)(&f.duration), "duration", "longest the job may run, such as 2h (default "+strictyaml.FormatDuration(market.DefaultDuration)+")")
	fs.Var((*duration)(&f.startWithin), "start-within", "latest start, counted from now (default "+strictyaml.FormatDuration(market.DefaultStartWithin)+")")
	fs.Var((*duration)(&f.survive), "survive", "how long it runs on while this peer is away (default rent.survive of the config)")
	fs.Var((*duration)(&f.interval), "interval", "time between receipts (default rent.interval of the config)")
	fs.StringVar(&f.checkpoint, "checkpoint", "", "`PATH[,every=5m][,grace=30s]`: folder whose files are saved here while the job runs; after a move the job finds them again")
	fs.StringArrayVar(&f.require, "region", nil, "`place` where the provider must be, such as eu or eu/de; several mean any of them")
	fs.Var((*duration)(&f.latency), "latency", "longest round trip to the provider as this peer measures it, such as 50ms; nearer ones rank a little higher (default any)")
	fs.StringArrayVar(&f.providers, "provider", nil, "take only this `peer`; repeatable")
	fs.StringArrayVar(&f.exclude, "exclude", nil, "never take this `peer`; repeatable")
}

// spec returns the job that the flags and arguments describe. Paths become absolute, as the daemon has another folder.
// It reports every fault at once.
func (f *specFlags) spec(args []string, getenv func(string) (string, bool)) (market.Spec, error) {
	var faults []string
	try := func(flag string, err error) {
		if err != nil {
			faults = append(faults, flag+": "+err.Error())
		}
	}
	s := market.Spec{Name: f.name, Args: args[1:], GPUs: f.gpus, CPUs: f.cpus, Models: f.models, Duration: f.duration,
		StartWithin: f.startWithin, Survive: f.survive, Interval: f.interval, Latency: f.latency}
	var err error
	s.Module, err = filepath.Abs(args[0])
	try(args[0], err)
	if st, err := os.Stat(args[0]); err != nil || st.IsDir() {
		faults = append(faults, fmt.Sprintf("%s: no such file; name a WebAssembly module", args[0]))
	}
	if s.GPUs == 0 && (len(s.Models) > 0 || f.vram != "") {
		s.GPUs = 1
	}
	for _, size := range []struct {
		flag, text string
		to         *uint64
	}{{"--vram", f.vram, &s.VRAMBytes}, {"--memory", f.memory, &s.MemBytes}, {"--disk", f.disk, &s.DiskBytes}} {
		if size.text != "" {
			if *size.to, err = market.ParseBytes(size.text); err == nil && *size.to == 0 {
				err = errors.New("0: want more, or leave it out for the default")
			}
			try(size.flag, err)
		}
	}
	for _, m := range f.models {
		if strings.TrimSpace(m) == "" {
			faults = append(faults, "--gpu: an empty model")
			break
		}
	}
	if f.tier != "" {
		s.Tier, err = market.ParseTier(f.tier)
		try("--tier", err)
	}
	if f.price != "" {
		s.MaxPrice, err = market.ParsePrice(f.price)
		try("--price", err)
	}
	if f.budget != "" {
		s.Budget, err = market.ParseUSD(f.budget)
		try("--budget", err)
	}
	s.Env, err = parseEnv(f.env, getenv)
	try("--env", err)
	s.Inputs, err = parseAll(f.volumes, parseInput)
	try("--volume", err)
	s.Outputs, err = parseAll(f.out, parseOutput)
	try("--out", err)
	if f.checkpoint != "" {
		try("--checkpoint", parseCheckpoint(f.checkpoint, &s))
	}
	s.Require, err = parseAll(f.require, market.ParsePlace)
	try("--region", err)
	faults = append(faults, notText(s)...)
	if len(faults) > 0 {
		return s, usageError("see: lacuna run --help", "%s", strings.Join(faults, "\n"))
	}
	return s, nil
}

// notText names what of s is not UTF-8. It would reach the job as something else, for the daemon is asked in JSON.
func notText(s market.Spec) []string {
	var faults []string
	check := func(what string, texts ...string) {
		for _, t := range texts {
			if !utf8.ValidString(t) {
				faults = append(faults, fmt.Sprintf("%s: %q is not UTF-8 text", what, t))
			}
		}
	}
	check("--name", s.Name)
	check("module", s.Module)
	check("argument", s.Args...)
	check("--gpu", s.Models...)
	check("--checkpoint", s.Checkpoint)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		check("--env", k, s.Env[k])
	}
	for _, t := range s.Inputs {
		check("--volume", t.From, t.To)
	}
	for _, t := range s.Outputs {
		check("--out", t.From, t.To)
	}
	return faults
}

// duration is a flag's span of time, read as in a job file: "90s", "2h", "7d".
type duration time.Duration

// String returns "" for 0, so that the help shows no default.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return strictyaml.FormatDuration(time.Duration(*d))
}

// Set reads what was typed.
func (d *duration) Set(s string) error {
	v, err := strictyaml.Duration(s)
	*d = duration(v)
	return err
}

// Type names the value in the help.
func (d *duration) Type() string { return "duration" }

func parseAll[T any](texts []string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for _, t := range texts {
		v, err := parse(t)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// parseEnv reads K=V, and K for the value of this process; a K that is not set here is left out, as docker does.
func parseEnv(texts []string, getenv func(string) (string, bool)) (map[string]string, error) {
	var env map[string]string
	for _, t := range texts {
		k, v, given := strings.Cut(t, "=")
		if k == "" {
			return nil, fmt.Errorf("%q: want K=V or K", t)
		}
		if !given {
			var ok bool
			if v, ok = getenv(k); !ok {
				continue
			}
		}
		if env == nil {
			env = map[string]string{}
		}
		env[k] = v
	}
	return env, nil
}

// parseInput reads SRC:DST[:ro]. The last ":/" parts the two, so that a drive letter stays with its path.
func parseInput(s string) (market.Transfer, error) {
	t := strings.TrimSuffix(s, ":ro")
	i := strings.LastIndex(t, ":/")
	if i <= 0 {
		if strings.HasSuffix(s, ":rw") {
			return market.Transfer{}, fmt.Errorf("%q: inputs are read-only; what the job writes comes back with --out", s)
		}
		return market.Transfer{}, fmt.Errorf("%q: want SRC:DST with an absolute DST, such as ./data:/data", s)
	}
	if strings.HasSuffix(t, ":rw") {
		return market.Transfer{}, fmt.Errorf("%q: inputs are read-only; what the job writes comes back with --out", s)
	}
	from, err := filepath.Abs(t[:i])
	if err != nil {
		return market.Transfer{}, err
	}
	if _, err := os.Stat(from); err != nil {
		return market.Transfer{}, fmt.Errorf("%s: no such file or folder", t[:i])
	}
	return market.Transfer{From: from, To: t[i+1:]}, nil
}

// parseOutput reads GUEST:HOST.
func parseOutput(s string) (market.Transfer, error) {
	guest, host, ok := strings.Cut(s, ":")
	if !ok || host == "" || !strings.HasPrefix(guest, "/") {
		return market.Transfer{}, fmt.Errorf("%q: want GUEST:HOST with an absolute GUEST, such as /out:./results", s)
	}
	to, err := filepath.Abs(host)
	return market.Transfer{From: guest, To: to}, err
}

// parseCheckpoint reads PATH[,every=5m][,grace=30s] into s.
func parseCheckpoint(text string, s *market.Spec) error {
	parts := strings.Split(text, ",")
	if parts[0] == "" {
		return fmt.Errorf("%q: no path; want PATH[,every=5m][,grace=30s]", text)
	}
	s.Checkpoint = parts[0]
	for _, p := range parts[1:] {
		k, v, _ := strings.Cut(p, "=")
		d, err := strictyaml.Duration(v)
		switch {
		case k != "every" && k != "grace":
			return fmt.Errorf("%q: want PATH[,every=5m][,grace=30s]", text)
		case err != nil:
			return fmt.Errorf("%s: %w", k, err)
		case k == "every":
			s.Every = d
		default:
			s.Grace = d
		}
	}
	return nil
}
