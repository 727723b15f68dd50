package attest_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market/markettest"
)

const (
	domain attest.Domain = "lacuna/sample/tester/1"
	other  attest.Domain = "lacuna/sample/other/1"
)

func TestEnvelopeGolden(t *testing.T) {
	e := markettest.Sign(t, markettest.Signer(1), domain, sample{N: 7, Text: "golden", ID: attest.Sum([]byte("x"))})
	b, err := attest.MarshalEnvelope(e)
	if err != nil {
		t.Fatal(err)
	}
	// Signed bytes outlive the version that wrote them.
	want, err := os.ReadFile(filepath.Join("testdata", "envelope.hex"))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b) + "\n"; got != string(want) {
		t.Errorf("encoded as\n%sand was before as\n%s", got, want)
	}
	got, err := attest.ParseEnvelope(b, attest.MaxEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("read back (-signed +read):\n%s", diff)
	}
	if err := got.Verify(markettest.NetworkID(), domain); err != nil {
		t.Errorf("Verify = %v", err)
	}
	if got.ID() != attest.Sum(e.Payload) {
		t.Errorf("id = %s, want the digest of the payload", got.ID())
	}
}

func TestSignatureHoldsNowhereElse(t *testing.T) {
	network := markettest.NetworkID()
	s := markettest.Signer(1)
	for _, tt := range []struct {
		name    string
		network attest.Digest
		as      attest.Domain
		change  func(*attest.Envelope)
		want    error
	}{
		{"as signed", network, domain, func(*attest.Envelope) {}, nil},
		{"expected in another role", network, other, func(*attest.Envelope) {}, attest.ErrDomain},
		{"moved to another role", network, other, func(e *attest.Envelope) { e.Domain = other }, attest.ErrSignature},
		{"without a domain", network, "", func(e *attest.Envelope) { e.Domain = "" }, attest.ErrSignature},
		{"another network", attest.NetworkID("other"), domain, func(*attest.Envelope) {}, attest.ErrSignature},
		{"no network", attest.Digest{}, domain, func(*attest.Envelope) {}, attest.ErrSignature},
		{"payload changed", network, domain, func(e *attest.Envelope) { e.Payload[0] ^= 1 }, attest.ErrSignature},
		{"payload cut", network, domain, func(e *attest.Envelope) { e.Payload = e.Payload[1:] }, attest.ErrSignature},
		{"payload longer", network, domain, func(e *attest.Envelope) { e.Payload = append(e.Payload, 0) }, attest.ErrSignature},
		{"another signer", network, domain, func(e *attest.Envelope) { e.Signer = markettest.Signer(2).Key() }, attest.ErrSignature},
		{"zero signer", network, domain, func(e *attest.Envelope) { e.Signer = attest.Key{} }, attest.ErrSignature},
		{"no signature", network, domain, func(e *attest.Envelope) { e.Sig = [64]byte{} }, attest.ErrSignature},
		{"signature changed", network, domain, func(e *attest.Envelope) { e.Sig[63] ^= 1 }, attest.ErrSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := markettest.Sign(t, s, domain, sample{N: 7})
			tt.change(&e)
			if err := e.Verify(tt.network, tt.as); !errors.Is(err, tt.want) {
				t.Errorf("Verify = %v, want %v", err, tt.want)
			}
			if _, err := attest.Open[sample](e, tt.network, tt.as); !errors.Is(err, tt.want) {
				t.Errorf("Open = %v, want %v", err, tt.want)
			}
		})
	}
}

// The border between domain, network and payload must not be movable: a domain that ends where another goes on cannot
// pass for it.
func TestDomainAndPayloadCannotShift(t *testing.T) {
	network := markettest.NetworkID()
	payload := []byte("payload")
	e := markettest.Signer(1).SignBytes("lacuna/a", payload)
	shifted := e
	shifted.Domain, shifted.Payload = "lacuna/a\x00"+attest.Domain(network[:]), payload
	if err := shifted.Verify(network, shifted.Domain); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("Verify = %v, want ErrSignature", err)
	}
}

