package wasm

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	wsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// file is an open file or folder of a guestFS.
type file struct {
	f      *os.File
	fs     *guestFS
	name   string // relative to the mount, as it was opened
	dir    bool
	append bool

	listed  bool // entries is filled
	entries []wsys.Dirent
}

// Dev implements the method of wazero's sys.File.
func (f *file) Dev() (uint64, wsys.Errno) { return 1, 0 }

// Ino implements the method of wazero's sys.File.
func (f *file) Ino() (sys.Inode, wsys.Errno) { return f.fs.inode(f.name), 0 }

// IsDir implements the method of wazero's sys.File.
func (f *file) IsDir() (bool, wsys.Errno) { return f.dir, 0 }

// IsAppend implements the method of wazero's sys.File.
func (f *file) IsAppend() bool { return f.append }

// SetAppend implements the method of wazero's sys.File.
func (f *file) SetAppend(enable bool) wsys.Errno {
	if f.dir {
		return wsys.EISDIR
	}
	f.append = enable
	return 0
}

// Stat implements the method of wazero's sys.File.
func (f *file) Stat() (sys.Stat_t, wsys.Errno) {
	info, err := f.f.Stat()
	if err != nil {
		return sys.Stat_t{}, errnoOf(err)
	}
	return f.fs.fixed(f.name, info), 0
}

// Read implements the method of wazero's sys.File.
func (f *file) Read(b []byte) (int, wsys.Errno) {
	if f.dir {
		return 0, wsys.EISDIR
	}
	return result(f.f.Read(b))
}

// Pread implements the method of wazero's sys.File.
func (f *file) Pread(b []byte, off int64) (int, wsys.Errno) {
	if f.dir {
		return 0, wsys.EISDIR
	}
	if off < 0 {
		return 0, wsys.EINVAL
	}
	return result(f.f.ReadAt(b, off))
}

// Write implements the method of wazero's sys.File.
func (f *file) Write(b []byte) (int, wsys.Errno) {
	if f.dir {
		return 0, wsys.EISDIR
	}
	if f.append {
		// The guest is the only writer, so end and write need not be one step.
		if _, err := f.f.Seek(0, io.SeekEnd); err != nil {
			return 0, errnoOf(err)
		}
	}
	return result(f.f.Write(b))
}

// Pwrite implements the method of wazero's sys.File.
func (f *file) Pwrite(b []byte, off int64) (int, wsys.Errno) {
	if f.dir {
		return 0, wsys.EISDIR
	}
	if off < 0 {
		return 0, wsys.EINVAL
	}
	return result(f.f.WriteAt(b, off))
}

// result translates what the os package returns. The end of a file is no
// error for the guest.
func result(n int, err error) (int, wsys.Errno) {
	if errors.Is(err, io.EOF) {
		return n, 0
	}
	return n, errnoOf(err)
}

// fileOffset is an int64. Under its own name go vet does not take wazero's
// Seek for a misspelt io.Seeker.
type fileOffset = int64

// Seek implements the method of wazero's sys.File. A folder can only be
// rewound, after which it is read again.
func (f *file) Seek(offset fileOffset, whence int) (int64, wsys.Errno) {
	if f.dir {
		if offset != 0 || whence != io.SeekStart {
			return 0, wsys.EINVAL
		}
		f.listed = false
		return 0, 0
	}
	if whence < io.SeekStart || whence > io.SeekEnd {
		return 0, wsys.EINVAL
	}
	n, err := f.f.Seek(offset, whence)
	return n, errnoOf(err)
}

// Readdir implements the method of wazero's sys.File, sorted by name.
func (f *file) Readdir(n int) ([]wsys.Dirent, wsys.Errno) {
	if !f.dir {
		return nil, wsys.ENOTDIR
	}
	if !f.listed {
		if errno := f.list(); errno != 0 {
			return nil, errno
		}
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	part := f.entries[:n]
	f.entries = f.entries[n:]
	return part, 0
}

func (f *file) list() wsys.Errno {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return errnoOf(err)
	}
	entries, err := f.f.ReadDir(-1)
	if err != nil {
		return errnoOf(err)
	}
	f.entries, f.listed = make([]wsys.Dirent, 0, len(entries)), true
	for _, e := range entries {
		f.entries = append(f.entries, wsys.Dirent{
			Ino: f.fs.inode(path.Join(f.name, e.Name())), Name: e.Name(), Type: e.Type(),
		})
	}
	slices.SortFunc(f.entries, func(a, b wsys.Dirent) int { return strings.Compare(a.Name, b.Name) })
	return 0
}

// Truncate implements the method of wazero's sys.File.
func (f *file) Truncate(size int64) wsys.Errno {
	switch {
	case f.dir:
		return wsys.EISDIR
	case size < 0:
		return wsys.EINVAL
	}
	return errnoOf(f.f.Truncate(size))
}

// Sync does nothing: what survives a power cut is decided by whoever takes
// the outputs, and a guest should not keep the owner's disk busy.
func (f *file) Sync() wsys.Errno { return 0 }

// Datasync does nothing, as Sync.
func (f *file) Datasync() wsys.Errno { return 0 }

// Utimens accepts times and forgets them.
func (f *file) Utimens(_, _ int64) wsys.Errno { return 0 }

// Close implements the method of wazero's sys.File.
func (f *file) Close() wsys.Errno { return errnoOf(f.f.Close()) }
