// Package runnertest looks at what jobs leave behind, for tests of runners and of jobs.
//
// [OutputsDigest] names the contents of a folder, so that two runs can be compared. It is used by tests only, and safe for
// concurrent use.
package runnertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// OutputFile is one regular file that a job left behind.
type OutputFile struct {
	Path   string // slash-separated, relative to the folder
	Size   int64  // bytes
	SHA256 [32]byte
}

// OutputsDigest names the contents of a folder: the SHA-256 over one line
// `hex-digest size path\n` for each regular file below it, sorted by path
// bytewise. Times and modes do not count, folders only by the files in them,
// and symbolic links and other special files are left out and never followed.
// The files come back in the same order. A path that holds a line break is an
// error, since its line would be ambiguous.
func OutputsDigest(dir string) ([32]byte, []OutputFile, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return [32]byte{}, nil, fmt.Errorf("open outputs: %w", err)
	}
	defer root.Close()
	var files []OutputFile
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if strings.ContainsAny(p, "\n\r") {
			return fmt.Errorf("line break in the path %q", p)
		}
		f, err := hashFile(root, p)
		files = append(files, f)
		return err
	})
	if err != nil {
		return [32]byte{}, nil, fmt.Errorf("read outputs: %w", err)
	}
	slices.SortFunc(files, func(a, b OutputFile) int { return strings.Compare(a.Path, b.Path) })
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s %d %s\n", hex.EncodeToString(f.SHA256[:]), f.Size, f.Path)
	}
	return [32]byte(h.Sum(nil)), files, nil
}

func hashFile(root *os.Root, p string) (OutputFile, error) {
	f, err := root.Open(p)
	if err != nil {
		return OutputFile{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return OutputFile{Path: p, Size: n, SHA256: [32]byte(h.Sum(nil))}, err
}
