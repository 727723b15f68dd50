package p2p_test

import (
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

func TestOutside(t *testing.T) {
	for _, tt := range []struct {
		name, addr, net string
		want            bool
	}{
		{"public", "/ip4/9.9.9.9/tcp/4711", "192.168.1.0/24", true},
		{"public, in the own range", "/ip4/9.9.9.9/tcp/4711", "9.0.0.0/8", true},
		{"neighbour", "/ip4/192.168.1.7/tcp/4711", "192.168.1.0/24", false},
		{"private, in another range", "/ip4/10.0.0.7/tcp/4711", "192.168.1.0/24", false},
		{"carrier's", "/ip4/100.64.0.7/tcp/4711", "192.168.1.0/24", false},
		{"for documentation, elsewhere", "/ip4/203.0.113.7/tcp/4711", "192.168.1.0/24", true},
		{"for documentation, in the own range", "/ip4/203.0.113.7/tcp/4711", "203.0.113.0/24", false},
		{"IPv6", "/ip6/2a00::1/udp/4711/quic-v1", "2a00::/64", true},
		{"IPv6 of a house", "/ip6/fd00::1/udp/4711/quic-v1", "2a00::/64", false},
		{"link-local", "/ip6/fe80::1/udp/4711/quic-v1", "2a00::/64", false},
		{"loopback", "/ip4/127.0.0.1/tcp/4711", "192.168.1.0/24", false},
		{"through a relay", "/ip4/9.9.9.9/tcp/4711/p2p/" + key(1).String() + "/p2p-circuit", "192.168.1.0/24", false},
	} {
		if got := p2p.Outside(tt.addr, tt.net); got != tt.want {
			t.Errorf("%s: outside = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWhoDialsBack(t *testing.T) {
	const near, far = "/ip4/192.168.1.5/tcp/4711", "/ip4/9.9.9.9/tcp/4711"
	neighbour, stranger := p2p.Server{Key: key(1), Private: true}, p2p.Server{Key: key(2), Outside: true}
	for _, tt := range []struct {
		name    string
		server  p2p.Server
		addr    string
		outside bool
		want    bool
	}{
		{"a neighbour, alone, an address of the LAN", neighbour, near, false, true},
		{"a neighbour, alone, a public address", neighbour, far, false, true},
		{"a neighbour, an address of the LAN", neighbour, near, true, true},
		{"a neighbour, a public address", neighbour, far, true, false},
		{"an outside peer, an address of the LAN", stranger, near, true, false},
		{"an outside peer, a public address", stranger, far, true, true},
	} {
		if got := tt.server.Fit(tt.addr, tt.outside); got != tt.want {
			t.Errorf("%s: asked = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestNextDialBack(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	found := func(by byte, from string, ok bool) p2p.Finding {
		return p2p.Finding{By: key(by), From: from, At: now, OK: ok}
	}
	a, b, c := p2p.Server{Key: key(1), From: "a"}, p2p.Server{Key: key(2), From: "a"}, p2p.Server{Key: key(3), From: "b"}
	for _, tt := range []struct {
		name  string
		found []p2p.Finding
		want  attest.Key
	}{
		{"nobody was asked", nil, a.Key},
		{"another place first", []p2p.Finding{found(1, "a", false)}, c.Key},
		{"then who was not asked", []p2p.Finding{found(1, "a", false), found(3, "b", false)}, b.Key},
		{"then who was asked longest ago", []p2p.Finding{found(3, "b", false), found(1, "a", false), found(2, "a", false)}, c.Key},
		{"after a failure, who could last", []p2p.Finding{found(2, "a", true), found(1, "a", false)}, b.Key},
		{"not if it failed since", []p2p.Finding{found(2, "a", true), found(1, "a", false), found(2, "a", false)}, c.Key},
	} {
		if got := p2p.Next(tt.found, a, b, c); got != tt.want {
			t.Errorf("%s: %s is asked, want %s", tt.name, got, tt.want)
		}
	}
}

func TestDoubt(t *testing.T) {
	const quic, tcp, near = "/ip4/9.9.9.9/udp/4711/quic-v1", "/ip4/9.9.9.9/tcp/4711", "/ip4/192.168.1.7/udp/4711/quic-v1"
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	many := func(n int) []string {
		var out []string
		for range n {
			out = append(out, quic)
		}
		return out
	}
	w := p2p.NewWatcher(start)
	for _, tt := range []struct {
		name    string
		at      time.Duration
		left    []string
		ended   []string
		doubted bool // at that time
		udp     p2p.Wire
	}{
		{"one of many", 0, many(9), []string{quic}, false, p2p.WireOpen},
		{"two more, some time later", 20 * time.Second, many(7), []string{quic, quic}, false, p2p.WireOpen},
		{"a third at once", 21 * time.Second, many(6), []string{quic}, true, p2p.WireOpen},
		{"all of UDP, too soon", 40 * time.Second, []string{tcp}, many(6), false, p2p.WireOpen},
		{"as soon as it may be", 51 * time.Second, []string{tcp}, nil, true, ""},
		{"nothing more", 5 * time.Minute, []string{tcp}, nil, false, ""},
		{"a new connection", 6 * time.Minute, []string{tcp, quic}, nil, false, p2p.WireOpen},
		{"to a neighbour alone", 15 * time.Minute, []string{tcp, near}, nil, false, p2p.WireOpen},
		{"the proof is old", 16 * time.Minute, []string{tcp, near}, nil, false, ""},
	} {
		now := start.Add(tt.at)
		doubted, udp := w.Look(now, tt.left, tt.ended...)
		if doubted.Equal(now) != tt.doubted || udp != tt.udp {
			t.Errorf("%s: doubted %v, UDP %q, want %v and %q", tt.name, doubted.Equal(now), udp, tt.doubted, tt.udp)
		}
	}
	now := start.Add(time.Hour)
	if !w.Refresh(now) || w.Refresh(now.Add(59*time.Second)) || !w.Refresh(now.Add(time.Minute)) {
		t.Error("whoever asks for a look gets it other than once a minute")
	}
}
