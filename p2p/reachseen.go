package p2p

import (
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	seenLife    = 30 * time.Minute // of what a peer said it sees; a router forgets a port sooner or later
	maxSeen     = 32               // such statements kept
	maxSeenKind = 3                // own addresses made of them, of TCP and of UDP each: a symmetric NAT shows another port to each peer
)

// sighting is an own address as another peer sees it.
type sighting struct {
	addr ma.Multiaddr // with everything after the port that the own listener has
	by   peer.ID
	at   time.Time
}

// sightings remembers how others see this peer. A router maps TCP and UDP separately, so both kinds have to be seen
// before holes can be punched in both.
type sightings struct {
	mu  sync.Mutex
	all []sighting // newest last
}

// note keeps that by sees the connection from local as seen. Connections that do not come from a listener's port say
// nothing about it.
func (s *sightings) note(listeners []ma.Multiaddr, local, seen ma.Multiaddr, by peer.ID, now time.Time) bool {
	if local == nil || len(seen) < 2 || circuit(seen) || manet.IsIPLoopback(seen) {
		return false
	}
	listener := listenerOf(listeners, local)
	if listener == nil || isUDP(listener) != isUDP(seen) {
		return false
	}
	addr := ma.Join(slices.Clone(seen[:2]), slices.Clone(listener[2:]))
	s.mu.Lock()
	defer s.mu.Unlock()
	known := slices.IndexFunc(s.all, func(o sighting) bool { return o.by == by && o.addr.Equal(addr) })
	if known >= 0 {
		s.all = slices.Delete(s.all, known, known+1)
	}
	s.all = append(s.all, sighting{addr, by, now})
	s.all = s.all[max(0, len(s.all)-maxSeen):]
	return known < 0
}

// listenerOf returns the listen address whose port a connection comes from, nil if there is none. TCP listeners are
// bare; those of WebSocket share their port.
func listenerOf(listeners []ma.Multiaddr, local ma.Multiaddr) ma.Multiaddr {
	port := func(m ma.Multiaddr) string {
		if len(m) < 2 || (m[1].Code() != ma.P_TCP && m[1].Code() != ma.P_UDP) {
			return ""
		}
		return m[0].Protocol().Name + m[1].String()
	}
	want := port(local)
	var found ma.Multiaddr
	for _, l := range listeners {
		if want != "" && port(l) == want && (found == nil || len(l) < len(found)) {
			found = l
		}
	}
	return found
}

// addrs returns own addresses, those that most peers see first, and of each kind no more than maxSeenKind.
func (s *sightings) addrs(now time.Time) []ma.Multiaddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	votes := make(map[string]int)
	var out []ma.Multiaddr
	for _, o := range slices.Backward(s.all) {
		if now.Sub(o.at) >= seenLife {
			continue
		}
		if votes[o.addr.String()]++; votes[o.addr.String()] == 1 {
			out = append(out, o.addr)
		}
	}
	slices.SortStableFunc(out, func(a, b ma.Multiaddr) int { return votes[b.String()] - votes[a.String()] })
	left := map[bool]int{true: maxSeenKind, false: maxSeenKind}
	return slices.DeleteFunc(out, func(m ma.Multiaddr) bool {
		left[isUDP(m)]--
		return left[isUDP(m)] < 0
	})
}

func (s *sightings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}
