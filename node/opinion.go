package node

import (
	"context"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// opinionEvery is how often this peer's opinion of others is formed anew: more often than leases end, and seldom enough
// to cost nothing.
const opinionEvery = time.Minute

// partnerScore is what gossip is told of a neighbour that has traded with this peer. It is less than faults cost, and
// less than bids.HubScore, which stands for the peers that the config names.
const partnerScore = 10.0

// opinion is what this peer holds of others, for those who ask often and must not wait for the store. It is not changed
// once it is formed.
type opinion struct {
	honest map[attest.Key]bool    // own leases with it went well more often than not
	score  map[attest.Key]float64 // for gossip; absent = 0, nothing is known
}

// neighbourScore is what gossip is told of a neighbour.
func (n *Node) neighbourScore(k attest.Key) float64 { return n.opinion.Load().score[k] }

// isPartner reports whether this peer has traded with that one.
func (n *Node) isPartner(k attest.Key) bool { return n.opinion.Load().score[k] > 0 }

// formOpinions keeps the opinion up to date until ctx ends.
func (n *Node) formOpinions(ctx context.Context) error {
	tick := time.NewTicker(opinionEvery)
	defer tick.Stop()
	for {
		n.opinion.Store(n.formOpinion(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (n *Node) formOpinion(now time.Time) *opinion {
	o := &opinion{honest: map[attest.Key]bool{}, score: map[attest.Key]float64{}}
	reputations, err := n.renter.Reputations(now)
	if err != nil {
		n.log.Warn("evidence cannot be read", "err", err)
	}
	for _, r := range reputations {
		o.honest[r.Peer] = r.Score.S > r.Score.F
		o.score[r.Peer] = partnerScore
	}
	if n.provider != nil {
		for _, k := range n.provider.Renters() {
			o.score[k] = partnerScore
		}
	}
	for _, s := range n.o.Config.Network.Bootstrap {
		named, err := n.parseTarget(s)
		if err != nil {
			continue // said when the peer is to be dialled
		}
		for _, p := range named {
			o.score[p.Key] = bids.HubScore
		}
	}
	return o
}
