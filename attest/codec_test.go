package attest_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
)

// sample has one field of each kind that signed objects are made of.
type sample struct {
	N    uint64            `cbor:"1,keyasint"`
	Text string            `cbor:"2,keyasint"`
	ID   attest.Digest     `cbor:"3,keyasint"`
	Map  map[uint8]uint64  `cbor:"4,keyasint"`
	List []string          `cbor:"5,keyasint,omitempty"`
	Opt  *attest.Digest    `cbor:"6,keyasint,omitempty"`
	Sub  *sample           `cbor:"7,keyasint,omitempty"`
	Mark [4]byte           `cbor:"8,keyasint,omitempty"`
	Yes  bool              `cbor:"9,keyasint,omitempty"`
	Subs []map[uint8][]any `cbor:"10,keyasint,omitempty"`
}

// want is the encoding of sample{N: 1, Text: "a", ID: 32 × 0x11, Map: {1: 24}, Mark: "mark"}, written by hand.
const want = "a5" + "0101" + "026161" + "035820" + id + "04a1011818" + "08446d61726b"

const id = "1111111111111111111111111111111111111111111111111111111111111111"

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestMarshalIsDeterministic(t *testing.T) {
	v := sample{N: 1, Text: "a", Map: map[uint8]uint64{1: 24}, Mark: [4]byte{'m', 'a', 'r', 'k'}}
	copy(v.ID[:], bytes.Repeat([]byte{0x11}, 32))
	got, err := attest.Marshal(v)
	if err != nil || hex.EncodeToString(got) != want {
		t.Fatalf("Marshal = %x, %v, want %s", got, err, want)
	}
	v.Map = map[uint8]uint64{}
	for k := range uint8(60) {
		v.Map[k] = uint64(k)
	}
	first, _ := attest.Marshal(v)
	for range 20 {
		if again, _ := attest.Marshal(v); !bytes.Equal(first, again) {
			t.Fatal("the same map has two encodings")
		}
	}
	v.Map = nil
	if got, _ := attest.Marshal(v); !bytes.Contains(got, []byte{0x04, 0xa0}) {
		t.Errorf("a nil map = %x, want the empty map", got)
	}
}

func TestUnmarshalTakesTheOneForm(t *testing.T) {
	var v sample
	if err := attest.Unmarshal(unhex(t, want), &v); err != nil {
		t.Fatal(err)
	}
	if v.N != 1 || v.Text != "a" || v.Map[1] != 24 || string(v.Mark[:]) != "mark" || v.ID.Hex() != id {
		t.Errorf("decoded %+v", v)
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	const rest = "026161" + "035820" + id + "04a1011818" + "08446d61726b"
	for _, tt := range []struct{ name, in string }{
		{"nothing", ""},
		{"null", "f6"},
		{"another type", "01"},
		{"cut off", want[:len(want)-2]},
		{"trailing byte", want + "00"},
		{"trailing object", want + want},
		{"duplicate key, same value", "a6" + "0101" + "0101" + rest},
		{"duplicate key, other value", "a6" + "0101" + "0102" + rest},
		{"duplicate key in a map", "a5" + "0101" + "026161" + "035820" + id + "04a2011818011819" + "08446d61726b"},
		{"unknown key", "a6" + "0101" + rest + "181f01"},
		{"text key", "a6" + "0101" + rest + "613101"},
		{"text key instead", "a5" + "613101" + rest},
		{"missing key", "a4" + rest},
		{"key order", "a5" + "026161" + "0101" + "035820" + id + "04a1011818" + "08446d61726b"},
		{"key order in a map", "a5" + "0101" + "026161" + "035820" + id + "04a2021818011818" + "08446d61726b"},
		{"int in 2 bytes", "a5" + "011801" + rest},
		{"int in 3 bytes", "a5" + "01190001" + rest},
		{"int in 9 bytes", "a5" + "011b0000000000000001" + rest},
		{"key in 2 bytes", "a5" + "180101" + rest},
		{"length of a text in 2 bytes", "a5" + "0101" + "02780161" + "035820" + id + "04a1011818" + "08446d61726b"},
		{"length of the map in 2 bytes", "b805" + "0101" + rest},
		{"negative int", "a5" + "0120" + rest},
		{"float", "a5" + "01f93c00" + rest},
		{"float64", "a5" + "01fb3ff0000000000000" + rest},
		{"NaN", "a5" + "01f97e00" + rest},
		{"bool as int", "a5" + "01f5" + rest},
		{"text as int", "a5" + "016131" + rest},
		{"null as int", "a5" + "01f6" + rest},
		{"undefined as int", "a5" + "01f7" + rest},
		{"bignum", "a5" + "01c24101" + rest},
		{"tag around the object", "c1" + want},
		{"self-described CBOR", "d9d9f7" + want},
		{"tag around a value", "a5" + "01c101" + rest},
		{"indefinite map", "bf" + "0101" + rest + "ff"},
		{"indefinite text", "a5" + "0101" + "027f6161ff" + "035820" + id + "04a1011818" + "08446d61726b"},
		{"indefinite bytes", "a5" + "0101" + "026161" + "035f5820" + id + "ff" + "04a1011818" + "08446d61726b"},
		{"text that is not UTF-8", "a5" + "0101" + "0261ff" + "035820" + id + "04a1011818" + "08446d61726b"},
		{"bytes as text", "a5" + "0101" + "024161" + "035820" + id + "04a1011818" + "08446d61726b"},
		{"digest too short", "a5" + "0101" + "026161" + "03581f" + id[2:] + "04a1011818" + "08446d61726b"},
		{"digest too long", "a5" + "0101" + "026161" + "035821" + id + "11" + "04a1011818" + "08446d61726b"},
		{"digest as text", "a5" + "0101" + "026161" + "037820" + id + "04a1011818" + "08446d61726b"},
		{"digest as list", "a5" + "0101" + "026161" + "039820" + id + "04a1011818" + "08446d61726b"},
		{"digest null", "a5" + "0101" + "026161" + "03f6" + "04a1011818" + "08446d61726b"},
		{"map null", "a5" + "0101" + "026161" + "035820" + id + "04f6" + "08446d61726b"},
		{"map key out of range", "a5" + "0101" + "026161" + "035820" + id + "04a11901001818" + "08446d61726b"},
		{"zero value of an optional field", "a6" + "0101" + rest + "09f4"},
		{"null in an optional field", "a6" + "0101" + "026161" + "035820" + id + "04a1011818" + "06f6" + "08446d61726b"},
		{"empty list in an optional field", "a6" + "0101" + "026161" + "035820" + id + "04a1011818" + "0580" + "08446d61726b"},
		{"nested too deep", "a6" + "0101" + rest + "0a81a10081818181818181818180"},
		{"list longer than the bytes", "a6" + "0101" + "026161" + "035820" + id + "04a1011818" + "059a7fffffff" + "08446d61726b"},
		{"reserved length", "a5" + "011c" + rest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var v sample
			if err := attest.Unmarshal(unhex(t, tt.in), &v); !errors.Is(err, attest.ErrEncoding) {
				t.Errorf("Unmarshal(%s) = %v, want ErrEncoding", tt.in, err)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(unhex(f, want))
	f.Add(unhex(f, "a0"))
	f.Add(unhex(f, "bf0101ff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v sample
		if attest.Unmarshal(b, &v) != nil {
			return
		}
		again, err := attest.Marshal(v)
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%x was accepted, its encoding is %x, %v", b, again, err)
		}
	})
}
