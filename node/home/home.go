// Package home is the folder in which one peer keeps everything: its key, store, data, and the lock that keeps a second
// daemon out.
//
// [Resolve] finds the folder, [Home.Create] makes it, [Home.Lock] takes it. The identity is an Ed25519 key in a file
// that only its owner may read ([Home.Identity], [Home.Export], [Home.Import]). Known good peers are kept in a file of
// their own, so that a network survives the loss of its first peers. What lies where:
//
//	config.yaml        what the owner set
//	identity.key       the private key, PEM (PKCS #8), mode 0600
//	identity.imported  there after an import until the open leases of that key have been abandoned
//	network.key        the key of a private network, 64 hexadecimal digits, mode 0600; only where the config names it
//	lock               held by the running daemon; holds its pid for people; is never deleted
//	store/             Badger
//	blobs/             content-addressed files
//	jobs/ cache/       of the jobs that run here; compiled modules
//	peers.json         known good peers
//	api.sock           where programs on this machine reach the daemon
//	daemon.log         of a daemon that runs in the background
//
// The package knows only the folder: it opens no store and starts nothing. It is used by node, cmd and node/testnet. A
// Home is a path and may be used concurrently.
package home

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// EnvVar is the environment variable that names the home.
const EnvVar = "LACUNA_HOME"

// Home is the folder of one peer. The zero value is no home; use [Resolve] or [At].
type Home struct{ dir string }

// At returns the home in that folder, which need not exist. A relative dir is taken from the working folder.
func At(dir string) (Home, error) {
	if dir == "" {
		return Home{}, errors.New("find home: no folder named")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Home{}, fmt.Errorf("find home: %w", err)
	}
	return Home{abs}, nil
}

// Resolve returns the home that a flag ("" = not given), [EnvVar] or the operating system's custom names, in that
// order. Nothing is created.
func Resolve(flag string, env func(string) string) (Home, error) {
	if flag != "" {
		return At(flag)
	}
	if dir := env(EnvVar); dir != "" {
		return At(dir)
	}
	dir, err := defaultDir(runtime.GOOS, env)
	if err != nil {
		return Home{}, err
	}
	return At(dir)
}

// defaultDir follows the XDG base directories, Apple's and Microsoft's rules.
func defaultDir(goos string, env func(string) string) (string, error) {
	name, base, below := "HOME", env("HOME"), filepath.Join(".local", "share", "lacuna")
	switch goos {
	case "windows":
		name, base, below = "LOCALAPPDATA", env("LOCALAPPDATA"), "lacuna"
	case "darwin", "ios":
		below = filepath.Join("Library", "Application Support", "lacuna")
	default:
		if xdg := env("XDG_DATA_HOME"); filepath.IsAbs(xdg) { // a relative one is invalid by the specification
			base, below = xdg, "lacuna"
		}
	}
	if base == "" {
		return "", fmt.Errorf("find home: %s is not set; name a folder with --home or %s", name, EnvVar)
	}
	return filepath.Join(base, below), nil
}

// Dir returns the folder, an absolute path.
func (h Home) Dir() string { return h.dir }

func (h Home) path(name string) string { return filepath.Join(h.dir, name) }

// ConfigFile returns the path of what the owner set.
func (h Home) ConfigFile() string { return h.path("config.yaml") }

// StoreDir returns the folder of the store.
func (h Home) StoreDir() string { return h.path("store") }

// BlobsDir returns the folder of content-addressed files.
func (h Home) BlobsDir() string { return h.path("blobs") }

// JobsDir returns the folder of the jobs that run here.
func (h Home) JobsDir() string { return h.path("jobs") }

// CacheDir returns the folder of what can be made again.
func (h Home) CacheDir() string { return h.path("cache") }

// LogFile returns the path of the log of a daemon in the background.
func (h Home) LogFile() string { return h.path("daemon.log") }

// PeersFile returns the path of the known peers.
func (h Home) PeersFile() string { return h.path("peers.json") }

// Exists reports whether the folder is there.
func (h Home) Exists() bool {
	info, err := os.Stat(h.dir)
	return err == nil && info.IsDir()
}

// Create makes the folder, mode 0700, if it is not there, and takes away what others may do in one that is.
func (h Home) Create() error {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return fmt.Errorf("create home: %w", explain(h.dir, err))
	}
	info, err := os.Stat(h.dir)
	if err != nil {
		return fmt.Errorf("create home: %w", explain(h.dir, err))
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(h.dir, 0o700); err != nil {
			return fmt.Errorf("create home: others may read %s, and that cannot be changed: %w", h.dir, explain(h.dir, err))
		}
	}
	return nil
}

// MaxSocket is the longest path of a unix socket in bytes that every system takes: 104 on macOS with its zero byte, 108
// on Linux.
const MaxSocket = 103

// Socket returns the path of the daemon's socket: in the home, or, where that path is too long for a socket, in a
// folder below the system's temporary one that is named by the home.
func (h Home) Socket() string {
	if p := h.path("api.sock"); len(p) <= MaxSocket {
		return p
	}
	sum := sha256.Sum256([]byte(h.dir))
	below := filepath.Join("lacuna-"+strconv.Itoa(os.Getuid())+"-"+hex.EncodeToString(sum[:8]), "api.sock")
	p := filepath.Join(os.TempDir(), below)
	if len(p) > MaxSocket && runtime.GOOS != "windows" {
		p = filepath.Join("/tmp", below) // TMPDIR is some deep folder
	}
	return p
}

// PrepareSocket makes the folder of [Home.Socket]. Outside the home it must be a folder of this user that nobody else
// may enter: the temporary folder is everybody's, and someone may have been there first.
func (h Home) PrepareSocket() error {
	p := h.Socket()
	if len(p) > MaxSocket {
		return fmt.Errorf("prepare socket: path %s is too long, at most %d bytes; set api.socket to a shorter one", p, MaxSocket)
	}
	dir := filepath.Dir(p)
	if dir == h.dir {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("prepare socket: %w", explain(dir, err))
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("prepare socket: %w", explain(dir, err))
	}
	if !info.IsDir() || !ours(info) || (runtime.GOOS != "windows" && info.Mode().Perm() != 0o700) {
		return fmt.Errorf("prepare socket: %s belongs to someone else or is open to others; remove it, or set api.socket", dir)
	}
	return nil
}

// RemoveSocket removes the socket, and its folder where that lies outside the home. It is no error if they are gone.
func (h Home) RemoveSocket() {
	p := h.Socket()
	_ = os.Remove(p)
	if dir := filepath.Dir(p); dir != h.dir {
		_ = os.Remove(dir) // fails while something else is in it
	}
}

// explain adds to a permission error whose the file is and who is needed.
func explain(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if who := owner(path); who != "" {
		return fmt.Errorf("%w: %s; run as that user, or give it to yours", err, who)
	}
	return err
}

// writeFile writes a file so that after a crash either the old or the new content is there.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return explain(filepath.Dir(path), err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return explain(path, err)
	}
	return syncDir(filepath.Dir(path))
}
