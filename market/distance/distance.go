// Package distance judges where a peer says it is by how fast it answers.
//
// Light in fibre makes 200 km in a millisecond, so whoever answers within a millisecond is at most 100 km away, along
// whatever cable. It knows the least distance between two places, [LeastRTT] the round trip that it takes, and
// [Judge] holds a claim against round trips from several observers. A place is an area here: a country is a few circles
// that cover more than all of it, and a city is anywhere in its country. So a true claim is never called impossible;
// a false one often is not either, and nothing proves a claim.
//
// The package does no I/O and reads no clock. It is used by node. All of it is safe for concurrent use.
//
// History: 2026-11-30 version 1.
package distance

import (
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// kmPerMs is the distance that one millisecond of round trip covers at most: half of what light in fibre makes.
const kmPerMs = 100

// minVoices is how many other observers must contradict a claim, from as many address ranges.
const minVoices = 3

// LeastRTT returns the round trip that light needs between two places; 0 if they may be neighbours.
func LeastRTT(a, b market.Place) time.Duration {
	return time.Duration(apart(a, b)) * time.Millisecond / kmPerMs
}

// Sighting is one round trip to the peer whose claim is judged.
type Sighting struct {
	Observer attest.Key
	Place    market.Place  // where the observer says it is
	RTT      time.Duration // 0 = not measured
	Range    string        // the observer's address range: those of one range are one voice
	Own      bool          // measured by this peer itself, from its own place
	Trusted  bool          // there is own evidence that the observer is honest
}

// Verdict is what can be said of a claim. The zero value is "possible".
type Verdict struct {
	Impossible bool
	Claim      market.Place
	By         Sighting      // the one that says it most clearly; the own one, if that says it
	Apart      int           // km between By.Place and Claim at least
	LeastRTT   time.Duration // that light needs for it
	Voices     int           // address ranges of others that say the same
}

// String returns the verdict in words, such as "claims as/jp, but answers from eu/de in 12 ms: light needs 72 ms".
func (v Verdict) String() string {
	if !v.Impossible {
		return "possible"
	}
	return fmt.Sprintf("claims %s, but answers from %s in %s: light needs %d ms", v.Claim, v.By.Place, millis(v.By.RTT), v.LeastRTT.Milliseconds())
}

// millis rounds up, as a shorter time would say more than was measured.
func millis(d time.Duration) string {
	return fmt.Sprintf("%d ms", (d+time.Millisecond-1)/time.Millisecond)
}

// Judge reports whether a claim is impossible. One own sighting is enough for that. What others say counts only if
// minVoices of them in different address ranges say the same, at least one of them trusted: then taking away any one of
// them, who may lie about the round trip or about its own place, leaves two.
func Judge(claim market.Place, sightings []Sighting) Verdict {
	var own, other Verdict
	ranges := make(map[string]bool)
	trusted := false
	for _, s := range sightings {
		if s.RTT <= 0 {
			continue
		}
		least := LeastRTT(s.Place, claim)
		if s.RTT >= least {
			continue
		}
		best := &own
		if !s.Own {
			best = &other
			ranges[s.Range] = true
			trusted = trusted || s.Trusted
		}
		if !best.Impossible || least-s.RTT > best.LeastRTT-best.By.RTT {
			*best = Verdict{Impossible: true, Claim: claim, By: s, Apart: apart(s.Place, claim), LeastRTT: least}
		}
	}
	own.Voices, other.Voices = len(ranges), len(ranges)
	switch {
	case own.Impossible:
		return own
	case other.Impossible && trusted && len(ranges) >= minVoices:
		return other
	}
	return Verdict{Claim: claim}
}
