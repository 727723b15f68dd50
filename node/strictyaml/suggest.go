package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// Map hands each field of the map at v to the function of its name. A field without a function is a fault that names
// what may be meant: the closest of the functions' names, or one of elsewhere, dotted paths that end in that name.
// An empty v has no fields; so a section may stand there with nothing in it.
func (v Value) Map(fields map[string]func(Value), elsewhere ...string) {
	if v.Empty() {
		return
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, p := range v.Pairs() {
		if read, ok := fields[p.Key]; ok {
			read(p.Value)
		} else {
			p.At.Fail("unknown%s", didYouMean(p.Key, names, elsewhere))
		}
	}
}

func didYouMean(name string, names, elsewhere []string) string {
	last := func(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
	near := Suggest(name, names)
	for _, path := range elsewhere {
		if last(path) == name || near == "" && Suggest(name, []string{last(path)}) != "" {
			near = path
			break
		}
	}
	if near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; there are " + strings.Join(names, ", ")
}

// Suggest returns the name that a typing error turns into the given one, "" if none is close: at most a third of its
// letters are added, missing, other or swapped, and at most three. Of two as close, it is the one that begins more alike.
func Suggest(name string, names []string) string {
	fold := strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(name))
	best, found := 4, ""
	for _, n := range names {
		d := distance(fold, n)
		nearer := d < best || d == best && common(fold, n) > common(fold, found)
		if nearer && d <= (len(n)+2)/3 {
			best, found = d, n
		}
	}
	return found
}

// common returns how many bytes two names begin with alike.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance counts the letters to add, drop, change or swap with their neighbour (optimal string alignment). Names of
// absurd length are far from everything.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
