package find

import (
	"time"

	kbucket "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// The messages, for tests that speak the protocols themselves.
type (
	PutRequest = putRequest
	PutAnswer  = putAnswer
	GetRequest = getRequest
	Page       = page
)

// MaxPage is how many asks one answer has at most.
const MaxPage = maxPage

// Note notes the sequences one after another and returns the verdicts.
func Note(key attest.Key, seqs []uint64, expires int64, now time.Time) []bool {
	m := newMemory()
	var out []bool
	for _, s := range seqs {
		out = append(out, m.note(key, s, expires, now))
	}
	return out
}

// Know puts peers into the routing table as if they had been met, without a connection.
func (f *Finder) Know(others []*Finder) {
	for _, o := range others {
		h := o.host.Libp2p()
		if h.ID() == f.host.Libp2p().ID() {
			continue
		}
		if ok, err := f.dht.RoutingTable().TryAddPeer(h.ID(), true, false); ok && err == nil {
			f.host.Libp2p().Peerstore().AddAddrs(h.ID(), h.Addrs(), peerstore.PermanentAddrTTL)
		}
	}
}

// Keep files an ask at the finders that publishing would bring it to, if all know all.
func Keep(finders []*Finder, a market.Ask, e attest.Envelope) {
	byID := make(map[peer.ID]*Finder)
	var ids []peer.ID
	for _, f := range finders {
		id := f.host.Libp2p().ID()
		byID[id] = f
		ids = append(ids, id)
	}
	for _, key := range keysOf(a) {
		near := kbucket.SortClosestPeers(ids, kbucket.ConvertKey(key))
		for _, id := range near[:min(storing, len(near))] {
			_ = byID[id].store.add(a, e, "192.0.2.0/24", time.Now())
		}
	}
}

// Nearest returns those of the finders that keep the asks of a class in a place, nearest first.
func Nearest(finders []*Finder, class, place string) []*Finder {
	byID := make(map[peer.ID]*Finder)
	var ids []peer.ID
	for _, f := range finders {
		byID[f.host.Libp2p().ID()] = f
		ids = append(ids, f.host.Libp2p().ID())
	}
	var out []*Finder
	for _, id := range kbucket.SortClosestPeers(ids, kbucket.ConvertKey(bucket{class, place}.key())) {
		out = append(out, byID[id])
	}
	return out[:min(storing, len(out))]
}

// Store is what a peer keeps.
type Store struct{ s *store }

// NewStore returns an empty store.
func NewStore(limit int) Store { return Store{newStore(limit)} }

// Add keeps an ask.
func (s Store) Add(a market.Ask, e attest.Envelope, group string, now time.Time) error {
	return s.s.add(a, e, group, now)
}

// Find returns the providers of up to n asks that match.
func (s Store) Find(n int, q Query, now time.Time) []attest.Key {
	var out []attest.Key
	for _, k := range s.s.find(n, q, now, getRequest{Classes: q.Classes, Places: q.Places}.wants(nil)) {
		out = append(out, k.ask.Provider)
	}
	return out
}

// Size returns how many asks are kept, with those that expired.
func (s Store) Size() int { return s.s.size() }

// ErrOlder and ErrFull are why an ask is not kept.
var (
	ErrOlder = errOlder
	ErrFull  = errFull
)
