package wasm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/lacuna-network/lacuna/node/runner"
)

// stage lays out the scratch folder: "root" is the guest's read-only "/",
// with the single-file inputs in place and an empty folder where each other
// mount hangs; "rw" holds the writable folders. Leftovers of an earlier run
// are cleared, the checkpoint is not. All host paths returned are absolute.
func stage(j runner.Job) ([]mount, error) {
	var err error
	if j.Dir, err = filepath.Abs(j.Dir); err != nil {
		return nil, fmt.Errorf("find scratch folder: %w", err)
	}
	root := filepath.Join(j.Dir, "root")
	if err := os.RemoveAll(root); err != nil {
		return nil, fmt.Errorf("clear scratch folder: %w", err)
	}
	if err := os.Mkdir(root, 0o700); err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	mounts := []mount{{Host: root, Guest: "/", ReadOnly: true}}
	hang := func(host, guest string, readOnly bool) error {
		mounts = append(mounts, mount{Host: host, Guest: guest, ReadOnly: readOnly})
		return os.MkdirAll(filepath.Join(root, filepath.FromSlash(guest)), 0o700)
	}
	for _, in := range j.Inputs {
		host, err := filepath.EvalSymlinks(in.Host)
		if err == nil {
			host, err = filepath.Abs(host)
		}
		if err != nil {
			return nil, fmt.Errorf("find input %s: %w", in.Guest, err)
		}
		info, err := os.Stat(host)
		switch {
		case err != nil:
		case info.IsDir():
			err = hang(host, in.Guest, true)
		case info.Mode().IsRegular():
			err = place(host, filepath.Join(root, filepath.FromSlash(in.Guest)))
		default:
			err = errors.New("neither a file nor a folder")
		}
		if err != nil {
			return nil, fmt.Errorf("stage input %s: %w", in.Guest, err)
		}
	}
	for _, guest := range append([]string{runner.TmpDir}, j.Outputs...) {
		if err := os.RemoveAll(j.OutputDir(guest)); err != nil {
			return nil, fmt.Errorf("clear %s: %w", guest, err)
		}
	}
	for _, guest := range slices.Concat([]string{runner.TmpDir}, j.Outputs, []string{j.Checkpoint}) {
		if guest == "" {
			continue
		}
		if err := os.MkdirAll(j.OutputDir(guest), 0o700); err != nil {
			return nil, fmt.Errorf("make %s: %w", guest, err)
		}
		if err := hang(j.OutputDir(guest), guest, false); err != nil {
			return nil, fmt.Errorf("make %s: %w", guest, err)
		}
	}
	return mounts, nil
}

// place puts a regular file at dst without copying it where the file system
// allows.
func place(src, dst string) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return err
	}
	if os.Link(src, dst) == nil {
		return nil
	}
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// environ returns the guest's environment in an order that is always the
// same.
func environ(j runner.Job) [][2]string {
	env := maps.Clone(j.Env)
	if env == nil {
		env = map[string]string{}
	}
	delete(env, "LACUNA_RESUMED")
	if j.Resumed {
		env["LACUNA_RESUMED"] = "1"
	}
	pairs := [][2]string{}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, [2]string{k, env[k]})
	}
	return pairs
}

// diskUsed returns the sizes of all files below dir, sparse ones in full, with
// a little for each name so that empty files are not free.
func diskUsed(dir string) uint64 {
	var sum uint64
	// Files come and go while the job runs, so errors are no news.
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += uint64(info.Size()) + bytesPerName
		}
		return nil
	})
	return sum
}

// bytesPerName is what a file costs besides its contents; a choice, near the
// size of an ext4 inode (256).
const bytesPerName = 256
