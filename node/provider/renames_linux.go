package provider

import (
	"bytes"
	"encoding/binary"
	"syscall"
)

// renameWatch notices files that are renamed into a folder, through inotify: the one way to tell a file that is whole
// from one that is being written.
type renameWatch struct {
	fd    int
	names map[string]bool // renamed into the folder since the last reset
}

// watchRenames returns nil if the system refuses; then files count as whole when they have been still for a while.
func watchRenames(dir string) *renameWatch {
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_MOVED_TO); err != nil {
		_ = syscall.Close(fd)
		return nil
	}
	return &renameWatch{fd: fd, names: map[string]bool{}}
}

// look takes in what was renamed since the last look. Notices that the system dropped are missed; those files have to be
// still for a while.
func (w *renameWatch) look() {
	var buf [4096]byte
	for {
		n, err := syscall.Read(w.fd, buf[:])
		if n <= 0 || err != nil {
			return
		}
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; { // inotify(7): wd, mask, cookie, length of the name, name
			end := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if end > len(b) {
				break
			}
			name, _, _ := bytes.Cut(b[syscall.SizeofInotifyEvent:end], []byte{0})
			w.names[string(name)] = true
			b = b[end:]
		}
	}
}

// renamed reports whether a file or folder of that name was renamed into the folder since the last reset.
func (w *renameWatch) renamed(name string) bool { return w.names[name] }

func (w *renameWatch) reset() { clear(w.names) }

func (w *renameWatch) close() { _ = syscall.Close(w.fd) }
