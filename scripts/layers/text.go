package layers

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// topDirs and topFiles are all that the root may hold besides names that start with a dot.
var (
	topDirs  = []string{"node", "p2p", "market", "attest", "gpu", "cmd", "scripts"}
	topFiles = []string{"go.mod", "go.sum", "LICENSE", "README.md"}
)

// badWord is text that must not stand in the repository.
type badWord struct {
	re     *regexp.Regexp
	reason string
}

// badWords are put together from parts, so that this file keeps its own rule. A folder counts only where a path
// starts, so that an import path or a protocol may have a part of the same name.
var badWords = []badWord{
	{regexp.MustCompile(`(^|[\s"'` + "`" + `=(:])/` + `work/`), "a folder of one machine: use a relative path or a temporary folder"},
	{regexp.MustCompile(`proxy\.` + `golang`), "a download host: which one to use is for the caller's environment"},
}

// checkTopLevel holds what the root may contain. Names that .gitignore lists are not seen.
func checkTopLevel(t *Tree) []Fault {
	var faults []Fault
	for _, e := range t.Top {
		known := topFiles
		if e.Dir {
			known = topDirs
		}
		if strings.HasPrefix(e.Name, ".") || slices.Contains(known, e.Name) {
			continue
		}
		faults = append(faults, Fault{Path: e.Name, Msg: fmt.Sprintf(
			"not one of %s: move it into a folder, or name it in .gitignore if a tool made it",
			strings.Join(slices.Concat(topDirs, topFiles), " "))})
	}
	return faults
}

// checkWords holds that no text file contains one of badWords.
func checkWords(t *Tree) []Fault {
	var faults []Fault
	for _, text := range t.Texts {
		n := 0
		for line := range bytes.Lines(text.Data) {
			n++
			for _, w := range badWords {
				if m := w.re.Find(line); m != nil {
					faults = append(faults, Fault{text.Path, n, fmt.Sprintf("names %q, %s", bytes.TrimSpace(m), w.reason)})
				}
			}
		}
	}
	return faults
}
