package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/peers"
	"github.com/lacuna-network/lacuna/p2p"
)

// joinPatience is how long the first round of dialling holds up a start.
const joinPatience = 1500 * time.Millisecond

// openPeers makes what keeps the peer connected: to the peers that the config names, to those known from before, and to
// those that they tell of. The list on disk lets a network survive the loss of the peers it was joined through.
func (n *Node) openPeers() (err error) {
	name := n.o.Config.Network.Name
	var bootstrap []p2p.InvitePeer
	for _, s := range n.o.Config.Network.Bootstrap {
		list, err := n.parseTarget(s)
		if err != nil {
			n.log.Warn("network.bootstrap", "err", err)
			continue
		}
		bootstrap = append(bootstrap, list...)
	}
	n.peers, err = peers.New(peers.Options{Host: n.host, Bootstrap: bootstrap,
		Load:    func() ([]home.KnownPeer, error) { return n.o.Home.LoadPeers(name) },
		Save:    func(list []home.KnownPeer) error { return n.o.Home.SavePeers(name, list) },
		Learned: n.hello.Known, Reached: n.refresh, Changed: func(context.Context) { n.askAgain() }, Logger: n.log})
	return err
}

// refresh fills the routing table after new connections.
func (n *Node) refresh(ctx context.Context) {
	if err := n.find.Refresh(ctx); err != nil {
		n.log.Debug("routing table is not filled yet", "err", err) // look-ups seed it from the connections
	}
}

// parseTarget returns the peers of an invite or an address.
func (n *Node) parseTarget(s string) ([]p2p.InvitePeer, error) {
	t, err := readTarget(s)
	if err != nil {
		return nil, err
	}
	c := n.o.Config.Network
	if t.network != "" && t.network != c.Name {
		return nil, fmt.Errorf("%w: the invite is for network %q, this peer is on %q", ErrOtherNetwork, t.network, c.Name)
	}
	if t.key == nil {
		return t.peers, nil
	}
	if c.KeyFile == "" {
		return nil, fmt.Errorf("%w: network %q is private", ErrNoKey, t.network)
	}
	if key, err := n.o.Home.NetworkKey(c.KeyFile); err != nil || !bytes.Equal(key, t.key) {
		return nil, fmt.Errorf("%w: the invite is for a network %q with another key", ErrOtherNetwork, t.network)
	}
	return t.peers, nil
}

// Errors of joining.
var (
	ErrOtherNetwork = errors.New("another network")
	ErrOwnInvite    = errors.New("this is this peer's own invite or address, and names nobody else")
	ErrNoneReached  = errors.New("no peer was reached")
	ErrNoKey        = errors.New("this peer has no key of the network")
)

// Join connects to the peers of invites and addresses, and keeps them among the known ones.
func (n *Node) Join(ctx context.Context, targets []string) (api.Joined, error) {
	joined := api.Joined{Network: n.o.Config.Network.Name}
	var list []p2p.InvitePeer
	for _, s := range targets {
		found, err := n.parseTarget(s)
		if err != nil {
			return joined, err
		}
		list = append(list, found...)
	}
	list = slices.DeleteFunc(list, func(p p2p.InvitePeer) bool { return p.Key == n.Key() })
	if len(list) == 0 {
		return joined, ErrOwnInvite
	}
	n.peers.Add(list) // who is not reached now is tried again later
	reached, err := n.dialAll(ctx, list)
	for _, p := range reached {
		joined.Joined = append(joined.Joined, api.JoinedPeer{Peer: p.Key, Addr: p.Addrs[0]})
	}
	if len(reached) == 0 {
		return joined, fmt.Errorf("%w\n%w", ErrNoneReached, err) // a line each
	}
	n.refresh(ctx)
	return joined, nil
}

// dialAll dials all at once and returns who was reached. One is enough to be on the network, so the others get a moment
// more and no longer.
func (n *Node) dialAll(ctx context.Context, list []p2p.InvitePeer) (reached []p2p.InvitePeer, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	type result struct {
		peer p2p.InvitePeer
		err  error
	}
	results := make(chan result, len(list))
	for _, p := range list {
		go func() { results <- result{p, n.host.Dial(ctx, p.Key, p.Addrs)} }() // ends with ctx; all are waited for
	}
	var errs []error
	for range list {
		r := <-results
		if r.err != nil {
			errs = append(errs, &notReached{r.peer.Key.Short() + ": " + p2p.DialReason(r.err, r.peer.Addrs), r.err})
			continue
		}
		if len(reached) == 0 {
			defer time.AfterFunc(dialMore, cancel).Stop()
		}
		reached = append(reached, r.peer)
	}
	return reached, errors.Join(errs...)
}

// notReached says in one line why a peer was not reached; err is the whole story.
type notReached struct {
	line string
	err  error
}

func (e *notReached) Error() string { return e.line }

func (e *notReached) Unwrap() error { return e.err }

const (
	dialWithin = 12 * time.Second // of a join; a little more than p2p takes, which then says why it failed
	dialMore   = time.Second      // after the first peer was reached
)
