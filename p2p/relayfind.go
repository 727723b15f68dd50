package p2p

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	ma "github.com/multiformats/go-multiaddr"
)

// How a peer looks for relays. The library's own numbers (3 min before the first, an hour after a refusal, 4 candidates)
// are for a network of a hundred thousand relays.
const (
	relaysWanted   = 2
	relayMeet      = 2 * time.Second  // waits for a second candidate before it takes the first
	relayRefusal   = time.Minute      // before the same relay is asked again
	relayLook      = 15 * time.Second // between two looks for candidates
	relayCandidate = 16
	relayForget    = 10 * time.Minute // of a candidate
	relayKnown     = 16               // relays remembered after the connection has ended
	relayKnownLife = 24 * time.Hour
	relayAwayMost  = 2 * time.Minute // between two attempts to reach one that is away; sooner at first
)

// relayFinder names peers that may relay for this one.
type relayFinder struct {
	host    host.Host
	network string
	outside func(ma.Multiaddr) bool // whether a peer at that address is beyond this peer's LANs
	known   map[peer.ID]knownRelay  // used by one goroutine of the library at a time
}

// knownRelay is a peer that relayed when it was last connected. The library forgets what a peer spoke a minute after it
// has gone, and a relay that restarts is away for longer.
type knownRelay struct {
	addrs []ma.Multiaddr
	rank  int
	seen  time.Time
	next  time.Time // when it is tried again, if it is away
}

func (f *relayFinder) options() []autorelay.Option {
	return []autorelay.Option{
		autorelay.WithPeerSource(f.candidates), autorelay.WithNumRelays(relaysWanted), autorelay.WithBootDelay(relayMeet),
		autorelay.WithBackoff(relayRefusal), autorelay.WithMinInterval(relayLook), autorelay.WithMinCandidates(relaysWanted),
		autorelay.WithMaxCandidates(relayCandidate), autorelay.WithMaxCandidateAge(relayForget),
	}
}

// candidates names connected peers that relay, and then those known from before. The library picks at random from what
// it gets, so relays that let bulk data pass come alone while this peer has no place at one, or if there are enough.
func (f *relayFinder) candidates(_ context.Context, n int) <-chan peer.AddrInfo {
	found := f.look(f.host, time.Now())
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.rank, a.rank) })
	bulk := slices.IndexFunc(found, func(c candidate) bool { return c.rank < rankBulk })
	if bulk < 0 {
		bulk = len(found)
	}
	held := relaysOf(f.host.Addrs())
	lacking := bulk > 0 && !slices.ContainsFunc(found[:bulk], func(c candidate) bool { return slices.Contains(held, c.info.ID) })
	if lacking || bulk >= relaysWanted {
		found = found[:bulk]
	}
	found = found[:min(len(found), n)]
	out := make(chan peer.AddrInfo, len(found))
	defer close(out)
	for _, c := range found {
		out <- c.info
	}
	return out
}

type candidate struct {
	info peer.AddrInfo
	rank int
}

const (
	rankKnown     = iota // not connected
	rankConnected        // straight
	rankBulk             // straight, and lets bulk data pass
)

// look returns connected relays, and those that are remembered; with peers beyond the LANs, none that only neighbours can
// dial.
func (f *relayFinder) look(h host.Host, now time.Time) []candidate {
	var out []candidate
	store := h.Peerstore()
	beyond := slices.ContainsFunc(h.Network().Conns(), func(c network.Conn) bool { return f.outside(c.RemoteMultiaddr()) })
	for _, c := range h.Network().Conns() {
		id := c.RemotePeer()
		spoken, err := store.SupportsProtocols(id, proto.ProtoIDv2Hop, bulkRelayID(f.network))
		if err != nil || !slices.Contains(spoken, proto.ProtoIDv2Hop) || circuit(c.RemoteMultiaddr()) {
			continue
		}
		rank := rankConnected
		if len(spoken) > 1 {
			rank = rankBulk
		}
		f.remember(id, knownRelay{addrs: slices.DeleteFunc(store.Addrs(id), circuit), rank: rank, seen: now})
	}
	for id, k := range f.known {
		switch {
		case now.Sub(k.seen) >= relayKnownLife:
			delete(f.known, id)
		case beyond && !slices.ContainsFunc(k.addrs, global): // a neighbour, whom nobody else can dial either
		case k.seen.Equal(now):
			out = append(out, candidate{peer.AddrInfo{ID: id, Addrs: k.addrs}, k.rank})
		case h.Network().Connectedness(id) == network.NotConnected && len(k.addrs) > 0 && !now.Before(k.next):
			k.next = now.Add(min(relayAwayMost, now.Sub(k.seen)/4))
			f.known[id] = k
			if s, ok := h.Network().(*swarm.Swarm); ok {
				s.Backoff().Clear(id) // or the library waits for up to five minutes by itself
			}
			out = append(out, candidate{peer.AddrInfo{ID: id, Addrs: k.addrs}, rankKnown})
		}
	}
	return out
}

// remember keeps a relay; when there are too many, the one that was away for longest is forgotten.
func (f *relayFinder) remember(id peer.ID, k knownRelay) {
	if f.known == nil {
		f.known = make(map[peer.ID]knownRelay)
	}
	f.known[id] = k
	if len(f.known) <= relayKnown {
		return
	}
	oldest := id
	for other, o := range f.known {
		if o.seen.Before(f.known[oldest].seen) {
			oldest = other
		}
	}
	delete(f.known, oldest)
}

// relaysOf returns which peers relay to these circuit addresses, each once.
func relaysOf(addrs []ma.Multiaddr) []peer.ID {
	var out []peer.ID
	for _, m := range addrs {
		if id, ok := relayOf(m); ok && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// relayOf returns the relay of a circuit address.
func relayOf(m ma.Multiaddr) (peer.ID, bool) {
	if !circuit(m) {
		return "", false
	}
	head, _ := ma.SplitFunc(m, func(c ma.Component) bool { return c.Protocol().Code == ma.P_CIRCUIT })
	id, err := peer.IDFromP2PAddr(head)
	return id, err == nil
}
