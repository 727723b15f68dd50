//go:build linux || darwin || freebsd

package store

import "syscall"

// freeBytes returns how many bytes an ordinary user may still write on the disk that dir is on.
func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
