package peers

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

const (
	maxBook   = home.MaxPeers + 56 // in memory; the owner's own list comes on top
	maxAddrs  = 8                  // of one peer
	backFirst = 2 * time.Second    // after the first failure; doubles up to backMost
	backMost  = 2 * time.Minute
)

// entry is a peer that could be dialled.
type entry struct {
	p2p.InvitePeer
	config    bool      // the owner named it
	seen      time.Time // last connected; zero = never
	dialed    time.Time // last reached by dialling it straight; zero = never
	connected bool      // as of the last look
	failures  int       // in a row
	notBefore time.Time // of the next try
}

// book is who is known and when each may be tried again. It reads no clock.
type book struct {
	self    attest.Key
	entries map[attest.Key]*entry
}

func newBook(self attest.Key) *book { return &book{self: self, entries: map[attest.Key]*entry{}} }

// load takes in what the last run has kept.
func (b *book) load(known []home.KnownPeer) {
	for _, p := range known {
		if e := b.add(p2p.InvitePeer{Key: p.Peer, Addrs: p.Addrs}, false); e != nil {
			e.seen, e.dialed = p.SeenAt, p.DialedAt
		}
	}
}

// add makes a peer known by what others say, and returns it, nil if it was refused. Hearsay never replaces an address
// that has worked, and never pushes out a peer that was met.
func (b *book) add(p p2p.InvitePeer, config bool) *entry {
	if p.Key == b.self || p.Key.IsZero() || len(p.Addrs) == 0 {
		return nil
	}
	e := b.entries[p.Key]
	switch {
	case e == nil:
		if !config && !b.room() {
			return nil
		}
		e = &entry{InvitePeer: p2p.InvitePeer{Key: p.Key}}
		b.entries[p.Key] = e
	case e.failures == 0 && !config && (e.connected || !e.dialed.IsZero()):
		return e
	}
	e.config = e.config || config
	for _, a := range p.Addrs {
		if !slices.Contains(e.Addrs, a) && len(e.Addrs) < maxAddrs {
			e.Addrs = append(e.Addrs, a)
		}
	}
	return e
}

// room makes room for one more by forgetting the peer that is least worth it, and reports whether there is any.
func (b *book) room() bool {
	if len(b.entries) < maxBook {
		return true
	}
	var worst *entry
	for _, e := range b.entries {
		if !e.config && !e.connected && e.failures > 0 && (worst == nil || better(worst, e) < 0) {
			worst = e
		}
	}
	if worst == nil {
		return false
	}
	delete(b.entries, worst.Key)
	return true
}

// look forgets who is connected, before the connections are told one by one.
func (b *book) look() {
	for _, e := range b.entries {
		e.connected = false
	}
}

// met notes a connected peer, with the addresses it gives itself, and reports whether it is new or dialled for the first
// time.
func (b *book) met(p p2p.PeerInfo, dialed bool, now time.Time) bool {
	addrs := slices.Clone(p.Addrs)
	if dialed {
		addrs = append([]string{p.Addr}, slices.DeleteFunc(addrs, func(a string) bool { return a == p.Addr })...)
	}
	addrs = addrs[:min(len(addrs), maxAddrs)]
	e := b.entries[p.Key]
	if e == nil {
		if p.Key == b.self || len(addrs) == 0 || !b.room() {
			return false
		}
		e = &entry{InvitePeer: p2p.InvitePeer{Key: p.Key}}
		b.entries[p.Key] = e
	}
	fresh := e.seen.IsZero() || dialed && e.dialed.IsZero()
	if len(addrs) > 0 {
		e.Addrs = addrs
	}
	e.seen, e.connected, e.failures, e.notBefore = now, true, 0, time.Time{}
	if dialed {
		e.dialed = now
	}
	return fresh
}

// reached notes that a dial has succeeded; the next look at the connections says the rest.
func (b *book) reached(key attest.Key) {
	if e := b.entries[key]; e != nil {
		e.connected, e.failures, e.notBefore = true, 0, time.Time{}
	}
}

// failed notes a dial without success and returns how long the peer is left alone.
func (b *book) failed(key attest.Key, now time.Time, jitter func(time.Duration) time.Duration) time.Duration {
	e := b.entries[key]
	if e == nil {
		return 0
	}
	wait := jitter(min(backMost, backFirst<<min(e.failures, 10)))
	e.failures++
	e.notBefore = now.Add(wait)
	return wait
}

// forgive lets everybody be tried again at once.
func (b *book) forgive() {
	for _, e := range b.entries {
		e.failures, e.notBefore = 0, time.Time{}
	}
}

// due returns at most n peers that are not connected and may be tried, best first.
func (b *book) due(now time.Time, n int) []p2p.InvitePeer {
	var list []*entry
	for _, e := range b.entries {
		if !e.connected && !e.notBefore.After(now) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, better)
	var out []p2p.InvitePeer
	for _, e := range list[:min(n, len(list))] {
		out = append(out, p2p.InvitePeer{Key: e.Key, Addrs: slices.Clone(e.Addrs)})
	}
	return out
}

// next returns when the first of those who are not connected may be tried; false if there is none.
func (b *book) next() (next time.Time, some bool) {
	for _, e := range b.entries {
		if !e.connected && (!some || e.notBefore.Before(next)) {
			next, some = e.notBefore, true
		}
	}
	return next, some
}

// better puts first who is most likely to answer: who has not failed lately, was dialled lately, was named by the
// owner, was seen lately. The rest is in an order that nobody can choose without choosing a key.
func better(a, b *entry) int {
	first := func(x, y bool) int {
		switch {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(min(a.failures, 4), min(b.failures, 4)), b.dialed.Compare(a.dialed), first(a.config, b.config), b.seen.Compare(a.seen),
		strings.Compare(string(a.Key[:]), string(b.Key[:])))
}

// list returns the peers that were met, for the disk.
func (b *book) list() []home.KnownPeer {
	var out []home.KnownPeer
	for _, e := range b.entries {
		if !e.seen.IsZero() && len(e.Addrs) > 0 {
			out = append(out, home.KnownPeer{Peer: e.Key, Addrs: slices.Clone(e.Addrs), SeenAt: e.seen, DialedAt: e.dialed})
		}
	}
	return out
}
