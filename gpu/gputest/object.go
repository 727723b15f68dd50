package gputest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fields are the keys that a JSON object may have, with what decodes each.
type fields map[string]func(json.RawMessage) error

// decode reads an object into its fields. encoding/json alone would take keys in
// any case and the last of two equal ones; here both are errors, and an unknown
// key is answered with the known ones.
func (f fields) decode(raw json.RawMessage) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("is not an object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		name, _ := t.(string) // a key is always a string
		set, ok := f[name]
		switch {
		case !ok:
			known := slices.Sorted(maps.Keys(f))
			return fmt.Errorf("unknown key %.64q; known keys: %s", name, strings.Join(known, ", "))
		case seen[name]:
			return fmt.Errorf("key %q is given twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := set(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// list decodes each element of an array of at most limit elements.
func list(limit int, element func(json.RawMessage) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var elements []json.RawMessage
		if isNull(raw) || json.Unmarshal(raw, &elements) != nil {
			return errors.New("is not a list")
		}
		if len(elements) > limit {
			return fmt.Errorf("has %d entries, more than %d", len(elements), limit)
		}
		for i, e := range elements {
			if err := element(e); err != nil {
				return fmt.Errorf("entry %d: %w", i+1, err)
			}
		}
		return nil
	}
}

func text(to *string) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil || s == nil {
			return errors.New("is not a text")
		}
		if *s == "" || len(*s) > maxText {
			return fmt.Errorf("has %d bytes, not 1 to %d", len(*s), maxText)
		}
		*to = *s
		return nil
	}
}

// number decodes an unsigned integer up to limit, written as such.
func number(limit uint64, to func(uint64)) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		n, err := strconv.ParseUint(string(raw), 10, 64)
		if err != nil {
			return fmt.Errorf("%.32s is not a whole number of 0 or more", raw)
		}
		if n > limit {
			return fmt.Errorf("%d is above %d", n, limit)
		}
		to(n)
		return nil
	}
}

// duration decodes a Go duration of least or more, at most maxDuration.
func duration(least time.Duration, to *time.Duration) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var s string
		if err := text(&s)(raw); err != nil {
			return errors.New(`is not a duration in quotes, as "1500ms"`)
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf(`%.32q is not a duration as "1500ms" or "10s"`, s)
		}
		if d < least || d > maxDuration {
			return fmt.Errorf("%v is not between %v and %v", d, least, maxDuration)
		}
		*to = d
		return nil
	}
}

// size decodes a whole number of an explicit unit into bytes, never 0.
func size(to *uint64) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var s string
		if err := text(&s)(raw); err != nil {
			return errors.New(`is not a size in quotes, as "24GiB"`)
		}
		for _, u := range sizeUnits {
			digits, ok := strings.CutSuffix(s, u.name)
			if !ok {
				continue
			}
			n, err := strconv.ParseUint(digits, 10, 64)
			if err != nil || n == 0 || n > maxMemory/u.bytes {
				break
			}
			*to = n * u.bytes
			return nil
		}
		return fmt.Errorf("%.32q is not a size in MiB, MB, GiB or GB up to 16384GiB", s)
	}
}

var sizeUnits = [...]struct {
	name  string
	bytes uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"GB", 1e9}, {"MB", 1e6}}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// single returns the one JSON value that data holds.
func single(data []byte) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read JSON: more than one value")
	}
	return raw, nil
}
