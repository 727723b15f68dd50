package node

import (
	"context"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// followReach acts on what others find out about this peer: one that they can dial becomes a hub, unless its owner says
// no. p2p starts and ends the relay of connections by itself, and the provider tells its ask anew.
func (n *Node) followReach(ctx context.Context) error {
	said := false
	stop := func() {}
	defer func() { stop() }()
	for {
		changed := n.host.ReachChanged()
		serve := n.isHub(n.host.Reach())
		if serve != n.hub.Load() {
			n.hub.Store(serve)
			stop()
			stop = func() {}
			if serve {
				stop = n.relayBids()
			}
			if serve && !said {
				said = true
				n.log.Info("this peer relays signalling for others; turn it off with network.hub: no", "bytes_per_day", n.o.Config.Network.RelayPerDay)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// isHub reports whether a peer of that reachability is a hub. A test network is on one machine or one LAN, where
// everybody reaches everybody.
func (n *Node) isHub(r p2p.Reach) bool {
	return r.Verdict == market.ReachDirect && n.o.Config.Network.Hub && !n.host.Testnet()
}

// relayBids passes on the bids of this peer's place, which it cannot serve itself, and returns what ends that. A light
// client does not, and a hub by profile does since the start.
func (n *Node) relayBids() (stop func()) {
	if n.host.Profile() != p2p.Provider {
		return func() {}
	}
	stop, err := n.bids.Relay(hubTopics(n.place())...)
	if err != nil {
		n.log.Warn("bids are not passed on", "err", err)
		return func() {}
	}
	return stop
}

// askAgain tells the network of the ask anew: it may have expired while the computer slept.
func (n *Node) askAgain() {
	if n.provider != nil {
		n.provider.Republish()
	}
}