func TestOpenRefusesSignedNonsense(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload []byte
	}{
		{"not CBOR", []byte("hello")},
		{"not canonical", unhex(t, "a5011801"+want[6:])},
		{"trailing byte", append(unhex(t, want), 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := markettest.Signer(1).SignBytes(domain, tt.payload)
			if _, err := attest.Open[sample](e, markettest.NetworkID(), domain); !errors.Is(err, attest.ErrEncoding) {
				t.Errorf("Open = %v, want ErrEncoding", err)
			}
		})
	}
}

// invalid is never valid.
type invalid struct {
	N uint64 `cbor:"1,keyasint"`
}

var errInvalid = errors.New("invalid")

func (invalid) Validate() error { return errInvalid }

func TestInvalidObjects(t *testing.T) {
	s := markettest.Signer(1)
	if e, err := s.Sign(domain, invalid{1}); !errors.Is(err, errInvalid) || e.Payload != nil {
		t.Errorf("Sign = %v, %v, want nothing and the fault", e, err)
	}
	e := s.SignBytes(domain, []byte{0xa1, 0x01, 0x01})
	if _, err := attest.Open[invalid](e, markettest.NetworkID(), domain); !errors.Is(err, errInvalid) || errors.Is(err, attest.ErrEncoding) {
		t.Errorf("Open = %v, want the fault that Validate found", err)
	}
	if _, err := s.Sign(domain, func() {}); err == nil {
		t.Error("a function was signed")
	}
}

func TestParseEnvelopeLimits(t *testing.T) {
	s := markettest.Signer(1)
	encode := func(e attest.Envelope) []byte {
		b, err := attest.MarshalEnvelope(e)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := encode(s.SignBytes(domain, []byte("x")))
	for _, tt := range []struct {
		name  string
		in    []byte
		limit int
		ok    bool
	}{
		{"within the limit", good, len(good), true},
		{"one byte over the limit", good, len(good) - 1, false},
		{"limit of nothing", good, 0, false},
		{"no payload", encode(s.SignBytes(domain, nil)), 1 << 20, false},
		{"largest payload", encode(s.SignBytes(domain, make([]byte, attest.MaxEnvelope))), 1 << 20, true},
		{"payload too large", encode(s.SignBytes(domain, make([]byte, attest.MaxEnvelope+1))), 1 << 20, false},
		{"domain too long", encode(s.SignBytes(attest.Domain(strings.Repeat("d", 65)), []byte("x"))), 1 << 20, false},
		{"signature too short", bytes.Replace(good, []byte{0x04, 0x58, 0x40}, []byte{0x04, 0x58, 0x3f}, 1)[:len(good)-1], 1 << 20, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := attest.ParseEnvelope(tt.in, tt.limit)
			if (err == nil) != tt.ok || (err != nil && !errors.Is(err, attest.ErrEncoding)) {
				t.Fatalf("ParseEnvelope = %v, want ok %v or ErrEncoding", err, tt.ok)
			}
			if tt.ok && e.Verify(markettest.NetworkID(), domain) != nil {
				t.Error("what was read does not verify")
			}
		})
	}
}

func TestSigner(t *testing.T) {
	s := markettest.Signer(9)
	if s.Network() != markettest.NetworkID() || s.Key() != markettest.Signer(9).Key() || s.Key() == markettest.Signer(8).Key() {
		t.Error("a signer has another key or network than it was made with")
	}
	a, b := s.SignBytes(domain, []byte("x")), markettest.Signer(8).SignBytes(other, []byte("x"))
	if a.ID() != b.ID() {
		t.Error("the id of an object depends on who signed it")
	}
}

func FuzzParseEnvelope(f *testing.F) {
	b, err := attest.MarshalEnvelope(markettest.Sign(f, markettest.Signer(1), domain, sample{N: 7}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := attest.ParseEnvelope(in, attest.MaxEnvelope)
		if err != nil {
			return
		}
		again, err := attest.MarshalEnvelope(e)
		if err != nil || !bytes.Equal(in, again) {
			t.Errorf("%x was accepted, its encoding is %x, %v", in, again, err)
		}
		if e.Verify(markettest.NetworkID(), domain) == nil && !bytes.Equal(in, b) {
			// Ed25519 signatures of one payload can be made anew only with the private key.
			t.Errorf("a forged envelope verifies: %x", in)
		}
	})
}
