package attest

import (
	"crypto/ed25519"
	"errors"
	"fmt"
)

// Domain names an object and the role it is signed in: "lacuna/<object>/<role>/<version>".
type Domain string

// MaxEnvelope is the largest envelope that any protocol carries, in bytes.
const MaxEnvelope = 8 << 10

var (
	// ErrSignature means that a signature does not fit its bytes, key, domain or network.
	ErrSignature = errors.New("signature does not hold")
	// ErrDomain means that an envelope was signed as something else than what was expected.
	ErrDomain = errors.New("signed as another object")
)

// Envelope is a payload with the signature of one peer in one role. Several signers of one payload are several
// envelopes. The zero value verifies nowhere.
type Envelope struct {
	Domain  Domain   `cbor:"1,keyasint"`
	Payload []byte   `cbor:"2,keyasint"`
	Signer  Key      `cbor:"3,keyasint"`
	Sig     [64]byte `cbor:"4,keyasint"`
}

// ID returns the object's id, the SHA-256 of the payload. It does not depend on who signed.
func (e Envelope) ID() Digest { return Sum(e.Payload) }

// Validate reports an envelope without a payload or with one that is too large.
func (e Envelope) Validate() error {
	if len(e.Payload) == 0 || len(e.Payload) > MaxEnvelope || len(e.Domain) > 64 {
		return fmt.Errorf("%w: payload of %d bytes", ErrEncoding, len(e.Payload))
	}
	return nil
}

// Verify checks the signature and that it was made as want on that network. It returns [ErrDomain] or [ErrSignature].
func (e Envelope) Verify(network Digest, want Domain) error {
	if e.Domain != want {
		return fmt.Errorf("%w: %.64q, want %q", ErrDomain, e.Domain, want)
	}
	if !ed25519.Verify(e.Signer[:], signedBytes(want, network, e.Payload), e.Sig[:]) {
		return fmt.Errorf("%w: %s by %s", ErrSignature, want, e.Signer)
	}
	return nil
}

func signedBytes(d Domain, network Digest, payload []byte) []byte {
	b := make([]byte, 0, len(d)+1+len(network)+len(payload))
	b = append(b, d...)
	b = append(b, 0)
	b = append(b, network[:]...)
	return append(b, payload...)
}

// Signer signs for one peer on one network. The zero value signs nothing; use [NewSigner].
type Signer struct {
	private ed25519.PrivateKey
	network Digest
}

// NewSigner returns the signer of that key on that network.
func NewSigner(private ed25519.PrivateKey, network Digest) Signer {
	return Signer{private: private, network: network}
}

// Key returns the signer's public key.
func (s Signer) Key() Key { return Key(s.private.Public().(ed25519.PublicKey)) }

// Network returns the id of the network the signer signs for.
func (s Signer) Network() Digest { return s.network }

// SignBytes signs a payload as it is, for a countersignature over bytes that came from another peer.
func (s Signer) SignBytes(d Domain, payload []byte) Envelope {
	e := Envelope{Domain: d, Payload: payload, Signer: s.Key()}
	copy(e.Sig[:], ed25519.Sign(s.private, signedBytes(d, s.network, payload)))
	return e
}

// Sign encodes v and signs it. If v is a [Validator] that finds fault, nothing is signed.
func (s Signer) Sign(d Domain, v any) (Envelope, error) {
	if c, ok := v.(Validator); ok {
		if err := c.Validate(); err != nil {
			return Envelope{}, fmt.Errorf("sign %s: %w", d, err)
		}
	}
	payload, err := Marshal(v)
	if err != nil {
		return Envelope{}, fmt.Errorf("sign %s: %w", d, err)
	}
	return s.SignBytes(d, payload), nil
}

// Open verifies e as an object of that domain and network and decodes its payload.
func Open[T any](e Envelope, network Digest, d Domain) (T, error) {
	var v T
	if err := e.Verify(network, d); err != nil {
		return v, err
	}
	return Decode[T](e)
}

// Decode decodes the payload of an envelope that was verified before, for instance when it was stored.
func Decode[T any](e Envelope) (T, error) {
	var v T
	if err := Unmarshal(e.Payload, &v); err != nil {
		return v, fmt.Errorf("%s: %w", e.Domain, err)
	}
	return v, nil
}

// MarshalEnvelope returns the encoding of e, as it is stored and sent.
func MarshalEnvelope(e Envelope) ([]byte, error) { return Marshal(e) }

// ParseEnvelope decodes an envelope of at most limit bytes. It does not verify it.
func ParseEnvelope(b []byte, limit int) (Envelope, error) {
	var e Envelope
	if len(b) > limit {
		return e, fmt.Errorf("%w: %d bytes, at most %d", ErrEncoding, len(b), limit)
	}
	err := Unmarshal(b, &e)
	return e, err
}
