package renter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// prepared is a spec whose files are content-addressed. The terms lack what differs from lease to lease: the salt and
// the checkpoint to resume from.
type prepared struct {
	terms market.Terms
	blobs []attest.Digest // what the winner may fetch
}

// checkModule reports a file that cannot be a WebAssembly module, before anybody is asked to run it.
func checkModule(path string) error {
	info, err := os.Stat(path) // before it is opened: that would wait at a pipe
	if err != nil {
		return fmt.Errorf("wasm: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("wasm: %s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("wasm: %w", err)
	}
	defer f.Close()
	var magic [8]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil || string(magic[:]) != "\x00asm\x01\x00\x00\x00" {
		return fmt.Errorf("wasm: %s is no WebAssembly module; with Go, build one by GOOS=wasip1 GOARCH=wasm go build", path)
	}
	return nil
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make job folder: %w", err)
	}
	return nil
}

// errStopped means that the job was stopped before it was prepared.
var errStopped = errors.New("stopped before it started")

// prepare does the first step of a job and notes which blobs it needs. The files are read on a goroutine of their own:
// one that never gives its bytes, as on a share that is gone, must not hold up a stop or the end of this process.
func (r *Renter) prepare(ctx context.Context, t *task) (prepared, error) {
	if j := t.snapshot(); j.Lease != nil { // its files may have changed or gone since
		p, err := r.preparedBefore(*j.Lease)
		t.setInputs(p.blobs)
		return p, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		p   prepared
		err error
	}
	done := make(chan result, 1)
	r.left.mu.Lock()
	r.left.preparing++
	r.left.mu.Unlock()
	go func() { // ends with ctx, or when the read that it waits in does
		p, err := r.putFiles(ctx, t.snapshot().Spec)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		t.setInputs(p.blobs)
		r.left.mu.Lock()
		r.left.preparing--
		r.left.mu.Unlock()
		done <- result{p, err}
		var unused []attest.Digest
		if t.snapshot().State.Final() { // it was stopped meanwhile
			unused = p.blobs
		}
		r.discard(unused)
	}()
	for {
		t.mu.Lock()
		changed, stopped := t.changed, t.stopped
		t.mu.Unlock()
		if stopped {
			return prepared{}, errStopped
		}
		select {
		case <-ctx.Done():
			return prepared{}, ctx.Err()
		case res := <-done:
			return res.p, res.err
		case <-changed:
		}
	}
}

func (t *task) setInputs(blobs []attest.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs = blobs
}

// putFiles puts module and inputs among the blobs and turns the spec into terms. After an error, what it returns names
// the blobs that are there already.
func (r *Renter) putFiles(ctx context.Context, s market.Spec) (p prepared, err error) {
	module, n, err := r.put(ctx, s.Module)
	if err != nil {
		return p, fmt.Errorf("wasm: %w", err)
	}
	p = prepared{blobs: []attest.Digest{module}, terms: market.Terms{Version: 1, Module: module, ModuleBytes: n, Args: s.Args,
		Checkpoint: s.Checkpoint, CheckpointEveryMS: uint64(s.Every.Milliseconds()), MemBytes: s.MemBytes, LogBytes: s.LogBytes,
		DiskBytes: s.DiskBytes, Engine: r.o.Engine}}
	for _, k := range sortedKeys(s.Env) {
		p.terms.Env = append(p.terms.Env, market.EnvVar{Name: k, Value: s.Env[k]})
	}
	for _, in := range s.Inputs {
		files, err := r.input(ctx, in)
		p.blobs = append(p.blobs, digestsOf(files)...)
		if err != nil {
			return p, fmt.Errorf("inputs: %w", err)
		}
		p.terms.Inputs = append(p.terms.Inputs, files...)
	}
	for _, out := range s.Outputs {
		p.terms.Outputs = append(p.terms.Outputs, out.From)
	}
	if len(p.terms.Inputs) > maxInputFiles {
		return p, fmt.Errorf("inputs: %d files, at most %d; pack them into one archive", len(p.terms.Inputs), maxInputFiles)
	}
	p.terms.Salt = market.Nonce{1} // a stand-in, so that everything else is checked before a bid goes out
	return p, p.terms.Validate()
}

func (r *Renter) preparedBefore(lease attest.Digest) (prepared, error) {
	rec, err := r.record(lease)
	if err != nil {
		return prepared{}, err
	}
	var p prepared
	if err := attest.Unmarshal(rec.Terms, &p.terms); err != nil {
		return prepared{}, fmt.Errorf("read terms: %w", err)
	}
	p.terms.Resume = nil
	p.blobs = append(digestsOf(p.terms.Inputs), p.terms.Module)
	return p, nil
}

