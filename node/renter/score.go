package renter

import (
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/reputation"
	"github.com/lacuna-network/lacuna/market"
)

// experience is one piece of evidence as it is stored.
type experience struct {
	OK    bool            `cbor:"1,keyasint"`
	Value market.MicroUSD `cbor:"2,keyasint"` // received, or at stake
	First bool            `cbor:"3,keyasint,omitempty"`
	What  string          `cbor:"4,keyasint"`
}

// learn turns the end of a lease into evidence on its provider: value received and accepted, or, when the provider let
// the job down, what was paid on the lease and one interval more. What was learned before a crash is not learned twice.
func (r *Renter) learn(t *task, lease attest.Digest, c *chain, code market.Code, reason string) error {
	provider := c.lease.Provider
	rec, err := r.record(lease)
	if err != nil {
		return err
	}
	now := time.Now()
	if rec.EndedAt > 0 {
		now = time.UnixMilli(rec.EndedAt)
	}
	before, err := r.Evidence(provider)
	if err != nil || slices.ContainsFunc(before, func(e reputation.Evidence) bool { return e.Ref == lease }) {
		return err
	}
	x := experience{OK: !code.ProviderFault(), Value: c.vouched(), First: len(before) == 0, What: code.String()}
	if reason != "" && code != market.CodeDone {
		x.What = reason
	}
	if !x.OK {
		x.Value += c.lease.IntervalCost()
	} else if x.Value == 0 {
		return nil // nothing was received and nobody is at fault
	}
	b, err := attest.Marshal(x)
	if err != nil {
		return err
	}
	if err := r.o.Store.AddEvidence(provider, now.UnixMilli(), lease, b); err != nil {
		return err
	}
	after, err := r.Evidence(provider)
	if err != nil {
		return err
	}
	ev := &ReputationEvent{Peer: provider, AfterBP: reputation.Score(r.o.Params, after, now).ScoreBP}
	if len(before) > 0 {
		bp := reputation.Score(r.o.Params, before, now).ScoreBP
		ev.BeforeBP = &bp
	}
	t.emit(Event{Kind: EvReputation, Reputation: ev})
	return nil
}

// Evidence returns all that this peer experienced with another.
func (r *Renter) Evidence(peer attest.Key) ([]reputation.Evidence, error) {
	stored, err := r.o.Store.Evidence(peer)
	if err != nil {
		return nil, err
	}
	out := make([]reputation.Evidence, 0, len(stored))
	for _, s := range stored {
		var x experience
		if err := attest.Unmarshal(s.Value, &x); err != nil {
			return nil, err
		}
		out = append(out, reputation.Evidence{At: time.UnixMilli(s.At).UTC(), OK: x.OK, ValueMicroUSD: uint64(x.Value), Ref: s.Ref, FirstLease: x.First, What: x.What})
	}
	return out, nil
}

// Reputation is a peer's score in this peer's own eyes.
type Reputation struct {
	Peer   attest.Key
	Score  reputation.Result
	MeanBP int // posterior mean success rate, which ranks offers
	Prior  reputation.Prior
}

// Reputation returns how this peer sees another.
func (r *Renter) Reputation(peer attest.Key, now time.Time) (Reputation, error) {
	prior, err := r.prior()
	if err != nil {
		return Reputation{}, err
	}
	return r.reputation(peer, prior, now)
}

func (r *Renter) reputation(peer attest.Key, prior reputation.Prior, now time.Time) (Reputation, error) {
	ev, err := r.Evidence(peer)
	if err != nil {
		return Reputation{}, err
	}
	return Reputation{Peer: peer, Score: reputation.Score(r.o.Params, ev, now), MeanBP: reputation.Mean(r.o.Params, ev, prior, now), Prior: prior}, nil
}

// Reputations returns the peers that this one has own experience of.
func (r *Renter) Reputations(now time.Time) ([]Reputation, error) {
	peers, err := r.o.Store.EvidencePeers()
	if err != nil {
		return nil, err
	}
	prior, err := r.prior()
	if err != nil {
		return nil, err
	}
	out := make([]Reputation, 0, len(peers))
	for _, k := range peers {
		rep, err := r.reputation(k, prior, now)
		if err != nil {
			return nil, err
		}
		out = append(out, rep)
	}
	return out, nil
}

// prior is what this renter's first leases with strangers taught it about newcomers.
func (r *Renter) prior() (reputation.Prior, error) {
	peers, err := r.o.Store.EvidencePeers()
	if err != nil {
		return reputation.Prior{}, err
	}
	var all []reputation.Evidence
	for _, k := range peers {
		ev, err := r.Evidence(k)
		if err != nil {
			return reputation.Prior{}, err
		}
		all = append(all, ev...)
	}
	return reputation.PriorOf(all), nil
}

// scores answers for the time of one auction how likely each provider is to succeed.
type scores struct {
	r     *Renter
	prior reputation.Prior
	now   time.Time
	known map[attest.Key]bool // peers with own evidence
}

func newScores(r *Renter) *scores {
	s := &scores{r: r, now: time.Now(), known: map[attest.Key]bool{}}
	var err error
	if s.prior, err = r.prior(); err != nil {
		r.log.Warn("own experience cannot be read", "err", err)
	}
	peers, err := r.o.Store.EvidencePeers()
	if err != nil {
		r.log.Warn("own experience cannot be read", "err", err)
	}
	for _, k := range peers {
		s.known[k] = true
	}
	return s
}

// mean returns the posterior mean success rate in basis points. A peer that cannot be where it says it is has half of it,
// and fault is true: who lies about that lies about more.
func (s *scores) mean(peer attest.Key, place market.Place) (bp uint64, fault bool) {
	bp = uint64(s.prior.BP())
	if s.known[peer] {
		ev, err := s.r.Evidence(peer)
		if err != nil {
			s.r.log.Warn("own experience cannot be read", "peer", peer, "err", err)
		} else {
			bp = uint64(reputation.Mean(s.r.o.Params, ev, s.prior, s.now))
		}
	}
	if fault = s.r.o.PlaceFault != nil && s.r.o.PlaceFault(peer, place); fault {
		bp /= 2
	}
	return bp, fault
}
