package hello

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// queue holds whom to greet next. A peer is in it once, and stays in it until it was greeted: two statements under way
// could overtake each other, and the second to come would be taken for a replay.
type queue struct {
	keys []attest.Key
	in   map[attest.Key]bool // waiting or being greeted
}

// connected is called by the library for each new connection.
func (s *Service) connected(_ network.Network, c network.Conn) {
	if key, err := p2p.KeyOf(c.RemotePeer()); err == nil {
		s.enqueue(key, false)
	}
}

// enqueue notes that the peer is to be greeted, before all others if urgent. A full queue leaves it out.
func (s *Service) enqueue(key attest.Key, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.in[key] || len(s.queue.keys) >= maxQueue {
		return
	}
	if s.queue.in == nil {
		s.queue.in = make(map[attest.Key]bool)
	}
	s.queue.in[key] = true
	if urgent {
		s.queue.keys = slices.Insert(s.queue.keys, 0, key)
	} else {
		s.queue.keys = append(s.queue.keys, key)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Service) dequeue() (attest.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue.keys) == 0 {
		return attest.Key{}, false
	}
	key := s.queue.keys[0]
	s.queue.keys = s.queue.keys[1:]
	return key, true
}

// greeted takes the peer out of the queue for good.
func (s *Service) greeted(key attest.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queue.in, key)
}

// connectedKeys returns the connected peers.
func (s *Service) connectedKeys() []attest.Key {
	var out []attest.Key
	for _, id := range s.host.Libp2p().Network().Peers() {
		if key, err := p2p.KeyOf(id); err == nil {
			out = append(out, key)
		}
	}
	return out
}

// round forgets what is old, looks at the clock, and queues peers to greet: everybody, or a few. A peer with hundreds of
// connections must not greet all of them each minute. The few are those nearest to this peer's key in the space of the
// DHT, which two processes under one key have in common, and those who were greeted longest ago, so that everybody's
// turn comes and no one who picks its key well is all that this peer hears.
func (s *Service) round(all bool) {
	keys := s.connectedKeys()
	now := time.Now()
	s.mu.Lock()
	s.peers.sweep(now, s.host.Connected)
	s.watch.sweep(now)
	s.hints.sweep(now)
	if !all {
		keys = s.regulars(keys)
	}
	s.mu.Unlock()
	s.reviewClock()
	for i := len(keys) - 1; i >= 0; i-- {
		s.enqueue(keys[i], !all)
	}
}

// regulars picks the peers of a round.
func (s *Service) regulars(keys []attest.Key) []attest.Key {
	if len(keys) <= roundNearest+roundOldest {
		return keys
	}
	own := dhtKey(s.host.Key())
	distance := make(map[attest.Key][sha256.Size]byte, len(keys))
	for _, key := range keys {
		d := dhtKey(key)
		for i := range d {
			d[i] ^= own[i]
		}
		distance[key] = d
	}
	slices.SortFunc(keys, func(a, b attest.Key) int {
		da, db := distance[a], distance[b]
		return bytes.Compare(da[:], db[:])
	})
	rest := keys[roundNearest:]
	slices.SortStableFunc(rest, func(a, b attest.Key) int {
		return s.peers.greeted(a).Compare(s.peers.greeted(b))
	})
	return keys[:roundNearest+roundOldest]
}

// dhtKey returns where the DHT places a peer.
func dhtKey(key attest.Key) [sha256.Size]byte { return sha256.Sum256([]byte(p2p.PeerID(key))) }
