package p2p

import (
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// puncher decides which addresses are punched, and hears how it went. It is made before the host is.
type puncher struct {
	lan  bool
	seen *sightings
	won  func(peer.ID) // called for each hole punch that succeeded; must not block
}

// Trace hears the library's events.
func (p *puncher) Trace(e *holepunch.Event) {
	if end, ok := e.Evt.(*holepunch.EndHolePunchEvt); ok && end.Success {
		p.won(e.Remote)
	}
}

// FilterLocal returns the own addresses that the other should punch: QUIC and bare TCP, and also those which only a
// look out has shown.
func (p *puncher) FilterLocal(_ peer.ID, addrs []ma.Multiaddr) []ma.Multiaddr {
	return p.good(slices.Concat(addrs, p.seen.addrs(time.Now())))
}

// FilterRemote returns which of the other's addresses are punched. It may name any, also of computers in this LAN.
func (p *puncher) FilterRemote(_ peer.ID, addrs []ma.Multiaddr) []ma.Multiaddr { return p.good(addrs) }

func (p *puncher) good(addrs []ma.Multiaddr) []ma.Multiaddr {
	out := slices.DeleteFunc(ma.Unique(slices.Clone(addrs)), func(m ma.Multiaddr) bool {
		return len(m) < 2 || circuit(m) || local(m) || !p.lan && !manet.IsPublicAddr(m) || kindOf(m) != kindQUIC && kindOf(m) != kindTCP
	})
	return out[:min(len(out), maxPunched)]
}

const maxPunched = 8 // addresses of one peer
