package node

import (
	"context"
	"time"

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
	honest := *n.honest.Load()
	for _, s := range n.hello.Sightings(peer) {
		list = append(list, distance.Sighting{Observer: s.Observer, Place: s.Place, RTT: s.RTT, Range: s.Range, Trusted: honest[s.Observer]})
	}
	return distance.Judge(claim, list)
}

// honestEvery is how often the peers with good own evidence are looked up: more often than leases end, and seldom enough
// to cost nothing.
const honestEvery = time.Minute

// knowHonest keeps the set of peers whose leases with this one went well, for those who must not wait.
func (n *Node) knowHonest(ctx context.Context) error {
	tick := time.NewTicker(honestEvery)
	defer tick.Stop()
	for {
		reps, err := n.renter.Reputations(time.Now())
		if err != nil {
			n.log.Warn("evidence cannot be read", "err", err)
		}
		honest := map[attest.Key]bool{}
		for _, r := range reps {
			honest[r.Peer] = r.Score.S > r.Score.F
		}
		n.honest.Store(&honest)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
