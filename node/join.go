package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

const (
	redialFirst = 2 * time.Second // while nobody is connected; doubles up to redialMost
	redialMost  = 2 * time.Minute
	enoughPeers = 4                // below it, known peers are dialled again
	rememberAll = 30 * time.Second // between writings of the known peers
	dialWithin  = 10 * time.Second

	joinPatience = 1500 * time.Millisecond // how long the first round of dialling holds up a start
)

// stayJoined connects to the peers that the config names and those known from before, again whenever few are left, and
// keeps the list of known peers on disk, so that the network survives the loss of the peers it was joined through.
func (n *Node) stayJoined(ctx context.Context) error {
	pause := redialFirst
	first := sync.OnceFunc(func() { close(n.joined) })
	remember := time.NewTicker(rememberAll)
	defer remember.Stop()
	defer n.rememberPeers()
	for {
		if len(n.host.Peers()) < enoughPeers {
			if n.dialKnown(ctx) > 0 {
				pause = redialFirst
			}
		}
		first()
		wait := redialMost
		if len(n.host.Peers()) == 0 {
			wait, pause = pause, min(2*pause, redialMost)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-remember.C:
			n.rememberPeers()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// dialKnown dials the peers of the config and those known from before, and returns how many new ones it reached.
func (n *Node) dialKnown(ctx context.Context) int {
	var targets []p2p.InvitePeer
	for _, s := range n.o.Config.Network.Bootstrap {
		peers, err := n.parseTarget(s)
		if err != nil {
			n.log.Warn("network.bootstrap", "err", err)
			continue
		}
		targets = append(targets, peers...)
	}
	known, err := n.o.Home.LoadPeers(n.o.Config.Network.Name)
	if err != nil {
		n.log.Warn("known peers cannot be read", "err", err)
	}
	for _, k := range known {
		targets = append(targets, p2p.InvitePeer{Key: k.Peer, Addrs: k.Addrs})
	}
	connected := map[attest.Key]bool{n.Key(): true}
	for _, p := range n.host.Peers() {
		connected[p.Key] = true
	}
	reached := 0
	for _, t := range targets {
		if connected[t.Key] || len(connected) > enoughPeers {
			continue
		}
		connected[t.Key] = true
		if err := n.dial(ctx, t); err != nil {
			n.log.Debug("known peer is not reached", "peer", t.Key, "err", err)
			continue
		}
		reached++
	}
	return reached
}

func (n *Node) dial(ctx context.Context, t p2p.InvitePeer) error {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	if err := n.host.Connect(ctx, t.Key, t.Addrs); err != nil {
		return err
	}
	if err := n.find.Refresh(ctx); err != nil {
		n.log.Debug("routing table is not filled yet", "err", err) // look-ups seed it from the connections
	}
	return nil
}

// rememberPeers writes the peers that are connected in front of those known from before.
func (n *Node) rememberPeers() {
	name := n.o.Config.Network.Name
	known, err := n.o.Home.LoadPeers(name)
	if err != nil {
		n.log.Warn("known peers cannot be read", "err", err)
	}
	now := time.Now()
	fresh := map[attest.Key]bool{}
	var list []home.KnownPeer
	for _, p := range n.host.Peers() {
		if len(p.Addrs) > 0 {
			fresh[p.Key] = true
			list = append(list, home.KnownPeer{Peer: p.Key, Addrs: p.Addrs, SeenAt: now})
		}
	}
	if len(list) == 0 {
		return
	}
	for _, k := range known {
		if !fresh[k.Peer] {
			list = append(list, k)
		}
	}
	if err := n.o.Home.SavePeers(name, list); err != nil {
		n.log.Warn("known peers are not kept", "err", err)
	}
}

// parseTarget reads an invite, or a multiaddr that ends in /p2p/PEER.
func (n *Node) parseTarget(s string) ([]p2p.InvitePeer, error) {
	if strings.HasPrefix(s, "/") {
		addr, id, ok := strings.Cut(s, "/p2p/")
		key, err := attest.ParseKey(id)
		if !ok || err != nil {
			return nil, fmt.Errorf("address %.100q: want a multiaddr that ends in /p2p/ and a peer id", s)
		}
		return []p2p.InvitePeer{{Key: key, Addrs: []string{addr}}}, nil
	}
	i, err := p2p.ParseInvite(s)
	if err != nil {
		return nil, err
	}
	if i.Network != n.o.Config.Network.Name {
		return nil, fmt.Errorf("%w: the invite is for network %q, this peer is on %q", ErrOtherNetwork, i.Network, n.o.Config.Network.Name)
	}
	return i.Peers, nil
}

// Errors of joining.
var (
	ErrOtherNetwork = errors.New("another network")
	ErrNoneReached  = errors.New("no peer was reached")
)

// Join connects to the peers of invites and addresses, and keeps them among the known ones.
func (n *Node) Join(ctx context.Context, targets []string) (api.Joined, error) {
	joined := api.Joined{Network: n.o.Config.Network.Name}
	if len(targets) == 0 {
		return joined, fmt.Errorf("%w: name an invite or an address; there is no public network yet", ErrNoneReached)
	}
	var errs []error
	for _, s := range targets {
		peers, err := n.parseTarget(strings.TrimSpace(s))
		if err != nil {
			return joined, err
		}
		for _, p := range peers {
			if p.Key == n.Key() {
				continue
			}
			if err := n.dial(ctx, p); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", p.Key.Short(), err))
				continue
			}
			addr := ""
			if len(p.Addrs) > 0 {
				addr = p.Addrs[0]
			}
			joined.Joined = append(joined.Joined, api.JoinedPeer{Peer: p.Key, Addr: addr})
		}
	}
	if len(joined.Joined) == 0 {
		return joined, fmt.Errorf("%w: %w", ErrNoneReached, errors.Join(errs...))
	}
	n.rememberPeers()
	return joined, nil
}
