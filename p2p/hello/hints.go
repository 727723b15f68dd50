package hello

import (
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// Bounds of what others tell of third peers.
const (
	maxSources = 32 // peers whose last list is kept, 8 × 4 addresses each
	maxKnown   = 64
	hintLife   = time.Hour
)

// hints keeps the last list of each source, so that a liar fills its own place only. The zero value is empty.
type hints struct {
	lists []hintList // oldest first
}

type hintList struct {
	source attest.Key
	at     time.Time
	peers  []p2p.InvitePeer
}

func (h *hints) put(source attest.Key, peers []p2p.InvitePeer, now time.Time) {
	h.lists = slices.DeleteFunc(h.lists, func(l hintList) bool { return l.source == source })
	if len(h.lists) >= maxSources {
		h.lists = h.lists[1:]
	}
	h.lists = append(h.lists, hintList{source: source, at: now, peers: peers})
}

func (h *hints) sweep(now time.Time) {
	h.lists = slices.DeleteFunc(h.lists, func(l hintList) bool { return now.Sub(l.at) > hintLife })
}

// known takes one peer of each source in turn, so that no source, nor a few that agree, fills the head of the list.
func (h *hints) known() []p2p.InvitePeer {
	var out []p2p.InvitePeer
	index := make(map[attest.Key]int)
	for turn := range maxTold {
		for i := len(h.lists) - 1; i >= 0; i-- {
			if turn >= len(h.lists[i].peers) {
				continue
			}
			p := h.lists[i].peers[turn]
			at, ok := index[p.Key]
			if !ok {
				if len(out) == maxKnown {
					continue
				}
				at = len(out)
				index[p.Key] = at
				out = append(out, p2p.InvitePeer{Key: p.Key})
			}
			for _, a := range p.Addrs {
				if len(out[at].Addrs) < maxAddrs && !slices.Contains(out[at].Addrs, a) {
					out[at].Addrs = append(out[at].Addrs, a)
				}
			}
		}
	}
	return out
}

// Known returns peers that others call reachable and to which there is no connection, at most 64, for joining. Nothing
// of it is proved: a source that lies costs a dial that fails.
func (s *Service) Known() []p2p.InvitePeer {
	s.mu.Lock()
	s.hints.sweep(time.Now())
	out := s.hints.known()
	s.mu.Unlock()
	return slices.DeleteFunc(out, func(p p2p.InvitePeer) bool {
		return p.Key == s.host.Key() || s.host.Connected(p.Key)
	})
}

// tell picks peers for one that knows few: connected, reachable by their own account, no light ones, from as many
// address ranges as there are.
func (s *Service) tell(asker attest.Key, askerAddr string) []told {
	keys := s.connectedKeys()
	s.mu.Lock()
	keys = slices.DeleteFunc(keys, func(k attest.Key) bool {
		v := s.peers.m[k]
		return k == asker || v == nil || v.met.Reach != market.ReachDirect || v.met.Light
	})
	s.mu.Unlock()
	mathrand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var out, again []told
	ranges := make(map[string]bool)
	for _, key := range keys {
		if len(out) == maxTold || len(out)+len(again) == 8*maxTold { // enough looked at
			break
		}
		t := told{Key: key, Addrs: s.tellable(key, askerAddr)}
		if len(t.Addrs) == 0 {
			continue
		}
		if r := rangeOf(addrText(t.Addrs[0])); ranges[r] {
			again = append(again, t)
		} else {
			ranges[r] = true
			out = append(out, t)
		}
	}
	out = append(out, again...)
	return out[:min(len(out), maxTold)]
}

// tellable returns addresses of a peer that are of use to who sits at askerAddr, public ones first.
func (s *Service) tellable(key attest.Key, askerAddr string) [][]byte {
	var public, private [][]byte
	for _, m := range s.host.Libp2p().Peerstore().Addrs(p2p.PeerID(key)) {
		switch b := m.Bytes(); {
		case len(b) > maxAddr || !useful(m, askerAddr, s.host.Testnet()):
		case !everywhere(m):
			private = append(private, b)
		default:
			public = append(public, b)
		}
	}
	public = append(public, private...)
	return public[:min(len(public), maxAddrs)]
}

// useful reports whether an address of a third peer means the same for both sides of a conversation. Private addresses
// do if the other side has one itself; loopback only where all may share a computer, as on a test network.
func useful(m ma.Multiaddr, otherAddr string, testnet bool) bool {
	for _, c := range m {
		if code := c.Protocol().Code; code == ma.P_CIRCUIT || code == ma.P_P2P {
			return false
		}
	}
	if testnet || everywhere(m) {
		return true
	}
	if ip, ok := ipOf(m.String()); !ok || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast() {
		return false
	}
	other, err := ma.NewMultiaddr(otherAddr)
	return err == nil && !everywhere(other)
}

// everywhere reports an address that works from anywhere, or a name, which its owner keeps right.
func everywhere(m ma.Multiaddr) bool {
	_, isIP := ipOf(m.String())
	return !isIP || manet.IsPublicAddr(m)
}

// heardPeers takes in what an answer tells of other peers.
func (s *Service) heardPeers(source attest.Key, sourceAddr string, list []told) {
	var peers []p2p.InvitePeer
	for _, t := range list {
		p := p2p.InvitePeer{Key: t.Key}
		for _, b := range t.Addrs {
			m, err := ma.NewMultiaddrBytes(b)
			if err != nil {
				continue // Validate has seen to it
			}
			if useful(m, sourceAddr, s.host.Testnet()) {
				p.Addrs = append(p.Addrs, m.String())
			}
		}
		if len(p.Addrs) > 0 && p.Key != s.host.Key() {
			peers = append(peers, p)
		}
	}
	if len(peers) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hints.put(source, peers, time.Now())
}

// ipOf returns the IP address that a multiaddr begins with; of one through a relay, the relay's.
func ipOf(addr string) (netip.Addr, bool) {
	m, err := ma.NewMultiaddr(addr)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := manet.ToIP(m)
	if err != nil {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

// addrText returns a multiaddr as text, "" if there is none.
func addrText(b []byte) string {
	m, err := ma.NewMultiaddrBytes(b)
	if err != nil || len(m) == 0 {
		return ""
	}
	return m.String()
}

// addrBytes returns a multiaddr as bytes, nil where there is none or it is longer than the protocol carries.
func addrBytes(s string) []byte {
	m, err := ma.NewMultiaddr(s)
	if err != nil || len(m.Bytes()) > maxAddr {
		return nil
	}
	return m.Bytes()
}
