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

	"github.com/lacuna-network/lacuna/node/strictyaml"
)

// ErrByHand means that a config file is written in a way that only a person can change.
var ErrByHand = errors.New("the file cannot be changed without touching more of it: change it in an editor")

// Set changes keys in a config file and leaves the rest of it, comments and order, as it is. A file that is not there is
// written anew. Values are as flags give them: commas divide lists. The result is checked before it replaces the file,
// at once and as a whole; a file that was wrong before is not touched.
func Set(path string, values map[string]string) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the link stays a link
	}
	data, err := readRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Write(path, values)
	}
	if err != nil {
		return fmt.Errorf("change config: %w", err)
	}
	data, err = Edit(path, data, values)
	if err != nil {
		return fmt.Errorf("change config: %w", err)
	}
	if err := replace(path, data); err != nil {
		return fmt.Errorf("change config: %w", err)
	}
	return nil
}

// replace writes a file so that after a crash either the old or the new content is there.
func replace(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Edit returns the bytes of a config file with other values for some keys, and all else as it was; name stands in the
// messages. The error wraps [ErrByHand] where that cannot be done.
func Edit(name string, data []byte, values map[string]string) ([]byte, error) {
	// Values that do not go together are no fault here: two keys that need each other are set one after the other.
	if _, err := parse(name, data); err != nil {
		return nil, err
	}
	var c Config
	table := c.keys()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		k, ok := find(table, key)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: no such key%s", key, suggestKey(table, key)))
			continue
		}
		if err := k.set(split(k, values[key])); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
			continue
		}
		data = editOne(data, k, values[key])
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := took(name, data, values); err != nil {
		return nil, err
	}
	return data, nil
}

// took reports whether a file that was edited says what it should.
func took(name string, data []byte, values map[string]string) error {
	c, err := parse(name, data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, ErrByHand)
	}
	var want Config
	wanted, got := want.keys(), c.keys()
	for key, v := range values {
		w, _ := find(wanted, key)
		g, _ := find(got, key)
		if err := w.set(split(w, v)); err != nil || c.origins[key] == "" || !slices.Equal(w.get(), g.get()) {
			return fmt.Errorf("%s: %s: %w", name, key, ErrByHand)
		}
	}
	_, asked := values["network.announce"]
	if _, moved := values["network.name"]; !asked && !moved {
		return nil
	}
	return c.checkLoopback()
}

// editOne sets one key: where it stands, else where it stands as a comment, else below its section, else at the end.
func editOne(data []byte, k key, value string) []byte {
	section, field, _ := strings.Cut(k.name, ".")
	lines := strings.SplitAfter(string(data), "\n")
	first, last := sectionLines(lines, section)
	if first < 0 {
		text := strings.TrimRight(string(data), "\n")
		if text != "" {
			text += "\n\n"
		}
		return []byte(text + section + ":\n  " + field + ": " + quote(k, value) + "\n")
	}
	margin := marginOf(lines[first+1 : last])
	line := margin + field + ": " + quote(k, value) + "\n"
	for i := first + 1; i < last; i++ {
		if rest, ok := strings.CutPrefix(lines[i], margin+field); ok && strings.HasPrefix(strings.TrimLeft(rest, " "), ":") {
			return join(lines[:i], line, lines[i+valueLines(lines[i:last], margin):])
		}
	}
	for i := first + 1; i < last; i++ {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "#"); ok && strings.HasPrefix(strings.TrimSpace(rest), field+":") {
			return join(lines[:i], line, lines[i+1:])
		}
	}
	return join(lines[:first+1], line, lines[first+1:])
}

func join(before []string, line string, after []string) []byte {
	head := strings.Join(before, "")
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return []byte(head + line + strings.Join(after, ""))
}

// sectionLines returns the line of a section's name and the first one behind the section; -1 if there is none.
func sectionLines(lines []string, section string) (first, last int) {
	first = slices.IndexFunc(lines, func(l string) bool {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(l, "\ufeff"), section)
		return ok && strings.HasPrefix(strings.TrimLeft(rest, " "), ":")
	})
	if first < 0 {
		return -1, -1
	}
	for last = first + 1; last < len(lines); last++ {
		if l := lines[last]; strings.TrimSpace(l) != "" && l[0] != ' ' && l[0] != '#' {
			break
		}
	}
	return first, last
}

// marginOf returns the blanks before the fields of a section, two where it has none.
func marginOf(lines []string) string {
	for _, l := range lines {
		if t := strings.TrimLeft(l, " "); strings.TrimSpace(t) != "" && t[0] != '#' {
			return l[:len(l)-len(t)]
		}
	}
	return "  "
}

// valueLines returns how many lines a field takes: its own, and those of its value, which stand further in or begin
// with a dash.
func valueLines(lines []string, margin string) int {
	n := 1
	for i, l := range lines[1:] {
		rest, in := strings.CutPrefix(l, margin)
		t := strings.TrimSpace(rest)
		switch {
		case t == "" || t[0] == '#': // it may stand inside the value or after it
		case in && (rest[0] == ' ' || rest[0] == '-'):
			n = i + 2
		default:
			return n
		}
	}
	return n
}

// suggestKey names the key that was perhaps meant.
func suggestKey(table []key, name string) string {
	var names []string
	for _, k := range table {
		names = append(names, k.name)
		if _, field, _ := strings.Cut(k.name, "."); field == name {
			return "; did you mean " + k.name + "?"
		}
	}
	if near := strictyaml.Suggest(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
