package home

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lacuna-network/lacuna/attest"
)

// DefaultIdentity is the name of the key's file in the home.
const DefaultIdentity = "identity.key"

var (
	// ErrNoIdentity means that the home has no key yet.
	ErrNoIdentity = errors.New("no identity")
	// ErrIdentityExists means that an import would replace a key.
	ErrIdentityExists = errors.New("there is an identity already")
	// ErrKeyFormat means that bytes hold no Ed25519 private key in a known format.
	ErrKeyFormat = errors.New("not an Ed25519 private key")
)

// maxKeyFile bounds what is read for a key.
const maxKeyFile = 64 << 10

const (
	pemKey        = "PRIVATE KEY"
	importedFile  = "identity.imported"
	importedNotes = "This identity was imported. Leases that were open under it are abandoned at the next start, for two peers must never sign the same one.\n"
)

// libp2pPrefix begins a libp2p private key: protobuf "type 1 (Ed25519), 64 bytes"; the seed and the public key follow.
const libp2pPrefix = "\x08\x01\x12\x40"

// IdentityFile returns the path of the key's file: file ("" = [DefaultIdentity]), in the home unless it is absolute.
func (h Home) IdentityFile(file string) string {
	if file == "" {
		file = DefaultIdentity
	}
	if filepath.IsAbs(file) {
		return file
	}
	return h.path(file)
}

// Identity reads the key in that file (as for [Home.IdentityFile]). It returns an error that wraps [ErrNoIdentity] if
// there is none, and refuses a file that others than its owner may read.
func (h Home) Identity(file string) (ed25519.PrivateKey, error) {
	p := h.IdentityFile(file)
	data, err := readSecret(p, "private key")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not there", ErrNoIdentity, p)
	}
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	key, err := ParseKey(data)
	if err != nil {
		return nil, fmt.Errorf("read identity: %s: %w", p, err)
	}
	return key, nil
}

// EnsureIdentity reads the key and makes one if there is none; created says which. The home must exist and be locked.
func (h Home) EnsureIdentity(file string) (key ed25519.PrivateKey, created bool, err error) {
	key, err = h.Identity(file)
	if !errors.Is(err, ErrNoIdentity) {
		return key, false, err
	}
	_, key, err = ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, false, fmt.Errorf("make identity: %w", err)
	}
	data, err := MarshalKey(key)
	if err != nil {
		return nil, false, fmt.Errorf("make identity: %w", err)
	}
	if err := writeFile(h.IdentityFile(file), data, 0o600); err != nil {
		return nil, false, fmt.Errorf("make identity: %w", err)
	}
	return key, true, nil
}

// Export returns the key as PEM (PKCS #8), which [Home.Import], openssl and age read. Whoever has these bytes is this
// peer.
func (h Home) Export(file string) ([]byte, error) {
	key, err := h.Identity(file)
	if err != nil {
		return nil, err
	}
	return MarshalKey(key)
}

// Import makes the key in data the identity, in any format of [ParseKey], and returns its public key. A different key
// that is there is replaced only with force, and kept beside it as FILE.old. The home is locked meanwhile, so a running
// daemon refuses it with [*InUseError]. The open leases of an imported key are to be abandoned, see [Home.Imported].
func (h Home) Import(file string, data []byte, force bool) (attest.Key, error) {
	key, err := ParseKey(data)
	if err != nil {
		return attest.Key{}, fmt.Errorf("import identity: %w", err)
	}
	public := attest.Key(key.Public().(ed25519.PublicKey))
	if err := h.Create(); err != nil {
		return attest.Key{}, err
	}
	lock, err := h.Lock()
	if err != nil {
		return attest.Key{}, err
	}
	defer lock.Close()
	p := h.IdentityFile(file)
	if _, err := os.Stat(p); err == nil {
		if old, err := h.Identity(file); err == nil && old.Equal(key) {
			return public, nil
		}
		if !force {
			return attest.Key{}, fmt.Errorf("import identity: %w in %s; export it first, then force", ErrIdentityExists, p)
		}
		if err := os.Rename(p, p+".old"); err != nil {
			return attest.Key{}, fmt.Errorf("import identity: %w", explain(p, err))
		}
	}
	pemData, err := MarshalKey(key)
	if err != nil {
		return attest.Key{}, fmt.Errorf("import identity: %w", err)
	}
	// The mark comes first: a key without it would sign on leases that another machine may still serve.
	if err := writeFile(h.path(importedFile), []byte(importedNotes), 0o600); err != nil {
		return attest.Key{}, fmt.Errorf("import identity: %w", err)
	}
	if err := writeFile(p, pemData, 0o600); err != nil {
		return attest.Key{}, fmt.Errorf("import identity: %w", err)
	}
	return public, nil
}

// Imported reports whether the identity was imported since [Home.ClearImported]. Then every open lease in the store is
// to be abandoned before anything is signed.
func (h Home) Imported() (bool, error) {
	_, err := os.Stat(h.path(importedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an imported identity: %w", explain(h.dir, err))
	}
	return true, nil
}

// ClearImported says that the open leases have been abandoned, and that this is stored.
func (h Home) ClearImported() error {
	if err := os.Remove(h.path(importedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear imported identity: %w", err)
	}
	return syncDir(h.dir)
}

// MarshalKey returns the key as PEM (PKCS #8).
func MarshalKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// ParseKey reads an Ed25519 private key: PEM (PKCS #8), or a libp2p private key, as bytes or in base64. Errors wrap
// [ErrKeyFormat].
func ParseKey(data []byte) (ed25519.PrivateKey, error) {
	if block, rest := pem.Decode(data); block != nil {
		if block.Type != pemKey || len(bytes.TrimSpace(rest)) > 0 {
			return nil, fmt.Errorf("%w: want one PEM block PRIVATE KEY, unencrypted", ErrKeyFormat)
		}
		any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		key, ok := any.(ed25519.PrivateKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: the PEM block holds another kind of key", ErrKeyFormat)
		}
		return key, nil
	}
	raw := data
	if !bytes.HasPrefix(raw, []byte(libp2pPrefix)) {
		decoded, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
		if err != nil {
			return nil, fmt.Errorf("%w: want PEM (PKCS #8) or a libp2p private key", ErrKeyFormat)
		}
		raw = decoded
	}
	body, ok := bytes.CutPrefix(raw, []byte(libp2pPrefix))
	if !ok || len(body) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("%w: want PEM (PKCS #8) or a libp2p private key", ErrKeyFormat)
	}
	key := ed25519.NewKeyFromSeed(body[:ed25519.SeedSize])
	if !bytes.Equal(key, body) {
		return nil, fmt.Errorf("%w: its public half belongs to another key", ErrKeyFormat)
	}
	return key, nil
}
