package provider

import (
	"path/filepath"
	"strings"
	"time"
)

// Snapshots looks for checkpoints in a folder.
type Snapshots struct{ s *snapshots }

// WatchSnapshots begins to look for checkpoints in that folder, as often as it is asked and at whatever time.
func WatchSnapshots(dir string) Snapshots {
	return Snapshots{&snapshots{dir: dir, every: -time.Hour, renames: watchRenames(dir), taken: map[string]stamp{}}}
}

// Renames reports whether renames are noticed on this system.
func (s Snapshots) Renames() bool { return s.s.renames != nil }

// Due returns the names of the files of a new checkpoint, "" if there is none yet.
func (s Snapshots) Due(now time.Time) string {
	var names []string
	for _, p := range s.s.due(now) {
		rel, err := filepath.Rel(s.s.dir, p)
		if err != nil {
			panic(err)
		}
		names = append(names, filepath.ToSlash(rel))
	}
	return strings.Join(names, " ")
}

// Close ends the looking.
func (s Snapshots) Close() { s.s.close() }
