package gputest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lacuna-network/lacuna/gpu"
)

// What a file may hold at most: enough for any test network on one machine, and
// small enough that no file can hurt.
const (
	maxFile     = 1 << 20 // bytes
	maxDevices  = 1024
	maxSteps    = 4096
	maxText     = 96 // bytes; leaves room for the suffix in a device id of 128
	maxDuration = 366 * 24 * time.Hour
	maxMemory   = 16384 << 30
	maxReading  = 1 << 40
)

// Load reads a set from a JSON file of at most 1 MiB.
func Load(path string) (*Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open simulated devices: %w", err)
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read simulated devices: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read simulated devices from %s: %w", path, err)
	}
	return s, nil
}

// Parse reads a set from JSON; the package comment gives the form. The error
// names the entry and the key at fault.
func Parse(data []byte) (*Set, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	raw, err := single(data)
	if err != nil {
		return nil, err
	}
	s := &Set{}
	if err := list(maxDevices, s.addEntry)(raw); err != nil {
		return nil, err
	}
	if len(s.devices) == 0 {
		return nil, errors.New("no devices")
	}
	return s, nil
}

// entry is one object of the file before its devices are made.
type entry struct {
	script
	model, id, place string
	memory           uint64
	count            int
}

func (s *Set) addEntry(raw json.RawMessage) error {
	e := entry{count: 1}
	err := fields{
		"model":      text(&e.model),
		"id":         text(&e.id),
		"memory":     size(&e.memory),
		"count":      number(maxDevices, func(n uint64) { e.count = int(n) }),
		"price":      text(&e.price),
		"place":      text(&e.place),
		"load":       list(maxSteps, e.addStep),
		"idle":       func(raw json.RawMessage) error { return readingFields(&e.idle).decode(raw) },
		"faults":     list(maxSteps, e.addFault),
		"owner":      list(maxSteps, e.addStay),
		"unreadable": list(len(readingNames), e.addHidden),
	}.decode(raw)
	if err != nil {
		return err
	}
	if e.period > maxDuration {
		return fmt.Errorf("load: lasts longer than %v", maxDuration)
	}
	slices.SortStableFunc(e.faults, func(a, b fault) int { return cmp.Compare(a.after, b.after) })
	if e.place != "" {
		if s.place != "" && s.place != e.place {
			return fmt.Errorf("place: %q differs from %q above; one file is one place", e.place, s.place)
		}
		s.place = e.place
	}
	return s.addDevices(e)
}

// addDevices makes the devices of an entry.
func (s *Set) addDevices(e entry) error {
	switch {
	case e.model == "":
		return errors.New("model: is missing")
	case e.count == 0:
		return errors.New("count: is 0")
	case e.id != "" && (!strings.HasPrefix(e.id, "SIM-") || e.id == "SIM-"):
		return fmt.Errorf("id: %q does not begin with SIM- and a name", e.id)
	case len(s.devices)+e.count > maxDevices:
		return fmt.Errorf("count: more than %d devices in all", maxDevices)
	}
	product, memory, err := identify(e.model, e.memory)
	if err != nil {
		return err
	}
	for n := range e.count {
		d := gpu.NewDevice(gpu.NVIDIA, s.nextID(e, n), product, memory)
		d.Simulated = true
		if err := d.Validate(); err != nil {
			return err
		}
		if s.find(d.ID) != nil {
			return fmt.Errorf("id: %s is given twice", d.ID)
		}
		s.devices = append(s.devices, &device{Device: d, script: e.script})
	}
	return nil
}

// identify returns the product string and the memory of a simulated card. A name
// that fits several rows of the registry needs the memory to tell them apart.
func identify(name string, memory uint64) (string, uint64, error) {
	rows := gpu.Lookup(name)
	if len(rows) == 0 {
		if memory == 0 {
			return "", 0, fmt.Errorf("memory: is missing, and the model %q is not in the registry", name)
		}
		return name, memory, nil
	}
	var names []string
	for _, m := range rows {
		names = append(names, m.Name)
		switch {
		case memory == 0 && len(rows) == 1:
			return m.Products[0], m.MemBytes, nil
		case m.HasMem(memory):
			return m.Products[0], memory, nil
		}
	}
	if memory == 0 {
		return "", 0, fmt.Errorf("model: %q may be any of %s; name one, or give the memory", name, strings.Join(names, ", "))
	}
	return "", 0, fmt.Errorf("memory: %d bytes is not that of %s", memory, strings.Join(names, " or "))
}

// nextID returns the id of the n-th device of an entry, from 0.
func (s *Set) nextID(e entry, n int) string {
	switch {
	case e.id == "":
		word := strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			return -1
		}, e.model)
		return "SIM-" + word + "-" + strconv.Itoa(len(s.devices)+1)
	case e.count == 1:
		return e.id
	default:
		return e.id + "-" + strconv.Itoa(n+1)
	}
}

// readingFields are the keys of the readings, decoded into r.
func readingFields(r *readings) fields {
	f := fields{}
	for i, name := range readingKeys {
		limit := uint64(maxReading)
		if reading(i) == util {
			limit = gpu.MaxBP
		}
		f[name] = number(limit, func(n uint64) { r[i] = &n })
	}
	return f
}

func (e *entry) addStep(raw json.RawMessage) error {
	var st step
	f := readingFields(&st.readings)
	f["for"] = duration(time.Nanosecond, &st.lasts)
	if err := f.decode(raw); err != nil {
		return err
	}
	if st.lasts == 0 {
		return errors.New("for: is missing")
	}
	if e.period <= maxDuration { // stops the sum short of overflow
		e.period += st.lasts
	}
	e.load = append(e.load, st)
	return nil
}

func (e *entry) addStay(raw json.RawMessage) error {
	var o stay
	f := readingFields(&o.readings)
	f["at"] = duration(0, &o.at)
	f["for"] = duration(time.Nanosecond, &o.lasts)
	if err := f.decode(raw); err != nil {
		return err
	}
	if o.lasts == 0 {
		return errors.New("for: is missing")
	}
	e.owner = append(e.owner, o)
	return nil
}

func (e *entry) addFault(raw json.RawMessage) error {
	ft := fault{lease: 1}
	err := fields{
		"kind":  text(&ft.kind),
		"lease": number(1<<20, func(n uint64) { ft.lease = int(n) }),
		"after": duration(0, &ft.after),
	}.decode(raw)
	if err != nil {
		return err
	}
	if kinds := []string{KindLost, KindHang, KindXID, KindECC}; !slices.Contains(kinds, ft.kind) {
		return fmt.Errorf("kind: unknown kind %q; known kinds: %s", ft.kind, strings.Join(kinds, ", "))
	}
	if ft.lease == 0 {
		return errors.New("lease: counts from 1")
	}
	e.faults = append(e.faults, ft)
	return nil
}

func (e *entry) addHidden(raw json.RawMessage) error {
	var name string
	if err := text(&name)(raw); err != nil {
		return err
	}
	i := slices.Index(readingNames[:], name)
	if i < 0 {
		return fmt.Errorf("unknown reading %q; known readings: %s", name, strings.Join(readingNames[:], ", "))
	}
	e.hidden = append(e.hidden, reading(i))
	return nil
}
