package provider

import "syscall"

// renameWatch notices files that are renamed into a folder, through inotify: the one way to tell a file that is whole
// from one that is being written.
type renameWatch struct {
	fd  int
	hit bool
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
	return &renameWatch{fd: fd}
}

// seen reports whether a file was renamed into the folder since the last reset.
func (w *renameWatch) seen() bool {
	var buf [4096]byte
	for {
		n, err := syscall.Read(w.fd, buf[:])
		if n <= 0 || err != nil {
			return w.hit
		}
		w.hit = true
	}
}

func (w *renameWatch) reset() { w.hit = false }

func (w *renameWatch) close() { _ = syscall.Close(w.fd) }
