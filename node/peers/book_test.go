package peers_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/peers"
	"github.com/lacuna-network/lacuna/p2p"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func key(i int) attest.Key { return attest.Key{1, byte(i), byte(i >> 8)} }

func peer(i int, addrs ...string) p2p.InvitePeer {
	if len(addrs) == 0 {
		addrs = []string{"/ip4/192.0.2.1/tcp/1"}
	}
	return p2p.InvitePeer{Key: key(i), Addrs: addrs}
}

func keys(list []p2p.InvitePeer) []attest.Key {
	var out []attest.Key
	for _, p := range list {
		out = append(out, p.Key)
	}
	return out
}

func TestBackOffGrowsAndNeverEnds(t *testing.T) {
	b := peers.NewBook(key(0))
	b.Add(peer(1), true)
	now := start
	var waits []time.Duration
	for range 40 {
		if len(b.Due(now, 8)) != 1 {
			t.Fatalf("after %v the peer may not be tried", waits)
		}
		wait := b.Failed(key(1), now)
		if len(b.Due(now.Add(wait-1), 8)) != 0 {
			t.Fatalf("it may be tried before %v are over", wait)
		}
		now = now.Add(wait)
		waits = append(waits, wait)
	}
	s := time.Second
	want := []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 120 * s, 120 * s}
	if diff := cmp.Diff(want, waits[:len(want)]); diff != "" {
		t.Errorf("waits differ (-want +got):\n%s", diff)
	}
	if last := waits[len(waits)-1]; last != 2*time.Minute {
		t.Errorf("the last wait is %v, want 2m", last)
	}
	b.Failed(key(1), now)
	b.Forgive()
	if len(b.Due(now, 8)) != 1 {
		t.Error("after a change of networks it may not be tried at once")
	}
	if wait := b.Failed(key(1), now); wait != 2*s {
		t.Errorf("the first wait after a change is %v, want 2s", wait)
	}
}

func TestOneBadPeerHoldsUpNoOther(t *testing.T) {
	b := peers.NewBook(key(0))
	b.Add(peer(1), true)
	b.Add(peer(2), true)
	for range 5 {
		b.Failed(key(1), start)
	}
	if diff := cmp.Diff([]attest.Key{key(2)}, keys(b.Due(start, 8))); diff != "" {
		t.Errorf("due differs (-want +got):\n%s", diff)
	}
}

func TestBestFirst(t *testing.T) {
	b := peers.NewBook(key(0))
	day := func(n int) time.Time { return start.AddDate(0, 0, n-10) }
	b.Add(peer(1), false) // hearsay
	b.Add(peer(2), true)  // the owner's
	b.Load([]home.KnownPeer{
		{Peer: key(3), Addrs: []string{"/ip4/192.0.2.3/tcp/1"}, SeenAt: day(9)},
		{Peer: key(4), Addrs: []string{"/ip4/192.0.2.4/tcp/1"}, SeenAt: day(8)},
		{Peer: key(5), Addrs: []string{"/ip4/192.0.2.5/tcp/1"}, SeenAt: day(5), DialedAt: day(5)},
		{Peer: key(6), Addrs: []string{"/ip4/192.0.2.6/tcp/1"}, SeenAt: day(7), DialedAt: day(4)},
		{Peer: key(7), Addrs: []string{"/ip4/192.0.2.7/tcp/1"}, SeenAt: day(9), DialedAt: day(9)},
		{Peer: key(0), Addrs: []string{"/ip4/192.0.2.8/tcp/1"}, SeenAt: day(9), DialedAt: day(9)}, // this peer itself
	})
	b.Failed(key(7), start.Add(-time.Hour))
	want := []attest.Key{key(5), key(6), key(2), key(3), key(4), key(1), key(7)}
	if diff := cmp.Diff(want, keys(b.Due(start, 8))); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:2], keys(b.Due(start, 2))); diff != "" {
		t.Errorf("the first two differ (-want +got):\n%s", diff)
	}
}

func TestConnectedPeersAreNotDue(t *testing.T) {
	b := peers.NewBook(key(0))
	info := p2p.PeerInfo{Key: key(1), Addr: "/ip4/192.0.2.9/tcp/9", Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}
	if !b.Met(info, true, start) {
		t.Error("a peer met for the first time is not new")
	}
	if b.Met(info, true, start) {
		t.Error("the same peer is new again")
	}
	if due := b.Due(start, 8); len(due) != 0 {
		t.Errorf("due: %v, want nobody", keys(due))
	}
	b.Lost()
	want := []p2p.InvitePeer{peer(1, "/ip4/192.0.2.9/tcp/9", "/ip4/192.0.2.1/tcp/1")}
	if diff := cmp.Diff(want, b.Due(start, 8)); diff != "" {
		t.Errorf("a lost peer: due differs (-want +got):\n%s", diff)
	}
	kept := []home.KnownPeer{{Peer: key(1), Addrs: want[0].Addrs, SeenAt: start, DialedAt: start}}
	if diff := cmp.Diff(kept, b.List()); diff != "" {
		t.Errorf("kept differs (-want +got):\n%s", diff)
	}
}

func TestHearsayChangesNothingThatWorks(t *testing.T) {
	b := peers.NewBook(key(0))
	b.Met(p2p.PeerInfo{Key: key(1), Addr: "/ip4/192.0.2.1/tcp/1"}, true, start)
	b.Lost()
	b.Add(peer(1, "/ip4/192.0.2.66/tcp/6"), false)
	if got := b.Due(start, 8)[0].Addrs; !cmp.Equal(got, []string{"/ip4/192.0.2.1/tcp/1"}) {
		t.Errorf("addresses are %v after hearsay about a peer that was dialled", got)
	}
	b.Failed(key(1), start)
	b.Add(peer(1, "/ip4/192.0.2.2/tcp/2"), false)
	if got := b.Due(start.Add(time.Minute), 8)[0].Addrs; !cmp.Equal(got, []string{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.2/tcp/2"}) {
		t.Errorf("addresses are %v after hearsay about a peer that does not answer", got)
	}
	for i := range 100 {
		b.Add(peer(1, "/ip4/192.0.2.3/tcp/"+string(rune('0'+i%10))), false)
	}
	if got := b.Due(start.Add(time.Minute), 8)[0].Addrs; len(got) > 8 {
		t.Errorf("%d addresses of one peer are kept, want at most 8", len(got))
	}
}

func TestAFloodOfStrangersPushesOutNobody(t *testing.T) {
	b := peers.NewBook(key(0))
	b.Met(p2p.PeerInfo{Key: key(1), Addr: "/ip4/192.0.2.1/tcp/1"}, true, start)
	b.Lost()
	for i := range 5000 {
		b.Add(peer(100+i), false)
	}
	if b.Len() != peers.MaxBook {
		t.Errorf("%d peers are known, want %d", b.Len(), peers.MaxBook)
	}
	if due := b.Due(start, 1); len(due) != 1 || due[0].Key != key(1) {
		t.Errorf("first to dial is %v, want the peer that was met", keys(due))
	}
	if !b.Add(peer(2), true) {
		t.Error("there is no room for the owner's own list")
	}
	b.Failed(key(100), start) // a stranger who does not answer makes room for the next
	if !b.Add(peer(3), false) {
		t.Error("there is no room though a stranger did not answer")
	}
	if b.Len() != peers.MaxBook+1 {
		t.Errorf("%d peers are known, want %d", b.Len(), peers.MaxBook+1)
	}
}
