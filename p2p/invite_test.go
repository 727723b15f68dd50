package p2p_test

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
		line, err := h.Invite(t.Context())
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
	if line, err := h.Invite(t.Context()); err == nil {
		t.Errorf("Invite() = %s, from a peer that nobody can reach", line)
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

func FuzzParseInvite(f *testing.F) {
	f.Add(sampleInvite().String())
	f.Add("lacuna1aaaa")
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
