package config

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Entry is one value in force, as people read it.
type Entry struct {
	Key     string `json:"key"`     // section.field
	Value   string `json:"value"`   // as the file takes it; entries of a list with commas between
	Origin  string `json:"origin"`  // "default", "FILE:LINE", "env NAME" or "flag"
	Comment string `json:"comment"` // one line
}

// Explain returns every value in force in the order of the file.
func (c Config) Explain() []Entry {
	var out []Entry
	for _, k := range c.keys() {
		v := strings.Join(k.get(), ", ")
		if k.name == "network.profile" && v == "" {
			v = "auto"
		}
		out = append(out, Entry{Key: k.name, Value: v, Origin: c.origins[k.name], Comment: k.comment})
	}
	return out
}

// Origin returns where the value of a key comes from, "" for a key that does not exist.
func (c Config) Origin(key string) string { return c.origins[key] }

// Render returns a config file with every key and its comment. Keys in values are set; all others stand there
// commented out with their default, so that a better default of a later version reaches who never chose. An unknown
// key or a bad value is an error.
func Render(values map[string]string) ([]byte, error) {
	var c Config
	var b strings.Builder
	b.WriteString("# What this peer does. Take away the # in front of a key to set it; `lacuna config show` prints what is in force.\n")
	left, section := len(values), ""
	var errs []error
	for _, k := range c.keys() {
		s, field, _ := strings.Cut(k.name, ".")
		if s != section {
			section = s
			fmt.Fprintf(&b, "\n%s:\n", section)
		}
		v, set := values[k.name]
		mark := "# "
		if set {
			left, mark = left-1, ""
			if err := k.set(split(k, v)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", k.name, err))
			}
		} else {
			v = k.def
		}
		fmt.Fprintf(&b, "  # %s\n  %s%s: %s\n", k.comment, mark, field, quote(k, v))
	}
	if left > 0 {
		for name := range values {
			if _, ok := find(c.keys(), name); !ok {
				errs = append(errs, fmt.Errorf("%s: no such key", name))
			}
		}
	}
	return []byte(b.String()), errors.Join(errs...)
}

// quote returns values as YAML.
func quote(k key, v string) string {
	one := func(s string) string {
		// Whatever could be taken for more than a plain text goes into quotes; a Go string is a YAML string but for
		// \x and \U escapes of bytes that are no text, which no value has.
		if s == "" || strings.ContainsAny(s, "#:,{}[]&*!|>'\"%@`\\\n\t") || strings.TrimSpace(s) != s || strings.HasPrefix(s, "-") || strings.HasPrefix(s, "?") {
			return strconv.Quote(s)
		}
		return s
	}
	if !k.list {
		return one(v)
	}
	list := split(k, v)
	for i := range list {
		list[i] = one(list[i])
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// WriteDefault writes a commented file with nothing set, mode 0600. It does not touch a file that is there; the error
// then wraps [os.ErrExist].
func WriteDefault(path string) error { return Write(path, nil) }

// Write writes a commented file in which the given keys are set, like [WriteDefault].
func Write(path string, values map[string]string) error {
	data, err := Render(values)
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // half a file would be read as a whole one
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}
