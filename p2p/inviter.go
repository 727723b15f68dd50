package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lacuna-network/lacuna/attest"
)

const (
	invitePing  = 2 * time.Second // for a peer to show that it is worth inviting to
	inviteTries = 16              // peers that are asked for it, all at once
)

// ErrNoInvite means that there is nobody to join through.
var ErrNoInvite = errors.New("this peer has no address that others can dial and is connected to nobody who has")

// InviteOptions say what an invite holds. The zero value holds all that is needed to join.
type InviteOptions struct {
	WithoutKey bool // leave out the key of a private network: who joins must get it another way
}

// Grades of a peer as one to join through, best first.
const (
	inviteDirect  = iota // this peer has dialled it itself, or it serves others, which only directly reachable peers do
	inviteClaimed        // it names addresses, and nobody is known to have tried them
	inviteRelayed        // it is reached through relays alone, which may be gone tomorrow
)

// sponsor is a peer to join through.
type sponsor struct {
	InvitePeer
	id    peer.ID
	grade int
	place string // the address range of its first address
	again bool   // one that comes before it is of the same place; set by spread
}

// Invite returns one line that lets others join: this peer and up to four connected ones that answer a ping, from as
// many address ranges as there are, so that no single line or operator is needed later. Peers that can be dialled come
// before those behind relays; those that nobody can dial are left out. On a network with a key the line holds it. The
// error wraps [ErrNoInvite] if nobody, this peer included, has an address to tell.
func (h *Host) Invite(ctx context.Context, o InviteOptions) (string, error) {
	i := Invite{Network: h.network}
	if !o.WithoutKey {
		i.NetworkKey = h.networkKey
	}
	places := make(map[string]bool)
	if own, relayed := inviteAddrs(h.host.Addrs(), h.lan); len(own) > 0 {
		i.Peers = append(i.Peers, InvitePeer{Key: h.key, Addrs: addrStrings(own)})
		places[operator(own[0])] = !relayed
	}
	for _, c := range h.answering(ctx, spread(h.sponsors(), places)) {
		if len(i.Peers) < maxInvitePeers {
			i.Peers = append(i.Peers, c.InvitePeer)
		}
	}
	if len(i.Peers) == 0 {
		return "", fmt.Errorf("write invite: %w", ErrNoInvite)
	}
	return i.encode()
}

// sponsors returns the connected peers that may be joined through.
func (h *Host) sponsors() []sponsor {
	var out []sponsor
	for _, id := range h.host.Network().Peers() {
		key, err := KeyOf(id)
		if err != nil || h.host.Network().Connectedness(id) == network.NotConnected {
			continue
		}
		addrs, relayed := inviteAddrs(h.dialable(h.host.Peerstore().Addrs(id)), h.lan)
		if len(addrs) == 0 {
			continue
		}
		c := sponsor{InvitePeer: InvitePeer{Key: key, Addrs: addrStrings(addrs)}, id: id, grade: inviteClaimed, place: operator(addrs[0])}
		switch {
		case relayed:
			c.grade = inviteRelayed
		case h.dialled(key) || h.servesTable(id):
			c.grade = inviteDirect
		case !h.lan:
			continue // on a public network it only buys, or sits behind a router: nothing speaks for its addresses
		}
		out = append(out, c)
	}
	return out
}

// dialled reports whether this peer opened a straight connection to that one, without the other's help.
func (h *Host) dialled(key attest.Key) bool {
	return h.Path(key) == PathDirect && slices.ContainsFunc(h.host.Network().ConnsToPeer(PeerID(key)), func(c network.Conn) bool {
		return c.Stat().Direction == network.DirOutbound && kindOf(c.RemoteMultiaddr()) != kindCircuit
	})
}

// servesTable reports whether the peer serves the network's table of peers and records.
func (h *Host) servesTable(id peer.ID) bool {
	protocols, err := h.host.Peerstore().GetProtocols(id)
	if err != nil {
		return false
	}
	for _, p := range protocols {
		if strings.HasPrefix(string(p), "/lacuna/"+h.network+"/kad/") {
			return true
		}
	}
	return false
}

// spread orders sponsors: by grade, and within one those of address ranges first that are not there yet.
func spread(all []sponsor, places map[string]bool) []sponsor {
	slices.SortStableFunc(all, func(a, b sponsor) int { return cmp.Compare(a.grade, b.grade) })
	for i := range all {
		all[i].again = places[all[i].place]
		places[all[i].place] = true
	}
	slices.SortStableFunc(all, func(a, b sponsor) int {
		return cmp.Or(cmp.Compare(a.grade, b.grade), cmp.Compare(number(a.again), number(b.again)))
	})
	return all
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// answering returns those of the first sponsors that answer a ping in time, in their order.
func (h *Host) answering(ctx context.Context, all []sponsor) []sponsor {
	all = all[:min(len(all), inviteTries)]
	ctx, cancel := context.WithTimeout(network.WithAllowLimitedConn(ctx, "ping"), invitePing)
	defer cancel()
	answered := make([]bool, len(all))
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() {
			_, err := h.pingOnce(ctx, c.id)
			answered[i] = err == nil
		})
	}
	wait.Wait()
	var out []sponsor
	for i, c := range all {
		if answered[i] {
			out = append(out, c)
		}
	}
	return out
}

// inviteAddrs picks at most four addresses that help most: public before private, and of each kind (QUIC, TCP,
// WebSocket) one before a second, since a reader may have only one of them. Private ones are told only with lan.
// Circuit addresses are taken only if there is no other; relayed says so.
func inviteAddrs(addrs []ma.Multiaddr, lan bool) (picked []ma.Multiaddr, relayed bool) {
	var straight, circuits []ma.Multiaddr
	for _, m := range addrs {
		switch {
		case !lan && !manet.IsPublicAddr(m):
		case kindOf(m) == kindCircuit:
			circuits = append(circuits, m)
		default:
			straight = append(straight, m)
		}
	}
	if len(straight) == 0 {
		return circuits[:min(len(circuits), maxInviteAddrs)], len(circuits) > 0
	}
	turn := make(map[kind]int)
	rank := make(map[string]int)
	slices.SortStableFunc(straight, func(a, b ma.Multiaddr) int {
		return cmp.Compare(number(!manet.IsPublicAddr(a)), number(!manet.IsPublicAddr(b)))
	})
	for _, m := range straight {
		k := kindOf(m)
		rank[m.String()] = turn[k]
		turn[k]++
	}
	slices.SortStableFunc(straight, func(a, b ma.Multiaddr) int {
		return cmp.Or(cmp.Compare(number(!manet.IsPublicAddr(a)), number(!manet.IsPublicAddr(b))),
			cmp.Compare(rank[a.String()], rank[b.String()]))
	})
	return straight[:min(len(straight), maxInviteAddrs)], false
}

// operator names the range that one operator has: an IPv4 /16 or IPv6 /32.
func operator(m ma.Multiaddr) string { return AddrRange(m.String(), 16, 32) }
