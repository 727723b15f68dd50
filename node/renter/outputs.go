package renter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/work"
)

const billable = gpu.BillableDeviceMS

// maxManifest bounds the list of a job's outputs, in bytes.
const maxManifest = 16 << 20

// errOutputs means that what the provider left is not what its last receipt states.
var errOutputs = errors.New("outputs do not hold")

// fetchOutputs brings the outputs here, while the stream goes on. It needs the last receipt, which comes before the
// result.
func (a *attendance) fetchOutputs(ctx context.Context) {
	if a.result.Manifest == nil {
		a.fetched = true
		return
	}
	done := make(chan error, 1)
	a.outputs = done
	out := a.h.chain.tail.Last.Out
	go func() { done <- a.r.fetchOutputs(ctx, a.t, a.h, *a.result.Manifest, out) }()
}

func (r *Renter) fetchOutputs(ctx context.Context, t *task, h *hire, manifest market.File, out *attest.Digest) error {
	if out == nil || manifest.Bytes > maxManifest {
		return fmt.Errorf("%w: no digest in the last receipt, or too long a list", errOutputs)
	}
	defer t.expect([]market.File{manifest})()
	if err := r.o.Blobs.Fetch(ctx, h.provider, nil, manifest.Digest, manifest.Bytes, nil); err != nil {
		return err
	}
	files, err := r.outputsIn(manifest)
	if err != nil {
		return err
	}
	var total uint64
	spec := t.snapshot().Spec
	for _, f := range files {
		if err := market.CheckRelativePath(f.Path); err != nil {
			return fmt.Errorf("%w: %w", errOutputs, err)
		}
		if _, _, ok := destination(spec.Outputs, f.Path, ""); !ok {
			return fmt.Errorf("%w: %s is in no output folder of the job", errOutputs, f.Path)
		}
		if f.Bytes > spec.DiskBytes-total {
			return fmt.Errorf("%w: they are larger than the job's disk limit", errOutputs)
		}
		total += f.Bytes
	}
	if market.OutputsDigest(files) != *out {
		return fmt.Errorf("%w: the list is not the one that the last receipt names", errOutputs)
	}
	defer t.expect(files)()
	if err := r.fetchAll(ctx, t, h, files, total); err != nil {
		return err
	}
	list := &manifest
	if len(files) == 0 {
		list = nil // there is nothing to look up in it
	}
	if err := t.update(func(j *Job) { j.OutputsDigest, j.OutputsList, j.Outputs = out, list, files }); err != nil {
		return err
	}
	if _, err = r.place(t, ""); errors.Is(err, errPlace) { // they are here; Fetch writes them when there is room for them
		r.log.Warn("outputs cannot be written", "job", t.snapshot().ID, "err", err)
		t.emit(Event{Kind: EvOutputs, Note: err.Error()})
		return t.update(func(j *Job) { j.Detail = err.Error() })
	}
	return err
}

// outputsIn reads the list of outputs from its blob.
func (r *Renter) outputsIn(manifest market.File) ([]market.File, error) {
	raw, err := os.ReadFile(r.o.Files.Path(manifest.Digest))
	if err != nil {
		return nil, err
	}
	var files []market.File
	if err := attest.Unmarshal(raw, &files); err != nil {
		return nil, fmt.Errorf("%w: %w", errOutputs, err)
	}
	return files, nil
}

// fetchedAtOnce is how many outputs are on their way at a time: each costs a round trip, and one sync here.
const fetchedAtOnce = 8

// fetchAll brings the outputs here. total is the sum of their sizes.
func (r *Renter) fetchAll(ctx context.Context, t *task, h *hire, files []market.File, total uint64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchedAtOnce)
	var mu sync.Mutex
	var done uint64
	for _, f := range files {
		group.Go(func() error {
			var here uint64 // of this file
			progress := func(n, _ uint64) {
				mu.Lock()
				defer mu.Unlock()
				done, here = done+n-here, n
				t.transfer(TransferEvent{What: "outputs", Done: done, Total: total})
			}
			if err := r.o.Blobs.Fetch(ctx, h.provider, nil, f.Digest, f.Bytes, progress); err != nil {
				return fmt.Errorf("fetch %s: %w", f.Path, err)
			}
			if n, ok := r.o.Files.Has(f.Digest); !ok || n != f.Bytes {
				return fmt.Errorf("%w: %s has %d bytes, the list says %d", errOutputs, f.Path, n, f.Bytes)
			}
			return nil
		})
	}
	return group.Wait()
}

// lies reports whether err is the other side's doing, such as other bytes than it named, so that asking again is of no use.
func lies(err error) bool {
	wrong := (*blob.DigestError)(nil)
	return errors.Is(err, errOutputs) || errors.As(err, &wrong) || errors.Is(err, blob.ErrTooLarge) ||
		errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrNotAllowed)
}