// maxInputFiles keeps the terms within what an award carries.
const maxInputFiles = 300

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// put puts a file that the user named among the blobs. If it is a link, what it leads to counts.
func (r *Renter) put(ctx context.Context, name string) (attest.Digest, uint64, error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return attest.Digest{}, 0, err
	}
	return r.o.Files.PutFile(ctx, real)
}

// input puts a file, or each file below a folder, among the blobs. A link in a folder is an error: left out, the job would
// lack a file; followed, it might take in half the disk.
func (r *Renter) input(ctx context.Context, in market.Transfer) ([]market.File, error) {
	info, err := os.Stat(in.From)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		d, n, err := r.put(ctx, in.From)
		if err != nil {
			return nil, err
		}
		return []market.File{{Path: in.To, Digest: d, Bytes: n}}, nil
	}
	folder, err := filepath.EvalSymlinks(in.From)
	if err != nil {
		return nil, err
	}
	var files []market.File
	err = filepath.WalkDir(folder, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is a link or no regular file; put the file itself there, or name it as an input of its own", p)
		}
		rel, err := filepath.Rel(folder, p)
		if err != nil {
			return err
		}
		digest, n, err := r.o.Files.PutFile(ctx, p)
		if err != nil {
			return err
		}
		files = append(files, market.File{Path: path.Join(in.To, filepath.ToSlash(rel)), Digest: digest, Bytes: n})
		if len(files) > maxInputFiles {
			return fmt.Errorf("%s holds more than %d files; pack them into one archive", in.From, maxInputFiles)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New(in.From + " holds no file")
	}
	return files, err
}

// leaseTerms completes the terms for one lease.
func (p prepared) leaseTerms(j Job) (terms market.Terms, blobs []attest.Digest) {
	terms, blobs = p.terms, slices.Clone(p.blobs)
	_, _ = rand.Read(terms.Salt[:]) // never fails, see crypto/rand
	if j.Checkpoint != nil {
		terms.Resume = j.Checkpoint.Files
		for _, f := range terms.Resume {
			blobs = append(blobs, f.Digest)
		}
	}
	return terms, blobs
}

// serving is what one lease's provider may fetch.
type serving struct {
	provider attest.Key
	blobs    map[attest.Digest]bool
	tell     func(bytes uint64) // called with what went out; may be nil
}

// serve lets a provider fetch the blobs of a lease, until the returned function is called.
func (r *Renter) serve(s *serving) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving[s] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.serving, s)
	}
}

// inputsFor returns the serving of a job's inputs, with events about how far they are.
func (t *task) inputsFor(provider attest.Key, terms market.Terms, blobs []attest.Digest) *serving {
	s := &serving{provider: provider, blobs: map[attest.Digest]bool{}}
	for _, d := range blobs {
		s.blobs[d] = true
	}
	total := terms.ModuleBytes // at most: a provider that knows a file does not ask for it
	for _, f := range append(slices.Clone(terms.Inputs), terms.Resume...) {
		total += f.Bytes
	}
	var mu sync.Mutex
	var done uint64
	s.tell = func(bytes uint64) {
		mu.Lock()
		defer mu.Unlock()
		done += bytes
		t.transfer(TransferEvent{What: "inputs", Done: min(done, total), Total: total})
	}
	return s
}

// BlobSent notes that bytes of a blob went out to a peer.
func (r *Renter) BlobSent(peer attest.Key, d attest.Digest, bytes uint64) {
	r.mu.Lock()
	var tell func(uint64)
	for s := range r.serving {
		if s.provider == peer && s.blobs[d] && s.tell != nil {
			tell = s.tell
		}
	}
	r.mu.Unlock()
	if tell != nil {
		tell(bytes)
	}
}

// AllowBlob reports whether that peer may fetch that blob: it is part of a lease that the peer has won.
func (r *Renter) AllowBlob(peer attest.Key, d attest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.serving {
		if s.provider == peer && s.blobs[d] {
			return true
		}
	}
	return false
}

// vendorOf returns the vendor that the spec asks for, in the coarse terms of a bid: "nv", "amd", "intel", "cpu" or "any".
func vendorOf(s market.Spec) string {
	if s.GPUs == 0 {
		return "cpu"
	}
	for _, v := range []string{"nv", "amd", "intel"} {
		if len(s.Models) > 0 && allOf(s.Models, v) {
			return v
		}
	}
	return "any"
}

func allOf(models []string, vendor string) bool {
	for _, m := range models {
		if !strings.HasPrefix(classOfModel(m), vendor) {
			return false
		}
	}
	return true
}
