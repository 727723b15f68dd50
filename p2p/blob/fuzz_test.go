package blob_test

import (
	"bytes"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p/blob"
)

func FuzzMessages(f *testing.F) {
	d := attest.Sum([]byte("file"))
	for i, v := range []any{map[int]any{1: d[:], 2: 7}, map[int]any{1: 1, 2: 9}} {
		b, err := attest.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		if err := attest.Unmarshal(b, blob.Messages()[i]); err != nil {
			f.Fatalf("%x: %v", b, err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range blob.Messages() {
			if attest.Unmarshal(b, m) != nil {
				continue
			}
			again, err := attest.Marshal(m)
			if err != nil || !bytes.Equal(b, again) {
				t.Fatalf("%T: %x encodes to %x, %v", m, b, again, err)
			}
		}
	})
}
