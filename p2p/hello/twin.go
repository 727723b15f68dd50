package hello

import (
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// Twin is another process that uses this peer's key at the same time. Offers, leases and receipts of the two get into
// each other's way.
type Twin struct {
	SeenAt time.Time // when its last word came
	Addr   string    // multiaddr from which others heard it, as one of them says; "" = unknown
}

// twins is what was shown to this peer of statements under its own key. The zero value is empty.
//
// A valid signature proves little: this peer's own run of yesterday made some too, and whoever kept them can show them
// today. So a process counts as alive only when a statement of it names the boot id of this one, which nobody knew
// before this process began; and each side names what it was shown, so that both come to see it.
type twins struct {
	seen []twinState // at most maxTwins
}

type twinState struct {
	boot  bootID
	seq   uint64
	clock int64     // as it stated
	at    time.Time // when its newest statement came
	named time.Time // when it last named this process; zero = never
	addr  string
}

// show takes in a verified statement by another process under the own key. news tells that the process was not known,
// proved that this is the first sign that it is alive.
func (t *twins) show(s self, own bootID, addr string, now time.Time) (news, proved bool) {
	if s.Boot == own {
		return false, false
	}
	i := slices.IndexFunc(t.seen, func(v twinState) bool { return v.boot == s.Boot })
	switch {
	case i >= 0 && s.Seq <= t.seen[i].seq:
		return false, false // an old statement, shown again
	case i < 0 && len(t.seen) < maxTwins:
		i = len(t.seen)
		t.seen = append(t.seen, twinState{boot: s.Boot})
		news = true
	case i < 0:
		// The earlier statement makes room: old runs must not push out one that goes on. Both clocks are this user's.
		oldest := 0
		for j := range t.seen {
			if t.seen[j].clock < t.seen[oldest].clock {
				oldest = j
			}
		}
		if now.Sub(t.seen[oldest].at) <= forget && t.seen[oldest].clock >= s.Clock {
			return false, false
		}
		i = oldest
		t.seen[i] = twinState{boot: s.Boot}
		news = true
	}
	v := &t.seen[i]
	v.seq, v.clock, v.at, v.addr = s.Seq, s.Clock, now, addr
	if slices.Contains(s.Twins, own) {
		proved = !v.alive(now)
		v.named = now
	}
	return news, proved
}

func (v twinState) alive(now time.Time) bool { return !v.named.IsZero() && now.Sub(v.named) <= forget }

// boots returns the processes to name in the own statements.
func (t *twins) boots(now time.Time) []bootID {
	var out []bootID
	for _, v := range t.seen {
		if now.Sub(v.at) <= forget {
			out = append(out, v.boot)
		}
	}
	return out
}

// suspected reports whether there may be a twin and there is no proof yet.
func (t *twins) suspected(now time.Time) bool {
	return slices.ContainsFunc(t.seen, func(v twinState) bool { return now.Sub(v.at) <= twinFresh && !v.alive(now) })
}

// Twin returns the process that uses this peer's key beside this one, if one gave a sign of life in the last 10 minutes.
func (s *Service) Twin() (Twin, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var newest *twinState
	for i := range s.twins.seen {
		if v := &s.twins.seen[i]; v.alive(now) && (newest == nil || v.named.After(newest.named)) {
			newest = v
		}
	}
	if newest == nil {
		return Twin{}, false
	}
	return Twin{SeenAt: newest.named, Addr: newest.addr}, true
}

// heardTwin takes in what an answer shows. It returns whether the peer should be greeted again at once, so that the
// other process learns of this one there.
func (s *Service) heardTwin(from attest.Key, t *twin) (again bool, err error) {
	if t == nil {
		return false, nil
	}
	if t.Self.Signer != s.host.Key() {
		return false, attest.ErrSignature
	}
	said, err := attest.Open[self](t.Self, s.host.NetworkID(), Domain)
	if err != nil {
		return false, err
	}
	addr := addrText(t.Addr)
	s.mu.Lock()
	news, proved := s.twins.show(said, s.boot, addr, time.Now())
	s.mu.Unlock()
	if proved {
		s.log.Warn("another process uses the key of this peer; stop one of the two, or give it an identity of its own",
			"addr", addr, "told_by", from)
	}
	if news {
		s.roundNow()
	}
	return news, nil
}
