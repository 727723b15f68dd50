package hello

import (
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/p2p"
)

// Bounds of the judgement of clocks.
const (
	SkewWarn    = 5 * time.Second  // median offset above which a clock is called wrong
	SkewPeers   = 3                // voters below which nothing is called wrong
	voteLife    = 10 * time.Minute // of a measurement
	voteMaxTrip = 2 * time.Second  // round trips above this say too little
	clockJump   = time.Second      // between wall and monotonic clock that makes measurements worthless
)

// Skew is how other clocks stand against this peer's. Each address range (IPv4 /24, IPv6 /48) has one vote, however
// many peers are in it.
type Skew struct {
	Offset time.Duration // median of the voters' clocks minus this peer's: above 0, this clock is slow
	Peers  int           // voters
}

// Wrong reports whether this peer's clock should be called wrong: at least [SkewPeers] voters, and more than [SkewWarn]
// from their median. Nothing but what people are shown may depend on it, since voters can lie.
func (s Skew) Wrong() bool { return s.Peers >= SkewPeers && s.Offset.Abs() > SkewWarn }

// vote is one peer's clock, as measured.
type vote struct {
	offset time.Duration // peer's clock minus this peer's
	from   string        // address range
	at     time.Time     // zero = none
}

// tally returns the median over address ranges of the median in each, and false if there are none. Fewer than half of
// the ranges cannot move it out of what the others say.
func tally(votes []vote, now time.Time) (Skew, bool) {
	ranges := make(map[string][]time.Duration)
	for _, v := range votes {
		if !v.at.IsZero() && now.Sub(v.at) <= voteLife {
			ranges[v.from] = append(ranges[v.from], v.offset)
		}
	}
	if len(ranges) == 0 {
		return Skew{}, false
	}
	all := make([]time.Duration, 0, len(ranges))
	for _, offsets := range ranges {
		all = append(all, median(offsets))
	}
	return Skew{Offset: median(all), Peers: len(all)}, true
}

// median sorts d, which must not be empty.
func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	low, high := d[(len(d)-1)/2], d[len(d)/2]
	return low + (high-low)/2 // their sum might overflow
}

// offsetOf returns how far the clock of a peer, Unix milliseconds read halfway between sent and received, is ahead.
func offsetOf(clock int64, sent time.Time, trip time.Duration) time.Duration {
	const limit = 100 * 365 * 24 * time.Hour // a time.Duration ends at 292 years
	ms := clock - sent.Add(trip/2).UnixMilli()
	return time.Duration(min(max(ms, -limit.Milliseconds()), limit.Milliseconds())) * time.Millisecond
}

// Skew returns how other clocks stand against this peer's, and false while none was measured.
func (s *Service) Skew() (Skew, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.skew(time.Now())
}

func (s *Service) skew(now time.Time) (Skew, bool) {
	s.forgetJump(now)
	votes := make([]vote, 0, len(s.peers.m))
	for _, v := range s.peers.m {
		votes = append(votes, v.vote)
	}
	return tally(votes, now)
}

// forgetJump drops all measurements when this peer's clock was set, or its computer slept: then they are of another
// clock than the one that is shown.
func (s *Service) forgetJump(now time.Time) {
	drift := now.Round(0).Sub(s.start.Round(0)) - now.Sub(s.start)
	if (drift - s.drift).Abs() <= clockJump {
		return
	}
	s.drift = drift
	for _, v := range s.peers.m {
		v.vote = vote{}
	}
	s.roundNow()
}

// roundNow asks for a round before the next one is due.
func (s *Service) roundNow() {
	select {
	case s.early <- struct{}{}:
	default:
	}
}

// reviewClock logs when this peer's clock becomes wrong and when it is right again.
func (s *Service) reviewClock() {
	s.mu.Lock()
	skew, ok := s.skew(time.Now())
	was := s.warned
	if ok && skew.Peers >= SkewPeers {
		s.warned = skew.Wrong()
	}
	is := s.warned
	s.mu.Unlock()
	switch {
	case is && !was:
		s.log.Warn("the clock of this computer differs from those of other peers; set it, for instance by NTP",
			"others_ahead", skew.Offset, "peers", skew.Peers)
	case was && !is:
		s.log.Info("the clock of this computer agrees with those of other peers again", "others_ahead", skew.Offset, "peers", skew.Peers)
	}
}

func (s *Service) offsetSeconds() float64 {
	skew, _ := s.Skew()
	return skew.Offset.Seconds()
}

// rangeOf names the address range of a multiaddr that has one voice.
func rangeOf(addr string) string { return p2p.AddrRange(addr, p2p.SiteV4, p2p.SiteV6) }
