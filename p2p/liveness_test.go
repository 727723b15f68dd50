package p2p_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

func TestProbe(t *testing.T) {
	prober := real(t, 401, p2p.Options{})
	open := func(i int) *p2p.Host {
		h, err := p2p.New(p2p.Options{Key: p2ptest.Key(i), Network: "test", Listen: []string{tcpAny, quicAny}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	h := open(402)
	key, addrs := h.Key(), h.Addrs()
	if got := prober.Probe(ctx, key, addrs); got != p2p.Alive {
		t.Errorf("Probe of a running peer = %v", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := prober.Probe(ctx, key, addrs); got != p2p.Gone {
		t.Errorf("Probe after the peer closed = %v, want gone", got)
	}
	if got := prober.Probe(ctx, key, []string{tcpAny}); got != p2p.Gone {
		t.Errorf("Probe of port 0 and what is remembered = %v, want gone", got)
	}

	// Another program took over the peer's port: it accepts, and never answers as the peer.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	stranger := open(403)
	other := stranger.Key()
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	if got := prober.Probe(ctx, other, []string{"/ip4/127.0.0.1/tcp/" + port}); got != p2p.Silent {
		t.Errorf("Probe of a port that another program holds = %v, want silent", got)
	}
	if got := prober.Probe(ctx, other, nil); got != p2p.Silent {
		t.Errorf("Probe without an address = %v, want silent", got)
	}
}

func TestProbeWithoutTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 2, p2ptest.Options{})
		defer net.Close()
		a, b := net.Host(0), net.Host(1)
		net.Connect(a, b)
		if got := a.Probe(t.Context(), b.Key(), nil); got != p2p.Alive {
			t.Errorf("Probe = %v, want alive", got)
		}
		net.Mute(b, true)
		start := time.Now()
		if got := a.Probe(t.Context(), b.Key(), b.Addrs()); got != p2p.Silent {
			t.Errorf("Probe of a peer that is cut off = %v, want silent", got)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Probe took %v, at most 3 s are promised", d)
		}
		net.Mute(b, false)
		if got := a.Probe(t.Context(), b.Key(), b.Addrs()); got != p2p.Alive {
			t.Errorf("Probe of a peer that is back = %v, want alive", got)
		}
	})
}
