package hello

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// What goes over the wire.
type (
	Self    = self
	BootID  = bootID
	Request = request
	Answer  = answer
	Told    = told
	Seen    = seen
	Shown   = twin
)

// Limits.
const (
	MaxRequest = maxRequest
	MaxAnswer  = maxAnswer
	MaxPeers   = maxPeers
	MaxKnown   = maxKnown
	MaxWatch   = maxWatch
)

// TwinBoots returns the ids of other processes under the same key.
func (s *Service) TwinBoots() []BootID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.twins.boots(time.Now())
}

// Boot returns the id of the process.
func (s *Service) Boot() BootID { return s.boot }

// Vote is a clock as measured.
type Vote struct {
	Offset time.Duration
	From   string
	At     time.Time
}

// Tally judges votes.
func Tally(votes []Vote, now time.Time) (Skew, bool) {
	in := make([]vote, len(votes))
	for i, v := range votes {
		in[i] = vote{offset: v.Offset, from: v.From, at: v.At}
	}
	return tally(in, now)
}

// OffsetOf and RangeOf are what votes are made of; Useful picks addresses.
var (
	OffsetOf = offsetOf
	RangeOf  = rangeOf
	Useful   = useful
)

// Peers is the memory of peers alone.
type Peers struct{ p peers }

// Touch remembers a peer, if there is room.
func (p *Peers) Touch(key attest.Key, now time.Time, connected func(attest.Key) bool) bool {
	return p.p.get(key, now, connected) != nil
}

// Sweep forgets what is old.
func (p *Peers) Sweep(now time.Time, connected func(attest.Key) bool) { p.p.sweep(now, connected) }

// Len returns how many are remembered.
func (p *Peers) Len() int { return len(p.p.m) }

// Hints is the memory of what others tell alone.
type Hints struct{ h hints }

// Put takes in a list.
func (h *Hints) Put(source attest.Key, peers []p2p.InvitePeer, now time.Time) {
	h.h.put(source, peers, now)
}

// Known returns what is to be tried.
func (h *Hints) Known() []p2p.InvitePeer { return h.h.known() }

// Watched returns how many peers are asked for.
func (s *Service) Watched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watch.m)
}

// Hear is the memory of the processes under one key: it takes in a statement and reports whether it was new.
func (p *Peers) Hear(key attest.Key, s Self, now time.Time) bool {
	return p.p.get(key, now, func(attest.Key) bool { return true }).hear(s, attest.Envelope{}, "", now)
}

// Other returns the boot id of the newest statement by another process.
func (p *Peers) Other(key attest.Key, boot BootID, now time.Time) (BootID, bool) {
	b, ok := p.p.get(key, now, func(attest.Key) bool { return true }).other(boot, now)
	return b.boot, ok
}

// Twins is the memory of other processes under the own key alone.
type Twins struct{ t twins }

// Show takes in a statement.
func (t *Twins) Show(s Self, own BootID, now time.Time) (news, proved bool) {
	return t.t.show(s, own, "", now)
}

// Boots returns whom the own statements name.
func (t *Twins) Boots(now time.Time) []BootID { return t.t.boots(now) }
