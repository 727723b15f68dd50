package p2p_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

func TestNetworkKeyKeepsOthersOut(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	server, roots := secure(t)
	inside := real(t, 800, p2p.Options{NetworkKey: key, TLS: server,
		Listen: []string{tcpAny, quicAny, "/ip4/127.0.0.1/tcp/0/ws", "/ip4/127.0.0.1/tcp/0/tls/ws"}})
	outside := real(t, 801, p2p.Options{Listen: []string{tcpAny}})
	inside.Handle(echo(), serveEcho)
	outside.Handle(echo(), serveEcho)
	if n := inside.ListenNotes(); len(n) != 1 || !strings.Contains(n[0], "QUIC is off") || len(inside.ListenAddresses()) != 3 {
		t.Errorf("notes %q on %v, want one on QUIC", n, inside.ListenAddresses())
	}
	for i, tt := range []struct {
		name string
		from []byte
		to   *p2p.Host
		want error
	}{
		{"same key", key, inside, nil},
		{"no key", nil, inside, p2p.ErrNetworkKey},
		{"another key", bytes.Repeat([]byte{2}, 32), inside, p2p.ErrNetworkKey},
		{"a key where none is wanted", key, outside, p2p.ErrNetworkKey},
	} {
		for j, addr := range tt.to.ListenAddresses() {
			if tt.want != nil && j > 0 {
				break // the key lies below WebSocket, so one address shows it
			}
			t.Run(tt.name+" "+addr, func(t *testing.T) {
				t.Parallel() // noise may look like the beginning of something, so that the end of the dial is waited for
				client := real(t, 810+10*i+j, p2p.Options{NetworkKey: tt.from, TLSRoots: roots})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := client.Connect(ctx, tt.to.Key(), []string{addr})
				if tt.want == nil {
					if got, callErr := call(client, tt.to.Key(), nil, "x"); err != nil || callErr != nil || got != "x" {
						t.Errorf("Connect = %v, answer %q, %v", err, got, callErr)
					}
					return
				}
				if !errors.Is(err, p2p.ErrUnreachable) || !errors.Is(err, tt.want) {
					t.Errorf("Connect = %v, want ErrUnreachable and %v", err, tt.want)
				}
			})
		}
	}
}

func TestAnotherPeerIsNoMatterOfKeys(t *testing.T) {
	a, b := real(t, 860, p2p.Options{Listen: []string{tcpAny}}), real(t, 861, p2p.Options{})
	for _, tt := range []struct{ name, addr string }{
		{"another peer at the address", a.ListenAddresses()[0]},
		{"nobody at the address", freeTCP(t)},
	} {
		err := b.Connect(t.Context(), attest.Key(p2ptest.Key(862).Public().(ed25519.PublicKey)), []string{tt.addr})
		if !errors.Is(err, p2p.ErrUnreachable) || errors.Is(err, p2p.ErrNetworkKey) {
			t.Errorf("%s: Connect = %v, want ErrUnreachable alone", tt.name, err)
		}
	}
}

func TestHostWithAKeyStartsInEachProfile(t *testing.T) {
	for i, profile := range []p2p.Profile{p2p.Hub, p2p.Provider, p2p.Light} {
		o := p2p.Options{Network: "lab", Profile: profile, LAN: true, NetworkKey: bytes.Repeat([]byte{1}, 32), Listen: []string{tcpAny}, Relay: p2p.RelayPolicy{Serve: true}}
		if h := real(t, 870+i, o); len(h.ListenAddresses()) != 1 {
			t.Errorf("%s: listens on %v, want one address", profile, h.ListenAddresses())
		}
	}
}
