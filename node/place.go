package node

import (
	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/distance"
)

// place returns where this peer stands.
func (n *Node) place() market.Place {
	if n.devices != nil {
		return n.devices.place // a file with simulated devices may say it
	}
	return n.o.Config.Provide.Place
}

// judgePlace holds the place that a peer claims against the round trips to it that this peer and others have measured,
// and has others asked for theirs from now on. It does not wait. On a test network places are made up.
func (n *Node) judgePlace(peer attest.Key, claim market.Place) distance.Verdict {
	if claim == (market.Place{}) || peer == n.Key() || n.host.Testnet() {
		return distance.Verdict{}
	}
	n.hello.Watch(peer)
	var list []distance.Sighting
	if rtt, ok := n.host.RTT(peer); ok {
		list = append(list, distance.Sighting{Observer: n.Key(), Place: n.place(), RTT: rtt, Own: true})
	}
	honest := n.opinion.Load().honest
	for _, s := range n.hello.Sightings(peer) {
		list = append(list, distance.Sighting{Observer: s.Observer, Place: s.Place, RTT: s.RTT, Range: s.Range, Trusted: honest[s.Observer]})
	}
	return distance.Judge(claim, list)
}
