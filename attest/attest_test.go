package attest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/multiformats/go-multihash"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// libp2pText returns the text form that libp2p gives to a public key: the identity multihash of its protobuf form, in
// base 58 (libp2p peer-ids specification).
func libp2pText(tb testing.TB, k attest.Key) string {
	tb.Helper()
	pub, err := crypto.UnmarshalEd25519PublicKey(k[:])
	if err != nil {
		tb.Fatal(err)
	}
	b, err := crypto.MarshalPublicKey(pub)
	if err != nil {
		tb.Fatal(err)
	}
	h, err := multihash.Sum(b, multihash.IDENTITY, -1)
	if err != nil {
		tb.Fatal(err)
	}
	return h.B58String()
}

func TestKeyTextIsLibp2ps(t *testing.T) {
	keys := []attest.Key{{}, {31: 1}, {0: 0xff}}
	for seed := range uint64(50) {
		keys = append(keys, markettest.Signer(seed).Key())
	}
	for _, k := range keys {
		want := libp2pText(t, k)
		if got := k.String(); got != want || !strings.HasPrefix(got, "12D3Koo") {
			t.Errorf("text of %x = %s, libp2p has %s", k[:], got, want)
		}
		if got, err := attest.ParseKey(want); err != nil || got != k {
			t.Errorf("ParseKey(%s) = %x, %v, want %x", want, got[:], err, k[:])
		}
		if !strings.HasSuffix(want, k.Short()) || len(k.Short()) != 8 {
			t.Errorf("short form %q of %s, want its last 8 characters", k.Short(), want)
		}
	}
}

// The text of one key is fixed here, so that a change of both sides would be seen.
func TestKeyTextIsFixed(t *testing.T) {
	const want = "12D3KooWDe9KFZMBhG5RrzYPayYiGFmkC5DCKvjhnrG3doLMHWqo"
	if got := markettest.Signer(1).Key().String(); got != want {
		t.Errorf("text of key 1 = %s, want %s", got, want)
	}
}

func TestParseKeyRefuses(t *testing.T) {
	good := markettest.Signer(1).Key().String()
	for _, tt := range []struct{ name, in string }{
		{"empty", ""},
		{"cut off", good[:len(good)-1]},
		{"one character more", good + "1"},
		{"leading 1", "1" + good},
		{"not base58", strings.Replace(good, "W", "0", 1)},
		{"not ASCII", good[:10] + "é" + good[11:]},
		{"space", " " + good},
		{"RSA peer id", "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"},
		{"CID", "bafzaajaiaejca4syrpdu6gdx4wsdnokxkprgzxf4wrstuc34gxw5k5jrag2so5gk"},
		{"very long", strings.Repeat("2", 100_000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if k, err := attest.ParseKey(tt.in); err == nil || !k.IsZero() {
				t.Errorf("ParseKey(%.60q) = %s, %v, want an error and the zero key", tt.in, k, err)
			}
		})
	}
}

func TestDigestText(t *testing.T) {
	// SHA-256 of the empty string, FIPS 180-4 example values.
	const hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	d := attest.Sum(nil)
	if d.String() != "sha256:"+hex || d.Hex() != hex || d.Short() != hex[:12] {
		t.Errorf("texts of the digest of nothing = %s, %s, %s", d, d.Hex(), d.Short())
	}
	for _, s := range []string{hex, "sha256:" + hex} {
		if got, err := attest.ParseDigest(s); err != nil || got != d {
			t.Errorf("ParseDigest(%q) = %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "sha256:", hex[:62], hex + "00", "sha512:" + hex, strings.Replace(hex, "e", "g", 1), "sha256:sha256:" + hex} {
		if got, err := attest.ParseDigest(s); err == nil || !got.IsZero() {
			t.Errorf("ParseDigest(%q) = %s, %v, want an error and the zero digest", s, got, err)
		}
	}
}

func TestTextInJSON(t *testing.T) {
	type both struct {
		K attest.Key
		D attest.Digest
	}
	in := both{markettest.Signer(3).Key(), attest.Sum([]byte("x"))}
	b, err := json.Marshal(in)
	if err != nil || !strings.Contains(string(b), in.K.String()) || !strings.Contains(string(b), in.D.String()) {
		t.Fatalf("JSON = %s, %v, want both texts", b, err)
	}
	var out both
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("read back %+v, %v, want %+v", out, err, in)
	}
	if err := json.Unmarshal([]byte(`{"K":"peer"}`), &out); err == nil {
		t.Error("a key that is none was read from JSON")
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(markettest.Signer(1).Key().String())
	f.Add("1")
	f.Add("12D3KooW")
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := attest.ParseKey(s); err == nil && k.String() != s {
			t.Errorf("ParseKey(%q) is %s: two texts for one key", s, k)
		}
	})
}
