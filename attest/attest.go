// Package attest says who stated what, provably.
//
// Its types are [Key] (an Ed25519 public key, which is also a peer's name), [Digest] (SHA-256, the name of every
// signed object), [Envelope] (bytes, the role they were signed in, and the signature) and [Signer]. [Marshal] and
// [Unmarshal] are the one codec of the network: deterministic CBOR with integer keys, decoded strictly.
//
// An object's id is the SHA-256 of its payload, without signatures. What is signed is
//
//	domain ‖ 0x00 ‖ network id (32 bytes) ‖ payload
//
// so that a signature never counts in another role, another object or another network. Stores and relays keep the
// payload's bytes as they were sent; nobody re-encodes what somebody signed.
//
// The package does no I/O and reads no clock. It is used by everything above it; all of it is safe for concurrent use.
//
// History: 2026-11-30 version 1.
package attest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Digest is a SHA-256. The zero digest stands for "none" where a field says so.
type Digest [sha256.Size]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// String returns "sha256:" and 64 hex digits.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// Hex returns the 64 hex digits alone, fit for file names and URLs.
func (d Digest) Hex() string { return hex.EncodeToString(d[:]) }

// Short returns the first 12 hex digits, for people.
func (d Digest) Short() string { return hex.EncodeToString(d[:6]) }

// IsZero reports whether d is the zero digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// MarshalText returns the text form of [Digest.String]; in JSON a digest is that string.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses what [Digest.MarshalText] wrote.
func (d *Digest) UnmarshalText(b []byte) error {
	p, err := ParseDigest(string(b))
	*d = p
	return err
}

// ParseDigest parses "sha256:<64 hex>" or the 64 hex digits alone.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	b, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("digest %.80q: want sha256: and 64 hex digits", s)
	}
	copy(d[:], b)
	return d, nil
}

// NetworkID returns the id of the network with that name, which stands in every signature made on it.
func NetworkID(name string) Digest { return Sum([]byte(name)) }

// Key is a raw Ed25519 public key. It names a peer.
type Key [ed25519.PublicKeySize]byte

// keyPrefix turns a raw key into the identity multihash of a libp2p public key: identity code, length 36, then the
// protobuf header "type 1 (Ed25519), 32 bytes". See the libp2p peer-ids specification.
const keyPrefix = "\x00\x24\x08\x01\x12\x20"

// String returns the libp2p text form, "12D3Koo…".
func (k Key) String() string { return base58Encode(append([]byte(keyPrefix), k[:]...)) }

// Short returns the last 8 characters of the text form, for people; the first ones are the same for every key.
func (k Key) Short() string {
	s := k.String()
	return s[len(s)-8:]
}

// IsZero reports whether k is the zero key, which no peer has.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText returns the text form; in JSON a key is that string.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses what [Key.MarshalText] wrote.
func (k *Key) UnmarshalText(b []byte) error {
	p, err := ParseKey(string(b))
	*k = p
	return err
}

// ParseKey parses the libp2p text form of an Ed25519 peer id.
func ParseKey(s string) (Key, error) {
	var k Key
	b, err := base58Decode(s)
	if err != nil || len(b) != len(keyPrefix)+len(k) || string(b[:len(keyPrefix)]) != keyPrefix {
		return k, fmt.Errorf("peer id %.80q: want an Ed25519 peer id such as 12D3KooW…", s)
	}
	copy(k[:], b[len(keyPrefix):])
	return k, nil
}

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

func base58Encode(b []byte) string {
	n, base, mod := new(big.Int).SetBytes(b), big.NewInt(58), new(big.Int)
	var out []byte
	for n.Sign() > 0 {
		n.DivMod(n, base, mod)
		out = append(out, base58Alphabet[mod.Int64()])
	}
	for i := 0; i < len(b) && b[i] == 0; i++ {
		out = append(out, base58Alphabet[0])
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return string(out)
}

func base58Decode(s string) ([]byte, error) {
	if len(s) > 128 {
		return nil, errors.New("too long")
	}
	n, base := new(big.Int), big.NewInt(58)
	zeros := 0
	for i := range len(s) {
		v := strings.IndexByte(base58Alphabet, s[i])
		if v < 0 {
			return nil, fmt.Errorf("character %q is not base58", s[i])
		}
		if v == 0 && n.Sign() == 0 {
			zeros++
		}
		n.Mul(n, base).Add(n, big.NewInt(int64(v)))
	}
	return append(make([]byte, zeros), n.Bytes()...), nil
}
