package wasm

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	wsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// guestFS shows one host folder to the guest. It goes through os.Root, so
// neither ".." nor a symbolic link leads out of the folder. (wazero's DirFS
// joins strings and lets the guest make a link to "../..".) Whatever differs
// from host to host or from run to run is fixed: times are zero, inode numbers
// are made from the guest's path, folders have no size and list sorted.
type guestFS struct {
	wsys.UnimplementedFS // links and modes are refused

	root     *os.Root
	guest    string // where it is mounted
	readOnly bool
}

// OpenFile implements the method of wazero's sys.FS.
func (g *guestFS) OpenFile(name string, flag wsys.Oflag, _ fs.FileMode) (wsys.File, wsys.Errno) {
	writes := flag&(wsys.O_RDWR|wsys.O_WRONLY|wsys.O_CREAT|wsys.O_TRUNC) != 0
	if writes && g.readOnly {
		if flag&wsys.O_DIRECTORY != 0 {
			return nil, wsys.EISDIR
		}
		return nil, wsys.EROFS
	}
	if flag&wsys.O_CREAT != 0 && !goodName(name) {
		return nil, wsys.EINVAL
	}
	if flag&wsys.O_NOFOLLOW != 0 {
		if info, err := g.root.Lstat(name); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return nil, wsys.ELOOP
		}
	}
	// A pipe or device in an input would block or worse, so look first.
	if info, err := g.root.Stat(name); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, wsys.EACCES
	}
	f, err := g.root.OpenFile(name, hostFlags(flag), 0o600)
	if err != nil {
		return nil, errnoOf(err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case flag&wsys.O_DIRECTORY != 0 && !info.IsDir():
		err = syscall.ENOTDIR
	default:
		return &file{f: f, fs: g, name: path.Clean(name), dir: info.IsDir(), append: flag&wsys.O_APPEND != 0}, 0
	}
	_ = f.Close()
	return nil, errnoOf(err)
}

// hostFlags leaves out appending, which file does by itself so that the guest
// can switch it.
func hostFlags(flag wsys.Oflag) int {
	host := os.O_RDONLY
	switch {
	case flag&wsys.O_RDWR != 0:
		host = os.O_RDWR
	case flag&wsys.O_WRONLY != 0:
		host = os.O_WRONLY
	}
	for _, m := range []struct {
		guest wsys.Oflag
		host  int
	}{{wsys.O_CREAT, os.O_CREATE}, {wsys.O_EXCL, os.O_EXCL}, {wsys.O_TRUNC, os.O_TRUNC}} {
		if flag&m.guest != 0 {
			host |= m.host
		}
	}
	return host
}

// Lstat implements the method of wazero's sys.FS.
func (g *guestFS) Lstat(name string) (sys.Stat_t, wsys.Errno) {
	return g.stat(name, g.root.Lstat)
}

// Stat implements the method of wazero's sys.FS.
func (g *guestFS) Stat(name string) (sys.Stat_t, wsys.Errno) {
	return g.stat(name, g.root.Stat)
}

func (g *guestFS) stat(name string, stat func(string) (fs.FileInfo, error)) (sys.Stat_t, wsys.Errno) {
	info, err := stat(name)
	if err != nil {
		return sys.Stat_t{}, errnoOf(err)
	}
	return g.fixed(name, info), 0
}

// fixed returns the part of info that is the same in every run.
func (g *guestFS) fixed(name string, info fs.FileInfo) sys.Stat_t {
	st := sys.Stat_t{Dev: 1, Ino: g.inode(name), Nlink: 1, Mode: info.Mode().Type() | 0o644}
	if info.IsDir() {
		st.Mode = fs.ModeDir | 0o755
	} else {
		st.Size = info.Size()
	}
	return st
}

// inode makes a number from the guest's path that is never zero, which C
// libraries take for a deleted file.
func (g *guestFS) inode(name string) sys.Inode {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path.Join(g.guest, name))) // a hash never fails
	return h.Sum64() | 1
}

// Mkdir implements the method of wazero's sys.FS.
func (g *guestFS) Mkdir(name string, _ fs.FileMode) wsys.Errno {
	return g.change(name, func() error { return g.root.Mkdir(strings.TrimSuffix(name, "/"), 0o700) })
}

// Rename implements the method of wazero's sys.FS.
func (g *guestFS) Rename(from, to string) wsys.Errno {
	return g.change(to, func() error { return g.root.Rename(from, to) })
}

// Rmdir implements the method of wazero's sys.FS.
func (g *guestFS) Rmdir(name string) wsys.Errno {
	return g.change(name, func() error { return g.remove(name, true) })
}

// Unlink implements the method of wazero's sys.FS.
func (g *guestFS) Unlink(name string) wsys.Errno {
	return g.change(name, func() error { return g.remove(name, false) })
}

func (g *guestFS) remove(name string, dir bool) error {
	switch info, err := g.root.Lstat(name); {
	case err != nil:
		return err
	case dir && !info.IsDir():
		return syscall.ENOTDIR
	case !dir && info.IsDir():
		return syscall.EISDIR
	}
	return g.root.Remove(name)
}

// change does do unless the folder is read-only or the name is bad.
func (g *guestFS) change(name string, do func() error) wsys.Errno {
	switch {
	case g.readOnly:
		return wsys.EROFS
	case !goodName(name):
		return wsys.EINVAL
	}
	return errnoOf(do())
}

// Link refuses: a second name would count twice on the disk cap.
func (g *guestFS) Link(string, string) wsys.Errno { return wsys.EPERM }

// Symlink refuses: nothing that reads the outputs should meet a link.
func (g *guestFS) Symlink(string, string) wsys.Errno { return wsys.EPERM }

// Readlink implements the method of wazero's sys.FS.
func (g *guestFS) Readlink(name string) (string, wsys.Errno) {
	to, err := g.root.Readlink(name)
	return to, errnoOf(err)
}

// Utimens accepts times and forgets them.
func (g *guestFS) Utimens(name string, _, _ int64) wsys.Errno {
	return g.change(name, func() error {
		_, err := g.root.Lstat(name)
		return err
	})
}

// goodName refuses names that would break the lines of an outputs digest or a
// listing.
func goodName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// errnoOf translates an error of the os package. It ends the guest when a file
// has met the size limit.
func errnoOf(err error) wsys.Errno {
	if err == nil {
		return 0
	}
	if errors.Is(err, syscall.EFBIG) {
		panic(errDisk)
	}
	var code syscall.Errno
	if !errors.As(err, &code) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrClosed) {
		return wsys.EPERM // os.Root found that the path leads out
	}
	return wsys.UnwrapOSError(err)
}
