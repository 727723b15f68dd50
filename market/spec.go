package market

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lacuna-network/lacuna/attest"
)

// Spec is what a renter wants done, and its limits: the job file and the flags of `lacuna run` come down to it. It
// stays with the renter; what others see of it are [Bid] and, for the winner alone, [Lease] and [Terms].
type Spec struct {
	Name        string            `json:"name"`
	Module      string            `json:"wasm"` // path of the module on the renter's machine
	Args        []string          `json:"args,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Inputs      []Transfer        `json:"inputs,omitempty"`  // from the renter's machine to a guest path
	Outputs     []Transfer        `json:"outputs,omitempty"` // from a guest folder to the renter's machine
	GPUs        int               `json:"gpus"`              // 0 = the job runs on CPU slots
	CPUs        int               `json:"cpus"`              // CPU slots when GPUs is 0
	Models      []string          `json:"gpu,omitempty"`
	VRAMBytes   uint64            `json:"vram_bytes,omitempty"` // per GPU
	MemBytes    uint64            `json:"memory_bytes"`
	DiskBytes   uint64            `json:"disk_bytes"`
	LogBytes    uint64            `json:"log_bytes"`
	Tier        Tier              `json:"tier,omitzero"`
	MaxPrice    MicroUSD          `json:"max_price_per_gpu_hour_microusd"`
	Budget      MicroUSD          `json:"budget_microusd"`
	Duration    time.Duration     `json:"duration_ms"`
	StartWithin time.Duration     `json:"start_within_ms"`
	Survive     time.Duration     `json:"survive_ms"`
	Interval    time.Duration     `json:"interval_ms"`          // between receipts
	Checkpoint  string            `json:"checkpoint,omitempty"` // guest folder
	Every       time.Duration     `json:"checkpoint_every_ms,omitempty"`
	Grace       time.Duration     `json:"grace_ms,omitempty"`
	Require     []Place           `json:"require,omitempty"`
	Latency     time.Duration     `json:"latency_ms,omitempty"` // longest round trip to the provider, as measured; 0 = any
	Providers   []attest.Key      `json:"providers,omitempty"`  // only these; empty = anyone
	Exclude     []attest.Key      `json:"exclude,omitempty"`
	Theta       uint64            `json:"theta,omitempty"` // cost of one failed interval, in interval prices; 0 = by kind
}

// inMilliseconds is a [Spec] whose spans of time count milliseconds, as in JSON.
type inMilliseconds Spec

func (s *inMilliseconds) spans() []*time.Duration {
	return []*time.Duration{&s.Duration, &s.StartWithin, &s.Survive, &s.Interval, &s.Every, &s.Grace, &s.Latency}
}

// MarshalJSON returns the spec with spans of time in milliseconds.
func (s Spec) MarshalJSON() ([]byte, error) {
	m := inMilliseconds(s)
	for _, d := range m.spans() {
		*d /= time.Millisecond
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what [Spec.MarshalJSON] wrote.
func (s *Spec) UnmarshalJSON(b []byte) error {
	var m inMilliseconds
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return err
	}
	for _, d := range m.spans() {
		if *d < 0 || *d > MaxDuration {
			return fmt.Errorf("a span of %d ms is out of range", *d)
		}
		*d *= time.Millisecond
	}
	*s = Spec(m)
	return nil
}

// Transfer is a path on one side and a path on the other.
type Transfer struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Defaults of a [Spec], chosen so that a first job of a newcomer is small and safe.
const (
	DefaultMemBytes    = 512 << 20
	DefaultDiskBytes   = 1 << 30
	DefaultLogBytes    = 16 << 20
	DefaultDuration    = time.Hour
	DefaultStartWithin = 30 * time.Second
	DefaultSurvive     = time.Minute
	DefaultInterval    = 10 * time.Second
	DefaultGrace       = 30 * time.Second
	DefaultEvery       = 5 * time.Minute
	DefaultMaxPrice    = 1 * USD // per device and hour
	DefaultBudget      = 1 * USD
)

// WithDefaults returns s with every limit that is not set at its default.
func (s Spec) WithDefaults() Spec {
	if s.GPUs == 0 && s.CPUs == 0 {
		s.CPUs = 1
	}
	setDefault(&s.MemBytes, DefaultMemBytes)
	setDefault(&s.DiskBytes, DefaultDiskBytes)
	setDefault(&s.LogBytes, DefaultLogBytes)
	setDefault(&s.Tier, Silver)
	setDefault(&s.MaxPrice, DefaultMaxPrice)
	setDefault(&s.Budget, DefaultBudget)
	setDefault(&s.Duration, DefaultDuration)
	setDefault(&s.StartWithin, DefaultStartWithin)
	setDefault(&s.Survive, DefaultSurvive)
	setDefault(&s.Interval, DefaultInterval)
	if s.Checkpoint != "" {
		setDefault(&s.Every, DefaultEvery)
		setDefault(&s.Grace, DefaultGrace)
	}
	return s
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Count returns how many devices the job takes.
func (s Spec) Count() int {
	if s.GPUs > 0 {
		return s.GPUs
	}
	return s.CPUs
}

// Validate reports everything that is wrong with s at once. Paths on the renter's machine are not looked at.
func (s Spec) Validate() error {
	var errs []error
	fail := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fail(s.Module != "", "wasm: no module; name a .wasm file")
	fail(len(s.Name) <= 64, "name: longer than 64 characters")
	fail(utf8.ValidString(s.Name) && !strings.ContainsFunc(s.Name, unicode.IsControl), "name: want readable characters on one line")
	fail(s.GPUs >= 0 && s.GPUs <= MaxDevices, "gpus: want 0 to %d", MaxDevices)
	fail(s.GPUs > 0 || (s.CPUs >= 1 && s.CPUs <= MaxDevices), "cpus: want 1 to %d", MaxDevices)
	fail(s.GPUs > 0 || (len(s.Models) == 0 && s.VRAMBytes == 0), "gpu, vram: name a GPU, but gpus is 0")
	fail(len(s.Models) <= 8, "gpu: at most 8 models")
	for _, m := range s.Models {
		fail(m != "" && len(m) <= 64, "gpu: a model without a name, or with one of more than 64 characters")
	}
	fail(s.MaxPrice > 0 && s.MaxPrice <= MaxAmount, "price: want more than 0")
	fail(s.Budget > 0 && s.Budget <= MaxAmount, "budget: want more than 0")
	fail(s.Duration >= time.Second && s.Duration <= MaxDuration, "duration: want 1s to 366 days")
	fail(s.StartWithin >= time.Second && s.StartWithin <= 7*24*time.Hour, "start_within: want 1s to 7 days")
	fail(s.Survive >= s.Interval && s.Survive <= MaxDuration, "survive: want at least the interval between receipts (%s)", s.Interval)
	fail(s.Interval >= MinInterval && s.Interval <= MaxInterval, "interval: want 200ms to 10m")
	fail(s.MemBytes >= 1<<20 && s.MemBytes <= 4<<30, "memory: a WASM job takes 1MiB to 4GiB")
	fail(s.DiskBytes <= MaxBytes && s.LogBytes <= MaxBytes, "disk: too large")
	fail(s.Tier >= Gold && s.Tier <= Bronze, "tier: want gold, silver or bronze")
	fail(s.Every >= 0 && (s.Checkpoint == "" || s.Every >= 100*time.Millisecond), "checkpoint.every: want at least 100ms")
	fail(s.Grace >= 0 && s.Grace <= MaxGrace, "checkpoint.grace: want at most 1h")
	fail(s.Latency == 0 || s.Latency >= time.Millisecond && s.Latency <= 10*time.Second, "place.latency: want 1ms to 10s")
	fail(s.Theta <= 1000, "theta: want at most 1000")
	fields := map[string]string{}
	var paths []string
	guest := func(field, p string) {
		ok := CheckGuestPath(p) == nil
		fail(ok, "%s: %q is not an absolute path in the job, such as /data", field, p)
		fail(fields[p] == "", "%s: %q is taken by %s already", field, p, fields[p])
		if ok && fields[p] == "" {
			paths = append(paths, p)
		}
		fields[p] = field
	}
	for _, t := range s.Inputs {
		fail(t.From != "", "inputs: an entry without from")
		guest("inputs", t.To)
	}
	for _, t := range s.Outputs {
		fail(t.To != "", "outputs: an entry without to")
		guest("outputs", t.From)
	}
	if s.Checkpoint != "" {
		guest("checkpoint.path", s.Checkpoint)
	}
	if err := CheckGuestPaths(paths); err != nil {
		errs = append(errs, fmt.Errorf("inputs, outputs, checkpoint: %w", err))
	}
	for _, p := range s.Require {
		fail(p.Validate() == nil && p.Continent != "", "place.require: %q is no place", p)
	}
	return errors.Join(errs...)
}

// WorstCase returns the most that the job can cost at that price per device and hour.
func (s Spec) WorstCase(price MicroUSD) MicroUSD {
	return min(s.Budget, DueFor(price, s.Count(), s.Duration))
}
