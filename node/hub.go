package node

import (
	"context"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// followReach passes bids on while this peer is a hub. p2p starts and ends the relay of connections and the publishing of
// bids by the same rule, and the provider tells its ask anew.
func (n *Node) followReach(ctx context.Context) error {
	hub, said := false, false
	stop := func() {}
	defer func() { stop() }()
	for {
		changed := n.host.ReachChanged()
		if was := hub; was != n.host.Hub() {
			hub = !was
			stop()
			stop = func() {}
			if hub {
				stop = n.relayBids()
			}
			if hub && !said && n.relays() {
				said = true
				n.log.Info("this peer is a hub and relays for others; network.hub: no turns it off",
					"bytes_per_day", n.o.Config.Network.RelayPerDay, "job_data_too", n.o.Config.Network.RelayBulk)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// relays reports whether this peer relays connections of others. On a test network, which is on one machine or one LAN,
// everybody reaches everybody, and nobody needs that.
func (n *Node) relays() bool {
	return n.host.Hub() && n.host.Reach().Verdict == market.ReachDirect && n.o.Config.Network.Hub && !n.host.Testnet()
}

// relayBids passes on the bids of this peer's place, which it cannot serve itself, and returns what ends that.
func (n *Node) relayBids() (stop func()) {
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

// hubTopics are all topics of a hub's place: it passes on bids that it cannot serve itself.
func hubTopics(place market.Place) []bids.Topic {
	var topics []bids.Topic
	for _, class := range gpu.Classes() {
		topics = append(topics, bids.TopicsFor(class, place)...)
	}
	return topics
}
