package home

import (
	"fmt"
	"os"
	"runtime"
)

// readSecret reads a file that holds a key, which the messages call what. It refuses one that others than its owner may
// read. The error wraps fs.ErrNotExist if there is none.
func readSecret(p, what string) ([]byte, error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, explain(p, err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, others may read the %s; want 0600: chmod 600 %s", p, info.Mode().Perm(), what, p)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("%s is no file of a key", p)
	}
	data, err := os.ReadFile(p)
	if err != nil {
		return nil, explain(p, err)
	}
	return data, nil
}
