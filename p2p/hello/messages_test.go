package hello_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/hello"
)

// full returns the largest messages there can be.
func full(tb testing.TB) (hello.Self, hello.Request, hello.Answer) {
	tb.Helper()
	place := market.Place{Continent: "eu", Country: "de", City: strings.Repeat("x", 32)}
	said := hello.Self{
		Boot: hello.BootID{1}, Seq: 1 << 63, Clock: 1<<47 - 1, Reach: market.ReachNone, Place: place,
		Agent: strings.Repeat("a", 64), Light: true, Twins: []hello.BootID{{2}, {3}},
	}
	e := statement(tb, 0, said)
	q := hello.Request{Self: e, Few: true}
	addr, err := ma.NewMultiaddr("/dns4/" + strings.Repeat("n", 53) + "/tcp/65535/tls/ws")
	if err != nil || len(addr.Bytes()) != 62 {
		tb.Fatalf("address of %d bytes, %v, want one of just under 64", len(addr.Bytes()), err)
	}
	a := hello.Answer{
		Clock: 1<<47 - 1, Reach: market.ReachNone, Place: place, Agent: said.Agent, Light: true,
		Twin: &hello.Shown{Self: e, Addr: addr.Bytes()},
	}
	for i := range 8 {
		q.Want = append(q.Want, name(i))
		a.Seen = append(a.Seen, hello.Seen{Key: name(i), RTT: 60_000})
		b := addr.Bytes()
		a.Peers = append(a.Peers, hello.Told{Key: name(i), Addrs: [][]byte{b, b, b, b}})
	}
	return said, q, a
}

func TestLargestMessagesFit(t *testing.T) {
	_, q, a := full(t)
	for _, v := range []struct {
		name    string
		message attest.Validator
		limit   int
	}{{"request", q, hello.MaxRequest}, {"answer", a, hello.MaxAnswer}} {
		b, err := attest.Marshal(v.message)
		if err != nil || v.message.Validate() != nil || len(b) > v.limit {
			t.Errorf("largest %s: %d bytes, at most %d; %v, %v", v.name, len(b), v.limit, err, v.message.Validate())
		}
		t.Logf("largest %s: %d bytes", v.name, len(b))
	}
}

// What is sent stays as it is: peers of the first version read it for ever.
func TestGoldenMessages(t *testing.T) {
	said := hello.Self{
		Boot: hello.BootID{1, 2}, Seq: 3, Clock: 1_796_000_000_000, Reach: market.ReachPunched, Place: berlin, Agent: "lacuna/1 linux",
		Light: true, Twins: []hello.BootID{{4}},
	}
	small := attest.Envelope{Domain: hello.Domain, Payload: []byte{7}, Signer: attest.Key{8}}
	for _, tt := range []struct {
		name string
		v    any
	}{
		{"statement", said},
		{"request", hello.Request{Self: small, Few: true, Want: []attest.Key{{9}}}},
		{"answer", hello.Answer{
			Clock: 5, Reach: market.ReachDirect, Peers: []hello.Told{{Key: attest.Key{1}, Addrs: [][]byte{{4, 1, 2, 3, 4, 6, 0, 1}}}},
			Seen: []hello.Seen{{Key: attest.Key{2}, RTT: 20}}, Twin: &hello.Shown{Self: small},
		}},
	} {
		want, err := os.ReadFile(filepath.Join("testdata", tt.name+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := attest.Marshal(tt.v)
		if err != nil || hex.EncodeToString(got) != strings.TrimSpace(string(want)) {
			t.Errorf("%s: %x, %v, want %s", tt.name, got, err, want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	said, q, a := full(f)
	for _, v := range []any{said, q, a, hello.Self{Boot: hello.BootID{1}, Seq: 1}, hello.Answer{}} {
		b, err := attest.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{&hello.Self{}, &hello.Request{}, &hello.Answer{}} {
			if attest.Unmarshal(b, v) != nil {
				continue
			}
			again, err := attest.Marshal(v)
			if err != nil || !bytes.Equal(b, again) {
				t.Fatalf("%T: %x encodes to %x, %v", v, b, again, err)
			}
			if a, ok := v.(*hello.Answer); ok && (len(a.Peers) > 8 || len(a.Seen) > 8) {
				t.Fatalf("answer of %d peers and %d round trips is valid", len(a.Peers), len(a.Seen))
			}
		}
	})
}