// outputsLost says what it means that outputs could not be fetched: the provider's lie, or only a broken stream.
func (a *attendance) outputsLost(ctx context.Context, err error) *leaseEnd {
	a.outputs, a.result = nil, nil // after a break the result comes again
	switch {
	case ctx.Err() != nil:
		return &leaseEnd{detached: true}
	case lies(err):
		a.r.drop("outputs", err)
		return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "bad_outputs"}
	}
	return nil
}

// errPlace means that outputs are here but cannot be written where they belong.
var errPlace = errors.New("write outputs")

// Fetch writes the outputs of a job again: to the places that its spec names, or below the folder to. It returns the
// files written.
func (r *Renter) Fetch(ctx context.Context, ref, to string) ([]string, error) {
	t, err := r.find(ref)
	if err != nil {
		return nil, err
	}
	j := t.snapshot()
	switch {
	case !j.State.Final():
		return nil, fmt.Errorf("job %s: %w", j.Name, ErrRunning)
	case j.OutputsDigest == nil:
		return nil, fmt.Errorf("job %s: %w", j.Name, ErrNoOutputs)
	}
	return r.place(t, to)
}

// place copies the outputs from the blobs to where they belong.
func (r *Renter) place(t *task, to string) ([]string, error) {
	j := t.snapshot()
	written, files := []string{}, j.Outputs
	if files == nil && j.OutputsList != nil {
		var err error
		if files, err = r.outputsIn(*j.OutputsList); err != nil {
			return written, fmt.Errorf("read list of outputs: %w", err)
		}
	}
	for _, f := range files {
		dir, rel, ok := destination(j.Spec.Outputs, f.Path, to)
		if !ok {
			return written, fmt.Errorf("%w: %s is in no output folder of the job", errPlace, f.Path)
		}
		if err := writeBelow(dir, rel, r.o.Files.Path(f.Digest)); err != nil {
			return written, fmt.Errorf("%w: %w", errPlace, err)
		}
		written = append(written, filepath.Join(dir, filepath.FromSlash(rel)))
	}
	return written, t.update(func(j *Job) {
		j.Fetched = true
		if strings.HasPrefix(j.Detail, errPlace.Error()) {
			j.Detail = "" // it said why they could not be written
		}
	})
}

// destination returns the folder and the path in it for an output whose path begins with its guest folder.
func destination(outputs []market.Transfer, p, to string) (dir, rel string, ok bool) {
	if to != "" {
		return to, p, true
	}
	for _, out := range outputs {
		if rest, found := strings.CutPrefix("/"+p, path.Clean(out.From)+"/"); found {
			return out.To, rest, true
		}
	}
	return "", "", false
}

// writeBelow copies a file to a path below dir. The path cannot lead out of it, not even through a symbolic link.
func writeBelow(dir, rel, from string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if parent := path.Dir(rel); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	tmp := path.Join(path.Dir(rel), ".lacuna-"+rand.Text()) // not made from the name, which may be as long as names may be
	dst, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	err = errors.Join(err, dst.Close())
	if err == nil {
		err = root.Rename(tmp, rel)
	}
	if err != nil {
		err = errors.Join(err, root.Remove(tmp))
	}
	return err
}

// fetchCheckpoint brings a checkpoint here and writes it down; then it counts. nil says that it did not.
func (a *attendance) fetchCheckpoint(ctx context.Context, c work.Checkpoint, done chan<- *Checkpoint) {
	saved, err := a.saveCheckpoint(ctx, c)
	if err != nil && ctx.Err() == nil {
		a.r.log.Debug("checkpoint is not fetched", "lease", a.h.id.Short(), "err", err) // a newer one may have replaced it
	}
	select {
	case done <- saved:
	case <-ctx.Done():
	}
}

func (a *attendance) saveCheckpoint(ctx context.Context, c work.Checkpoint) (*Checkpoint, error) {
	var total uint64
	for _, f := range c.Files {
		if err := market.CheckRelativePath(f.Path); err != nil {
			return nil, err
		}
		if total += f.Bytes; total > a.t.snapshot().Spec.DiskBytes {
			return nil, errors.New("checkpoint is larger than the job's disk limit")
		}
	}
	defer a.t.expect(c.Files)()
	for _, f := range c.Files {
		if err := a.r.o.Blobs.Fetch(ctx, a.h.provider, nil, f.Digest, f.Bytes, nil); err != nil {
			return nil, err
		}
	}
	saved := &Checkpoint{Seq: c.Seq, At: time.Now().UTC(), Lease: a.h.id, Files: c.Files}
	old := a.t.snapshot().Checkpoint
	if err := a.t.update(func(j *Job) { j.Checkpoint = saved }); err != nil {
		return nil, err
	}
	if old != nil {
		a.r.discard(digestsOf(old.Files))
	}
	a.t.emit(Event{Kind: EvCheckpoint, Checkpoint: saved})
	return saved, nil
}
