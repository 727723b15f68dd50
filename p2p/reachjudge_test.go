package p2p_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

func key(i byte) attest.Key { return attest.Key{31: i} }

// liars returns failures of the last n seconds, each from another place.
func liars(now time.Time, n byte) []p2p.Finding {
	var out []p2p.Finding
	for i := range n {
		out = append(out, p2p.Finding{By: key(100 + i), At: now.Add(-time.Duration(n-i) * time.Second), From: string('a' + rune(i))})
	}
	return out
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const quic, tcp = "/ip4/9.9.9.9/udp/4711/quic-v1", "/ip4/9.9.9.9/tcp/4711"
	const near = "/ip4/192.168.1.5/tcp/4711"
	own := []string{quic, tcp}
	yes := func(by byte, d time.Duration) p2p.Finding { return p2p.Finding{By: key(by), At: ago(d), OK: true} }
	no := func(by byte, d time.Duration) p2p.Finding { return p2p.Finding{By: key(by), At: ago(d)} }
	type found = map[string][]p2p.Finding
	for _, tt := range []struct {
		name string
		e    p2p.Evidence
		want p2p.Reach
	}{
		{"nobody met", p2p.Evidence{Own: own}, p2p.Reach{}},
		{"just met", p2p.Evidence{Own: own, Met: ago(time.Second)}, p2p.Reach{}},
		{
			"one success is enough", p2p.Evidence{Own: own, Met: ago(time.Second), Found: found{quic: {yes(1, time.Second)}}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(1)}, Worked: []string{quic}},
		},
		{
			"one family works", p2p.Evidence{Own: own, Met: ago(time.Minute), Found: found{
				quic: {no(1, 9*time.Second), no(2, 8*time.Second)}, tcp: {yes(2, 7*time.Second), yes(3, 5*time.Second)},
			}},
			p2p.Reach{
				Verdict: market.ReachDirect, CheckedAt: ago(5 * time.Second), Witnesses: []attest.Key{key(3), key(2)},
				Worked: []string{tcp}, Failed: []string{quic},
			},
		},
		{
			"two failures are a doubt", p2p.Evidence{Own: own, Met: ago(time.Hour), Found: found{
				quic: {yes(1, time.Minute), no(2, 2*time.Second), no(3, time.Second)},
			}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(time.Minute), Witnesses: []attest.Key{key(1)}, Worked: []string{quic}},
		},
		{
			"three failures end it", p2p.Evidence{Own: []string{quic}, Met: ago(time.Hour), Found: found{
				quic: {yes(1, 10*time.Minute), no(2, 22*time.Second), no(2, 11*time.Second), no(1, time.Second)},
			}},
			p2p.Reach{
				Verdict: market.ReachNone, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(1), key(2)}, Failed: []string{quic},
			},
		},
		{
			"an old success counts no more", p2p.Evidence{Own: []string{quic}, Met: ago(2 * time.Hour), Found: found{
				quic: {yes(1, 61*time.Minute)},
			}},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: now},
		},
		{
			"a success of an address that is no longer own", p2p.Evidence{Own: []string{tcp}, Met: ago(time.Second), Found: found{
				quic: {yes(1, time.Second)},
			}},
			p2p.Reach{},
		},
		{
			"all fail, a relay may come", p2p.Evidence{Own: own, Met: ago(24 * time.Second), Found: found{
				quic: {no(1, time.Second)}, tcp: {no(1, time.Second)},
			}},
			p2p.Reach{Failed: own},
		},
		{
			"all fail", p2p.Evidence{Own: own, Met: ago(25 * time.Second), Found: found{
				quic: {no(1, 2*time.Second)}, tcp: {no(1, time.Second)},
			}},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(1)}, Failed: own},
		},
		{
			"one fails, of the other nothing is known", p2p.Evidence{Own: own, Met: ago(44 * time.Second), Found: found{
				quic: {no(1, time.Second)},
			}},
			p2p.Reach{Failed: []string{quic}},
		},
		{
			"nothing for too long", p2p.Evidence{Own: own, Met: ago(45 * time.Second)},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: now},
		},
		{
			"the last neighbour has gone", p2p.Evidence{LAN: true, Own: []string{near}, Met: ago(3 * time.Hour), Inbound: yes(8, 2*time.Hour), Alone: true}, p2p.Reach{},
		},
		{
			"all fail, and who found it has gone", p2p.Evidence{Own: own, Met: ago(time.Hour), Alone: true, Found: found{
				quic: {no(1, 2*time.Second)}, tcp: {no(1, time.Second)},
			}},
			p2p.Reach{Failed: own},
		},
		{
			"a success outlasts who found it", p2p.Evidence{Own: own, Met: ago(time.Hour), Alone: true, Found: found{quic: {yes(1, time.Minute)}}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(time.Minute), Witnesses: []attest.Key{key(1)}, Worked: []string{quic}},
		},
		{
			"listens nowhere", p2p.Evidence{NobodyOwn: true, Met: ago(25 * time.Second)},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: now},
		},
		{
			"relayed", p2p.Evidence{Own: own, Met: ago(10 * time.Second), Relays: []attest.Key{key(5), key(6)}, Found: found{
				quic: {no(1, time.Second)}, tcp: {no(1, time.Second)},
			}},
			p2p.Reach{
				Verdict: market.ReachRelayed, CheckedAt: now, Witnesses: []attest.Key{key(5), key(6)}, Failed: own,
				Relays: []attest.Key{key(5), key(6)},
			},
		},
		{
			"hole-punched", p2p.Evidence{Own: own, Met: ago(time.Hour), Relays: []attest.Key{key(5)}, Punched: yes(7, 59*time.Minute)},
			p2p.Reach{
				Verdict: market.ReachPunched, CheckedAt: ago(59 * time.Minute), Witnesses: []attest.Key{key(7)}, Relays: []attest.Key{key(5)},
			},
		},
		{
			"punched too long ago", p2p.Evidence{Own: own, Met: ago(time.Hour), Relays: []attest.Key{key(5)}, Punched: yes(7, time.Hour)},
			p2p.Reach{Verdict: market.ReachRelayed, CheckedAt: now, Witnesses: []attest.Key{key(5)}, Relays: []attest.Key{key(5)}},
		},
		{
			"punched, and nobody introduces", p2p.Evidence{Own: own, Met: ago(time.Hour), Punched: yes(7, time.Minute)},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: now},
		},
		{
			"direct on a lan", p2p.Evidence{LAN: true, Own: own, Met: ago(time.Minute), Inbound: yes(8, time.Second)},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(8)}},
		},
		{
			"found by dialling, all failed before a neighbour came", p2p.Evidence{LAN: true, Own: []string{near}, Met: ago(time.Hour), Inbound: yes(8, time.Second), Lasts: true,
				Found: found{near: {no(1, time.Minute)}}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(8)}, Failed: []string{near}},
		},
		{
			"a neighbour's connection does not outlast failures", p2p.Evidence{LAN: true, Own: []string{near}, Met: ago(time.Hour), Inbound: yes(8, time.Minute), Lasts: true,
				Found: found{near: {no(1, time.Second)}}},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(1)}, Failed: []string{near}},
		},
		{
			"a neighbour's connection of long ago that lasts", p2p.Evidence{LAN: true, Own: []string{near}, Met: ago(9 * time.Hour), Inbound: yes(8, 8*time.Hour), Lasts: true},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(8 * time.Hour), Witnesses: []attest.Key{key(8)}},
		},
		{
			"a neighbour's connection proves nothing to outside peers", p2p.Evidence{LAN: true, Outside: true, Own: own, Met: ago(time.Minute), Inbound: yes(8, time.Second), Lasts: true},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: now},
		},
		{
			"a neighbour's dial-back proves nothing to outside peers", p2p.Evidence{LAN: true, Outside: true, Own: []string{near, quic}, Met: ago(time.Minute), Relays: []attest.Key{key(5)},
				Found: found{near: {yes(8, time.Second)}, quic: {no(1, time.Second)}}},
			p2p.Reach{
				Verdict: market.ReachRelayed, CheckedAt: now, Witnesses: []attest.Key{key(5)}, Relays: []attest.Key{key(5)}, Worked: []string{near}, Failed: []string{quic},
			},
		},
		{
			"without outside peers it does", p2p.Evidence{LAN: true, Own: []string{near, quic}, Met: ago(time.Minute),
				Found: found{near: {yes(8, time.Second)}, quic: {no(1, time.Second)}}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(8)}, Worked: []string{near}, Failed: []string{quic}},
		},
		{
			"a failure at a neighbour's does not count with outside peers", p2p.Evidence{LAN: true, Outside: true, Own: []string{near, quic}, Met: ago(30 * time.Second),
				Found: found{near: {no(8, time.Second)}}},
			p2p.Reach{Failed: []string{near}},
		},
		{
			"liars of one place", p2p.Evidence{Own: []string{quic}, Met: ago(time.Hour), Servers: 7, Ranges: 3, Found: found{
				quic: {yes(1, 11*time.Minute), no(2, 5*time.Second), no(3, 4*time.Second), no(4, 3*time.Second), no(5, 2*time.Second), no(6, time.Second)},
			}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(11 * time.Minute), Witnesses: []attest.Key{key(1)}, Worked: []string{quic}},
		},
		{
			"any number of liars cannot push out a success", p2p.Evidence{Own: []string{quic}, Met: ago(time.Hour), Servers: 30, Ranges: 30, Found: found{
				quic: append([]p2p.Finding{yes(1, 9*time.Minute)}, liars(now, 20)...),
			}},
			p2p.Reach{Verdict: market.ReachDirect, CheckedAt: ago(9 * time.Minute), Witnesses: []attest.Key{key(1)}, Worked: []string{quic}},
		},
		{
			"a burst of losses makes older successes weigh less", p2p.Evidence{Own: []string{quic}, Met: ago(time.Hour), Servers: 7, Ranges: 3, Doubt: ago(time.Minute), Found: found{
				quic: append([]p2p.Finding{yes(1, 9*time.Minute)}, liars(now, 3)...),
			}},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: ago(time.Second), Witnesses: []attest.Key{key(102), key(101), key(100)}, Failed: []string{quic}},
		},
		{
			"one failure of an address that nobody has dialled, with more to ask", p2p.Evidence{Own: []string{quic}, Met: ago(30 * time.Second), Servers: 7, Ranges: 3, Found: found{
				quic: {no(2, time.Second)},
			}},
			p2p.Reach{},
		},
		{
			"inbound proves nothing on a public network", p2p.Evidence{Own: own, Met: ago(time.Minute), Inbound: yes(8, time.Second)},
			p2p.Reach{Verdict: market.ReachNone, CheckedAt: now},
		},
		{
			"taken for granted", p2p.Evidence{Forced: market.ReachRelayed, Own: own, Found: found{quic: {yes(1, time.Second)}}},
			p2p.Reach{Verdict: market.ReachRelayed, CheckedAt: now, Worked: []string{quic}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, p2p.Judge(tt.e, now)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWitnessesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	found := make(map[string][]p2p.Finding)
	var own []string
	for a := range byte(4) {
		addr := "/ip4/9.9.9." + string('0'+a) + "/tcp/4711"
		own = append(own, addr)
		for i := range byte(20) {
			found[addr] = append(found[addr], p2p.Finding{By: key(20*a + i), At: now, OK: true})
		}
	}
	if r := p2p.Judge(p2p.Evidence{Own: own, Found: found, Met: now}, now); len(r.Witnesses) != 8 {
		t.Errorf("%d witnesses, want the 8 of the limit", len(r.Witnesses))
	}
}

func TestDue(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f := func(ok bool, d time.Duration) p2p.Finding { return p2p.Finding{At: now.Add(-d), OK: ok} }
	for _, tt := range []struct {
		name    string
		found   []p2p.Finding
		servers int
		want    time.Duration // from now
	}{
		{"never asked", nil, 1, 0},
		{"worked", []p2p.Finding{f(true, time.Minute)}, 3, 4 * time.Minute},
		{"worked and then failed", []p2p.Finding{f(true, time.Minute), f(false, time.Second)}, 3, 9 * time.Second},
		{"failed with one, two more to ask", []p2p.Finding{f(false, time.Second)}, 3, 0},
		{"failed with the only one", []p2p.Finding{f(false, time.Second)}, 1, 5*time.Minute - time.Second},
		{"failed with three", []p2p.Finding{f(false, 3*time.Second), f(false, 2*time.Second), f(false, time.Second)}, 3, 5*time.Minute - time.Second},
		{"failed with three, more to ask", []p2p.Finding{f(false, 3*time.Second), f(false, 2*time.Second), f(false, time.Second)}, 9, 29 * time.Second},
		{"failed often after it worked", append([]p2p.Finding{f(true, time.Minute)}, liars(now, 4)...), 9, time.Minute - time.Second},
		{"all forgotten", []p2p.Finding{f(true, 2*time.Hour)}, 3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := p2p.Due(tt.found, now, tt.servers, 1).Sub(now); d != tt.want {
				t.Errorf("due in %v, want %v", d, tt.want)
			}
		})
	}
}

