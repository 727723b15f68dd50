package provider

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// snapshotCheck is the time between two looks at a checkpoint folder.
const snapshotCheck = 100 * time.Millisecond

// stillFor is how long a file that was written in place must not have changed before it counts as whole.
const stillFor = 2 * time.Second

// snapshots finds new checkpoints in a job's checkpoint folder. A file that was renamed into place is whole at once; a
// program that writes in place is taken when all its files have been still for a while. Names that begin with a dot
// are work in progress.
type snapshots struct {
	dir     string // empty = the job saves none
	every   time.Duration
	renames *renameWatch
	last    time.Time
	taken   map[string]stamp
}

// stamp is what tells one version of a file from the next.
type stamp struct {
	size int64
	mod  time.Time
	file os.FileInfo
}

func newSnapshots(job runner.Job, terms market.Terms) *snapshots {
	if job.Checkpoint == "" {
		return &snapshots{}
	}
	s := &snapshots{dir: job.OutputDir(job.Checkpoint), every: time.Duration(terms.CheckpointEveryMS) * time.Millisecond, taken: map[string]stamp{}}
	s.renames = watchRenames(s.dir)
	for path, st := range s.list() {
		s.taken[path] = st // what the job resumed from is no new checkpoint
	}
	return s
}

func (s *snapshots) close() {
	if s.renames != nil {
		s.renames.close()
	}
}

func (s *snapshots) list() map[string]stamp {
	files := map[string]stamp{}
	_ = filepath.WalkDir(s.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(d.Name(), ".") && p != s.dir {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			files[p] = stamp{info.Size(), info.ModTime(), info}
		}
		return nil
	})
	return files
}

// due returns the files of a new checkpoint, sorted by path, nil if there is none yet.
func (s *snapshots) due(now time.Time) []string {
	if s.dir == "" || (!s.last.IsZero() && now.Sub(s.last) < s.every) {
		return nil
	}
	if s.renames != nil {
		s.renames.look()
	}
	files := s.list()
	fresh := false
	for p, st := range files {
		before, ok := s.taken[p]
		if ok && before.size == st.size && before.mod.Equal(st.mod) && os.SameFile(before.file, st.file) {
			continue
		}
		fresh = true
		if !s.renamed(p) && now.Sub(st.mod) < stillFor {
			return nil
		}
	}
	if !fresh {
		return nil
	}
	if s.renames != nil {
		s.renames.reset()
	}
	paths := make([]string, 0, len(files))
	for p := range files {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	s.last, s.taken = now, files
	return paths
}

// renamed reports whether the file came whole: it, or the folder that it lies in, was renamed into the checkpoint folder.
func (s *snapshots) renamed(file string) bool {
	rel, err := filepath.Rel(s.dir, file)
	if err != nil || s.renames == nil {
		return false
	}
	top, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
	return s.renames.renamed(top)
}

// keepSnapshots looks for new checkpoints until ctx ends. It is beside the metering, since a large checkpoint takes its
// time to copy.
func (t *tenancy) keepSnapshots(ctx context.Context, s *snapshots) {
	defer s.close()
	if s.dir == "" {
		return
	}
	tick := time.NewTicker(snapshotCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.takeSnapshot(ctx, s)
		}
	}
}

// takeSnapshot puts a new checkpoint among the blobs, from where the renter fetches it.
func (t *tenancy) takeSnapshot(ctx context.Context, s *snapshots) {
	paths := s.due(time.Now())
	if len(paths) == 0 {
		return
	}
	if len(paths) > work.MaxCheckpointFiles {
		t.p.log.Warn("checkpoint has too many files", "lease", t.id.Short(), "files", len(paths))
		return
	}
	t.p.beginStoring()
	defer t.p.endStoring()
	files := make([]market.File, 0, len(paths))
	published := false
	defer func() {
		if !published {
			t.removeBlobs(files)
		}
	}()
	for _, p := range paths {
		rel, err := filepath.Rel(s.dir, p)
		if err == nil {
			rel = filepath.ToSlash(rel)
			err = market.CheckRelativePath(rel)
		}
		if err != nil {
			t.p.log.Warn("checkpoint cannot be carried", "lease", t.id.Short(), "err", err)
			return
		}
		f, err := os.Open(p)
		if err != nil {
			return // renamed or removed meanwhile; the next look finds what is there then
		}
		d, n, err := t.p.o.Files.Put(ctx, f)
		_ = f.Close()
		if ctx.Err() != nil {
			return // the job has ended
		}
		if err != nil {
			t.p.log.Warn("checkpoint is not saved", "lease", t.id.Short(), "err", err)
			return
		}
		files = append(files, market.File{Path: rel, Digest: d, Bytes: n})
	}
	published = true
	var old []market.File
	t.update(func() {
		seq := uint64(1)
		if t.ckpt != nil {
			seq = t.ckpt.Seq + 1
			if t.ckptSeen >= t.ckpt.Seq { // the renter has it; nobody fetches it again
				old = t.ckpt.Files
			}
		}
		for _, f := range old {
			delete(t.blobs, f.Digest)
		}
		t.ckpt = &work.Checkpoint{Seq: seq, Files: files}
		for _, f := range files {
			t.blobs[f.Digest] = true
		}
	})
	t.removeBlobs(old)
}

// removeBlobs removes those that neither this lease nor another one needs.
func (t *tenancy) removeBlobs(files []market.File) {
	for _, f := range files {
		t.p.dropBlob(nil, f.Digest)
	}
}
