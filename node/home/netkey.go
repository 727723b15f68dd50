package home

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lacuna-network/lacuna/p2p"
)

// DefaultNetworkKey is the usual name of a network key's file in the home.
const DefaultNetworkKey = "network.key"

var (
	// ErrNetworkKeyExists means that a file holds the key of another network already.
	ErrNetworkKeyExists = errors.New("there is another network key already")
	errNetworkKeyFormat = errors.New("not a network key: want 64 hexadecimal digits on one line")
)

// File returns a path as the config means it: in the home unless it is absolute; "" stays "".
func (h Home) File(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return h.path(path)
}

// NetworkKey reads the key of a private network, [p2p.NetworkKeySize] bytes, from a file (as for [Home.File]). The file is
// one line of 64 hexadecimal digits; one that others than its owner may read is refused, for whoever has the key is in.
func (h Home) NetworkKey(file string) ([]byte, error) {
	p := h.File(file)
	data, err := readSecret(p, "key")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read network key: network.key_file names %s, which is not there; copy it from a peer of the network (mode 0600), or join by an invite that holds the key: %w", p, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read network key: %w", err)
	}
	key, err := parseNetworkKey(data)
	if err != nil {
		return nil, fmt.Errorf("read network key: %s: %w", p, err)
	}
	return key, nil
}

// MakeNetworkKey makes a key for a new private network and keeps it in a file, mode 0600. A file that is there is an
// error that wraps [ErrNetworkKeyExists]: its network would lose this peer. The home must exist.
func (h Home) MakeNetworkKey(file string) ([]byte, error) {
	key := make([]byte, p2p.NetworkKeySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make network key: %w", err)
	}
	if err := h.KeepNetworkKey(file, key); err != nil {
		return nil, err
	}
	return key, nil
}

// KeepNetworkKey writes the key of a network, as an invite brings it, to a file, mode 0600. It does nothing if the file
// holds that key, and returns an error that wraps [ErrNetworkKeyExists] if it holds anything else.
func (h Home) KeepNetworkKey(file string, key []byte) error {
	if len(key) != p2p.NetworkKeySize {
		return fmt.Errorf("keep network key: %d bytes, want %d", len(key), p2p.NetworkKeySize)
	}
	p := h.File(file)
	switch _, err := os.Lstat(p); {
	case err == nil:
		if old, err := h.NetworkKey(file); err != nil || !bytes.Equal(old, key) {
			return fmt.Errorf("keep network key: %w in %s", ErrNetworkKeyExists, p)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("keep network key: %w", explain(p, err))
	}
	if err := writeFile(p, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep network key: %w", err)
	}
	return nil
}

// parseNetworkKey reads the bytes of a network key's file. Errors wrap errNetworkKeyFormat.
func parseNetworkKey(data []byte) ([]byte, error) {
	text := bytes.TrimSpace(data)
	key := make([]byte, p2p.NetworkKeySize)
	if len(text) != hex.EncodedLen(p2p.NetworkKeySize) {
		return nil, errNetworkKeyFormat
	}
	if _, err := hex.Decode(key, text); err != nil {
		return nil, errNetworkKeyFormat
	}
	return key, nil
}
