package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/lacuna-network/lacuna/attest"
)

// Store is a folder of files, each under its digest:
//
//	ab/cd/abcd…    a whole file, read-only, named by the 64 hex digits of its SHA-256
//	part/abcd….part  the beginning of a file that was fetched in part
//	tmp/…          a file that is being written; emptied when the store is opened
//
// A whole file was written, synced and renamed, and its digest was computed from the bytes as they were written.
type Store struct{ dir string }

// OpenStore opens the store in dir and makes the folder if there is none. It removes what a process that died left
// half-written; files fetched in part stay.
func OpenStore(dir string) (*Store, error) {
	s := &Store{dir: dir}
	if err := os.RemoveAll(s.temp()); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	for _, d := range []string{s.temp(), s.parts()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("open blob store: %w", err)
		}
	}
	return s, nil
}

func (s *Store) temp() string  { return filepath.Join(s.dir, "tmp") }
func (s *Store) parts() string { return filepath.Join(s.dir, "part") }

func (s *Store) part(d attest.Digest) string { return filepath.Join(s.parts(), d.Hex()+".part") }

// Path returns where the file with that digest lies, or would. Whoever reads it there must not write to it.
func (s *Store) Path(d attest.Digest) string {
	h := d.Hex()
	return filepath.Join(s.dir, h[:2], h[2:4], h)
}

// Has reports whether the file is there, and its size in bytes.
func (s *Store) Has(d attest.Digest) (size uint64, ok bool) {
	info, err := os.Stat(s.Path(d))
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return uint64(info.Size()), true
}

// Open opens the file for reading; the caller closes it. The error wraps [ErrNotFound] if it is not there.
func (s *Store) Open(d attest.Digest) (*os.File, error) {
	f, err := os.Open(s.Path(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", d, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return f, nil
}

// Verify reads the whole file and compares its digest. The error wraps [ErrNotFound] or is a [*DigestError].
func (s *Store) Verify(ctx context.Context, d attest.Digest) error {
	f, err := s.Open(d)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := copyChunks(ctx, h, f); err != nil {
		return fmt.Errorf("verify blob: %w", err)
	}
	if got := sum(h); got != d {
		return fmt.Errorf("verify blob: %w", &DigestError{Want: d, Got: got})
	}
	return nil
}

// Put stores what r gives up to its end, and returns digest and size. A file that is there already is replaced by the
// same bytes.
func (s *Store) Put(ctx context.Context, r io.Reader) (attest.Digest, uint64, error) {
	f, err := os.CreateTemp(s.temp(), "put-")
	if err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	defer os.Remove(f.Name()) // it is gone once renamed
	h := sha256.New()
	n, err := copyChunks(ctx, io.MultiWriter(f, h), r)
	if err != nil {
		_ = f.Close()
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	d := sum(h)
	if err := s.commit(f, f.Name(), d); err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	return d, n, nil
}

// PutFile stores a copy of the regular file at path. If these very bytes are there already nothing is written, as for a
// module that is run again: two digests cost less than a copy and its syncs. Links are refused, not followed.
func (s *Store) PutFile(ctx context.Context, path string) (attest.Digest, uint64, error) {
	f, err := openRegular(path)
	if err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	defer f.Close()
	if d, n, ok := s.already(ctx, f); ok {
		return d, n, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	return s.Put(ctx, f)
}

// already reports whether a whole file with the bytes of f is in the store, and reads both to know. Any fault means no.
func (s *Store) already(ctx context.Context, f *os.File) (attest.Digest, uint64, bool) {
	h := sha256.New()
	n, err := copyChunks(ctx, h, f)
	if err != nil {
		return attest.Digest{}, 0, false
	}
	d := sum(h)
	if size, ok := s.Has(d); !ok || size != n {
		return attest.Digest{}, 0, false
	}
	return d, n, s.Verify(ctx, d) == nil
}

// TakeFile stores the regular file at path without a copy where the file system can: both names are one file then, which
// becomes read-only. It is for files that nobody writes to any more, such as a job's outputs. Where it cannot, the file
// is copied. Links are refused, not followed.
func (s *Store) TakeFile(ctx context.Context, path string) (attest.Digest, uint64, error) {
	f, err := openRegular(path)
	if err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := copyChunks(ctx, h, f)
	if err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	d := sum(h)
	dir, err := os.MkdirTemp(s.temp(), "take-")
	if err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	defer os.RemoveAll(dir)
	linked := filepath.Join(dir, "link")
	if os.Link(path, linked) != nil || !sameFile(f, linked) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
		}
		return s.Put(ctx, f)
	}
	if err := s.commit(f, linked, d); err != nil {
		return attest.Digest{}, 0, fmt.Errorf("store blob: %w", err)
	}
	return d, n, nil
}

// Remove removes the file and what was fetched of it in part. One that is not there is removed already.
func (s *Store) Remove(d attest.Digest) error {
	for _, p := range []string{s.Path(d), s.part(d)} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove blob: %w", err)
		}
	}
	return nil
}

// commit syncs and closes f, whose digest is d, and renames it from name to its place. The folders are synced too, or
// the name might be lost in a crash while the other side was told that the file is here.
func (s *Store) commit(f *os.File, name string, d attest.Digest) error {
	err := errors.Join(f.Chmod(0o400), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	to := s.Path(d)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Rename(name, to); err != nil {
		return err
	}
	return syncDirs(filepath.Dir(to), filepath.Dir(filepath.Dir(to)), s.dir)
}

// syncDirs makes names in these folders last. File systems that cannot sync a folder say EINVAL, and Windows opens none
// for that.
func syncDirs(dirs ...string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = f.Sync()
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// openRegular opens a regular file and refuses anything else before it is opened, since opening a pipe would block.
func openRegular(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
		_ = f.Close()
		return nil, fmt.Errorf("%s was replaced while it was opened", path)
	}
	return f, nil
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// copyChunks copies r to its end and looks at ctx between chunks.
func copyChunks(ctx context.Context, w io.Writer, r io.Reader) (uint64, error) {
	buf := make([]byte, chunk)
	total := uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return total, err
			}
			total += uint64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func sum(h hash.Hash) attest.Digest { return attest.Digest(h.Sum(nil)) }