func TestSightings(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	listen := []string{"/ip4/0.0.0.0/tcp/4711", "/ip4/0.0.0.0/udp/4711/quic-v1", "/ip4/0.0.0.0/tcp/8080/ws"}
	var s p2p.Sightings
	for _, tt := range []struct {
		name, local, seen string
		by                byte
		want              bool
	}{
		{"quic", "/ip4/192.168.1.5/udp/4711/quic-v1", "/ip4/9.9.9.9/udp/40001/quic-v1", 1, true},
		{"quic again", "/ip4/192.168.1.5/udp/4711/quic-v1", "/ip4/9.9.9.9/udp/40001/quic-v1", 1, false},
		{"quic, by another", "/ip4/192.168.1.5/udp/4711/quic-v1", "/ip4/9.9.9.9/udp/40001/quic-v1", 2, true},
		{"quic at another port", "/ip4/192.168.1.5/udp/4711/quic-v1", "/ip4/9.9.9.9/udp/40002/quic-v1", 3, true},
		{"tcp", "/ip4/192.168.1.5/tcp/4711", "/ip4/9.9.9.9/tcp/40003", 1, true},
		{"from no listener", "/ip4/192.168.1.5/tcp/51234", "/ip4/9.9.9.9/tcp/40004", 1, false},
		{"from another family", "/ip6/2a00::1/tcp/4711", "/ip6/2a00::1/tcp/4711", 1, false},
		{"wrong kind", "/ip4/192.168.1.5/tcp/4711", "/ip4/9.9.9.9/udp/40005/quic-v1", 1, false},
		{"loopback", "/ip4/127.0.0.1/tcp/4711", "/ip4/127.0.0.1/tcp/4711", 1, false},
		{"no port", "/ip4/192.168.1.5/tcp/4711", "/ip4/9.9.9.9", 1, false},
	} {
		if got := s.Note(listen, tt.local, tt.seen, key(tt.by), now); got != tt.want {
			t.Errorf("%s: noted %v, want %v", tt.name, got, tt.want)
		}
	}
	want := []string{"/ip4/9.9.9.9/udp/40001/quic-v1", "/ip4/9.9.9.9/tcp/40003", "/ip4/9.9.9.9/udp/40002/quic-v1"}
	got := s.Addrs(now)
	if slices.Sort(got[1:]); got[0] != want[0] || len(got) != 3 {
		t.Errorf("addresses %v, want %v", got, want)
	}
	for i := range byte(100) { // a symmetric NAT
		s.Note(listen, "/ip4/192.168.1.5/tcp/4711", "/ip4/9.9.9.9/tcp/5"+string('0'+i/10)+string('0'+i%10)+"0", key(i), now)
	}
	if n := len(s.Addrs(now)); n > 6 {
		t.Errorf("%d addresses of a peer that every other one sees elsewhere, want 3 of a kind", n)
	}
	if got := s.Addrs(now.Add(30 * time.Minute)); len(got) != 0 {
		t.Errorf("after half an hour: %v", got)
	}
}

func TestBudget(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 30, 0, 0, time.UTC)
	b := p2p.NewBudget(100)
	for _, tt := range []struct {
		name string
		at   time.Duration
		n    uint64
		left uint64
	}{
		{"first", 0, 60, 40},
		{"an hour later", time.Hour, 30, 10},
		{"over", time.Hour, 30, 0},
		{"the clock is set back", -5 * time.Hour, 0, 0},
		{"23 hours later", 23 * time.Hour, 0, 0},
		{"the first hour is forgotten", 24 * time.Hour, 0, 40},
		{"all are", 48 * time.Hour, 0, 100},
		{"far too much", 48 * time.Hour, 1 << 60, 0},
	} {
		if left := b.Spend(now.Add(tt.at), tt.n); left != tt.left {
			t.Errorf("%s: %d bytes left, want %d", tt.name, left, tt.left)
		}
	}
}
