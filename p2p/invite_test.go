package p2p_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

func sampleInvite() p2p.Invite {
	return p2p.Invite{Network: "test", Peers: []p2p.InvitePeer{
		{Key: attest.Key(p2ptest.Key(1).Public().(ed25519.PublicKey)), Addrs: []string{"/ip4/192.0.2.1/tcp/4711", "/ip6/2001:db8::1/udp/4711/quic-v1"}},
		{Key: attest.Key(p2ptest.Key(2).Public().(ed25519.PublicKey)), Addrs: []string{"/dns4/hub.example.org/tcp/443"}},
	}}
}

func TestInviteJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 9, p2ptest.Options{Name: "test-42"})
		defer net.Close()
		h := net.Host(0)
		for _, other := range net.Hosts()[1:8] {
			net.Connect(h, other)
		}
		time.Sleep(time.Second)
		net.Mute(net.Host(1), true) // connected, as far as anybody knows
		line, err := h.Invite(t.Context(), p2p.InviteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(line, " \n") || len(line) > 1000 {
			t.Errorf("invite of %d characters is not one short line: %s", len(line), line)
		}
		i, err := p2p.ParseInvite(line)
		if err != nil {
			t.Fatal(err)
		}
		if i.Network != "test-42" || len(i.Peers) != 5 || i.Peers[0].Key != h.Key() {
			t.Errorf("invite = %+v, want network test-42 and five peers, this one first", i)
		}
		for _, p := range i.Peers {
			if p.Key == net.Host(1).Key() {
				t.Error("the invite names a peer that does not answer")
			}
			if err := net.Host(8).Connect(t.Context(), p.Key, p.Addrs); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestInviteWithoutAddress(t *testing.T) {
	h := real(t, 500, p2p.Options{})
	if line, err := h.Invite(t.Context(), p2p.InviteOptions{}); !errors.Is(err, p2p.ErrNoInvite) {
		t.Errorf("Invite() = %s, %v, from a peer that nobody can reach", line, err)
	}
}

func TestParseInvite(t *testing.T) {
	good := sampleInvite().String()
	flipped := []byte(good)
	if flipped[40] = 'a'; good[40] == 'a' {
		flipped[40] = 'b'
	}
	for _, tt := range []struct {
		name, in string
		says     string // "" = parses
	}{
		{"whole", good, ""},
		{"upper case", strings.ToUpper(good), ""},
		{"wrapped by a mail program", " " + good[:60] + "\r\n  " + good[60:] + "\n", ""},
		{"empty", "", "begins with"},
		{"something else", "https://example.org", `begins with "lacuna1"`},
		{"prefix only", "lacuna1", "end is missing"},
		{"cut", good[:len(good)-5], "missing"},
		{"typing error", string(flipped), "copy it again"},
		{"foreign characters", good[:50] + "!" + good[51:], "characters"},
		{"endless", "lacuna1" + strings.Repeat("a", 5000), "longer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := p2p.ParseInvite(tt.in)
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(sampleInvite(), got); diff != "" {
					t.Errorf("invite (-want +got):\n%s", diff)
				}
				return
			}
			if !errors.Is(err, p2p.ErrInvite) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("ParseInvite(%.60q) = %v, want an error that says %q", tt.in, err, tt.says)
			}
		})
	}
}

func TestInviteCarriesTheKey(t *testing.T) {
	key := bytes.Repeat([]byte{5}, 32)
	h := real(t, 510, p2p.Options{NetworkKey: key, Listen: []string{tcpAny}})
	for _, tt := range []struct {
		name string
		o    p2p.InviteOptions
		want []byte
	}{
		{"with", p2p.InviteOptions{}, key},
		{"without", p2p.InviteOptions{WithoutKey: true}, nil},
	} {
		line, err := h.Invite(t.Context(), tt.o)
		if err != nil {
			t.Fatal(err)
		}
		i, err := p2p.ParseInvite(line)
		if err != nil || !bytes.Equal(i.NetworkKey, tt.want) {
			t.Fatalf("%s: key %x, %v, want %x", tt.name, i.NetworkKey, err, tt.want)
		}
		if tt.want == nil {
			continue
		}
		guest := real(t, 511, p2p.Options{NetworkKey: i.NetworkKey})
		if err := guest.Connect(t.Context(), i.Peers[0].Key, i.Peers[0].Addrs); err != nil {
			t.Error(err)
		}
	}
}

// line writes an invite of any content.
func line(t *testing.T, content any) string {
	t.Helper()
	b, err := attest.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return "lacuna1" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(append(b, sum[:4]...)))
}

