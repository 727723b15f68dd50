package hello

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Bounds of what is remembered of peers, about 2 KB each at worst.
const (
	maxPeers  = 4096
	maxBoots  = 2                // processes remembered per key
	forget    = 10 * time.Minute // after the last word of a peer that is not connected
	twinFresh = 5 * time.Minute  // how old a statement may be to be shown as a twin's
	fullSweep = time.Second      // between walks for room; a flood must not buy one with each key
)

// Meeting is what a peer said of itself last, and what came of greeting it.
type Meeting struct {
	At        time.Time     // when the peer last said something; zero = only Trouble is known
	Agent     string        // software and version
	Reach     market.Reach  // as it claims
	Place     market.Place  // as it claims
	Light     bool          // it serves nobody
	Offset    time.Duration // how far its clock is ahead of this peer's; of meaning if RoundTrip is not 0
	RoundTrip time.Duration // of the greeting that measured Offset, which is off by half of it at most; 0 = never measured
	Trouble   string        // why it was not understood, such as who is too old; "" = it was
}

// peers is the memory of peers. The zero value is empty.
type peers struct {
	m     map[attest.Key]*peerState
	swept time.Time
}

type peerState struct {
	met     Meeting
	touched time.Time // last word in either direction
	greeted time.Time // last greeting that began; zero = none
	vote    vote
	boots   []bootState // newest last, at most maxBoots
}

// bootState is the newest statement of one process.
type bootState struct {
	boot bootID
	seq  uint64
	at   time.Time // received, by this peer's clock
	self attest.Envelope
	addr string
}

// get returns the state of a peer, made if need be; nil if there is no room for another.
func (p *peers) get(key attest.Key, now time.Time, connected func(attest.Key) bool) *peerState {
	if v := p.m[key]; v != nil {
		v.touched = now
		return v
	}
	if len(p.m) >= maxPeers {
		if now.Sub(p.swept) < fullSweep {
			return nil
		}
		p.swept = now
		for k := range p.m {
			if !connected(k) {
				delete(p.m, k)
			}
		}
		if len(p.m) >= maxPeers {
			return nil
		}
	}
	if p.m == nil {
		p.m = make(map[attest.Key]*peerState)
	}
	v := &peerState{touched: now}
	p.m[key] = v
	return v
}

// sweep forgets peers that are gone.
func (p *peers) sweep(now time.Time, connected func(attest.Key) bool) {
	for key, v := range p.m {
		if now.Sub(v.touched) > forget && !connected(key) {
			delete(p.m, key)
		}
	}
}

func (p *peers) greeted(key attest.Key) time.Time {
	if v := p.m[key]; v != nil {
		return v.greeted
	}
	return time.Time{}
}

// hear takes in a statement that was verified. It reports false for one that this process has already gone beyond.
func (v *peerState) hear(s self, e attest.Envelope, addr string, now time.Time) bool {
	b := bootState{boot: s.Boot, seq: s.Seq, at: now, self: e, addr: addr}
	for i, old := range v.boots {
		if old.boot != s.Boot {
			continue
		}
		if s.Seq <= old.seq {
			return false
		}
		v.boots = append(append(v.boots[:i:i], v.boots[i+1:]...), b)
		return true
	}
	if len(v.boots) == maxBoots {
		v.boots = v.boots[1:]
	}
	v.boots = append(v.boots[:len(v.boots):len(v.boots)], b)
	return true
}

// other returns the newest statement of another process than that one.
func (v *peerState) other(boot bootID, now time.Time) (bootState, bool) {
	for i := len(v.boots) - 1; i >= 0; i-- {
		if b := v.boots[i]; b.boot != boot && now.Sub(b.at) <= twinFresh {
			return b, true
		}
	}
	return bootState{}, false
}

// Met returns what is known of a peer from greetings, for at least ten minutes after its last word.
func (s *Service) Met(key attest.Key) (Meeting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.peers.m[key]
	if v == nil || (v.met.At.IsZero() && v.met.Trouble == "") {
		return Meeting{}, false
	}
	return v.met, true
}