func TestParseInviteOfOtherContent(t *testing.T) {
	type peer struct {
		Key   attest.Key `cbor:"1,keyasint"`
		Addrs [][]byte   `cbor:"2,keyasint"`
	}
	type invite struct {
		Network string `cbor:"1,keyasint"`
		Peers   []peer `cbor:"2,keyasint"`
		Key     []byte `cbor:"3,keyasint,omitempty"`
		More    uint64 `cbor:"9,keyasint,omitempty"`
	}
	p := peer{Key: attest.Key{1}, Addrs: [][]byte{ma.StringCast("/ip4/192.0.2.1/tcp/4711").Bytes()}}
	for _, tt := range []struct {
		name string
		in   invite
		says string // "" = parses
	}{
		{"whole", invite{Network: "test", Peers: []peer{p}}, ""},
		{"with a key", invite{Network: "test", Peers: []peer{p}, Key: make([]byte, 32)}, ""},
		{"short key", invite{Network: "test", Peers: []peer{p}, Key: make([]byte, 31)}, "network key of 31 bytes"},
		{"field of a later version", invite{Network: "test", Peers: []peer{p}, More: 1}, "this version cannot read it"},
		{"no peers", invite{Network: "test"}, "0 peers"},
		{"six peers", invite{Network: "test", Peers: []peer{p, p, p, p, p, p}}, "6 peers"},
		{"another's network name", invite{Network: "Test!", Peers: []peer{p}}, "want 1 to 32"},
		{"no address", invite{Network: "test", Peers: []peer{{Key: p.Key}}}, "0 addresses"},
		{"an address of a later version", invite{Network: "test", Peers: []peer{{Key: p.Key, Addrs: [][]byte{{0xff, 0xff, 1}}}}}, "cannot read an address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := p2p.ParseInvite(line(t, tt.in))
			if tt.says == "" {
				if err != nil || !bytes.Equal(got.NetworkKey, tt.in.Key) {
					t.Errorf("ParseInvite = %+v, %v", got, err)
				}
				return
			}
			if !errors.Is(err, p2p.ErrInvite) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("ParseInvite = %v, want ErrInvite that says %q", err, tt.says)
			}
		})
	}
}

func TestInviteAddrs(t *testing.T) {
	const (
		quic4, tcp4 = "/ip4/203.0.114.7/udp/4711/quic-v1", "/ip4/203.0.114.7/tcp/4711"
		quic6, tcp6 = "/ip6/2a00::7/udp/4711/quic-v1", "/ip6/2a00::7/tcp/4711"
		wss         = "/dns4/hub.example.org/tcp/443/tls/ws"
		lan, lan2   = "/ip4/192.168.77.5/tcp/4711", "/ip4/192.168.77.5/udp/4711/quic-v1"
		relayed     = tcp4 + "/p2p/12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp/p2p-circuit"
	)
	for _, tt := range []struct {
		name    string
		in      []string
		lan     bool
		want    []string
		relayed bool
	}{
		{"public first", []string{lan, lan2, tcp4, quic4}, true, []string{tcp4, quic4, lan, lan2}, false},
		{"at most four, one of each kind first", []string{quic4, quic6, tcp4, tcp6, wss}, true, []string{quic4, tcp4, wss, quic6}, false},
		{"no private ones on a public network", []string{lan, tcp4, lan2}, false, []string{tcp4}, false},
		{"nothing but private", []string{lan, lan2}, false, nil, false},
		{"no relay beside others", []string{relayed, tcp4}, false, []string{tcp4}, false},
		{"relays alone", []string{relayed, lan}, false, []string{relayed}, true},
		{"none", nil, true, nil, false},
	} {
		got, isRelayed := p2p.InviteAddrs(tt.in, tt.lan)
		if len(got) == 0 {
			got = nil
		}
		if d := cmp.Diff(tt.want, got); d != "" || isRelayed != tt.relayed {
			t.Errorf("%s: relayed %v, want %v; addresses (-want +got):\n%s", tt.name, isRelayed, tt.relayed, d)
		}
	}
}

func TestInviteSpreads(t *testing.T) {
	const direct, claimed, relayed = 0, 1, 2
	for _, tt := range []struct {
		name string
		in   []p2p.Sponsor
		want []int
	}{
		{"other ranges first", []p2p.Sponsor{{direct, "own"}, {direct, "a"}, {direct, "a"}, {direct, "b"}}, []int{1, 3, 0, 2}},
		{"direct before all", []p2p.Sponsor{{relayed, "a"}, {claimed, "b"}, {direct, "own"}}, []int{2, 1, 0}},
		{"a range that a better one took", []p2p.Sponsor{{claimed, "a"}, {claimed, "c"}, {direct, "a"}}, []int{2, 1, 0}},
	} {
		if d := cmp.Diff(tt.want, p2p.Spread(tt.in, "own")); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	for _, tt := range []struct {
		name, a, b string
		same       bool
	}{
		{"IPv4 of one /16", "/ip4/203.0.1.1/tcp/1", "/ip4/203.0.250.1/udp/2/quic-v1", true},
		{"IPv4 of two", "/ip4/203.0.1.1/tcp/1", "/ip4/203.1.1.1/tcp/1", false},
		{"IPv6 of one /32", "/ip6/2a00:1:2::/tcp/1", "/ip6/2a00:1:ffff::/tcp/1", true},
		{"IPv6 of two", "/ip6/2a00:1::/tcp/1", "/ip6/2a00:2::/tcp/1", false},
		{"one name", "/dns4/a.example/tcp/1", "/dns4/a.example/tcp/443/tls/ws", true},
	} {
		if a, b := p2p.Operator(tt.a), p2p.Operator(tt.b); (a == b) != tt.same {
			t.Errorf("%s: ranges %q and %q", tt.name, a, b)
		}
	}
}

func FuzzParseInvite(f *testing.F) {
	f.Add(sampleInvite().String())
	f.Add("lacuna1aaaa")
	private := sampleInvite()
	private.NetworkKey = bytes.Repeat([]byte{5}, 32)
	f.Add(private.String())
	f.Fuzz(func(t *testing.T, in string) {
		i, err := p2p.ParseInvite(in)
		if err != nil {
			return
		}
		again, err := p2p.ParseInvite(i.String())
		if err != nil {
			t.Fatalf("own invite does not parse: %v", err)
		}
		if diff := cmp.Diff(i, again); diff != "" {
			t.Errorf("invite changed on the way (-first +second):\n%s", diff)
		}
	})
}
