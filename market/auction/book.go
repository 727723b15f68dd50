package auction

import (
	"bytes"
	"slices"
	"sort"

	"github.com/lacuna-network/lacuna/attest"
)

// Book collects the answers to one bid. What it keeps depends on the set of offers alone, not on their order. However
// many answer, it holds at most MaxKept + StrangerSeats offers and one small mark for each of the first maxSeen peers.
// Use [NewBook].
type Book struct {
	rules Rules
	// Strangers are kept apart: one that has a seat but ranks too low now still keeps the seat from another stranger.
	own, strangers []Entry
	worst          attest.Digest // highest seat taken by a stranger that can win, where full
	full           bool          // strangers that can win have all the seats
	seen           map[attest.Key]mark
	Tally
}

// Tally counts who answered a bid: distinct peers, and apart from the rest those of whom the renter has own evidence.
// Of peers without, only the first 20,000 are counted, and a number among them may be one peer's many keys.
type Tally struct {
	Received      int // peers that offered
	ReceivedKnown int // of these, with own evidence
	Declined      int // peers that declined
	DeclinedKnown int // of these, with own evidence
}

// mark is what a Book remembers of a peer: a count of looks in the low bits, and what the peer said.
type mark uint8

const (
	looks      mark = 0x0f // how often an answer of the peer was verified
	offered    mark = 0x10
	offeredOwn mark = 0x20 // the offer was kept as that of a peer that the renter chose
	declined   mark = 0x40
	maxLooks        = 4      // answers of one peer that are verified: an offer, a direct one, a decline, and one that fails
	maxSeen         = 20_000 // bounds what a crowd of made-up keys can make the renter remember; known peers are few and come on top
)

// NewBook returns an empty book.
func NewBook(r Rules) *Book { return &Book{rules: r, seen: map[attest.Key]mark{}} }

// Repeated is why an offer is excluded whose provider offered before.
const Repeated = "repeated"

// WantsOffer reports whether an offer of that peer, whose key the connection proved, is worth verifying: whether it could
// be kept. One that could not is counted and forgotten, so that a crowd of n strangers costs about StrangerSeats·ln(n)
// signature checks.
func (b *Book) WantsOffer(k attest.Key, known, direct bool) bool {
	m := b.seen[k]
	if m&offered != 0 && (known || !direct || m&offeredOwn != 0) {
		return false
	}
	if !known && !direct && b.full && bytes.Compare(b.seat(k), b.worst[:]) > 0 {
		b.count(k, known, false, offered)
		return false
	}
	return b.look(k, known)
}

// WantsDecline reports whether a decline of that peer is worth verifying. Of strangers, MaxDeclines are; the others are
// counted.
func (b *Book) WantsDecline(k attest.Key, known bool) bool {
	if b.seen[k]&declined != 0 {
		return false
	}
	if !known && b.Declined-b.DeclinedKnown >= MaxDeclines {
		b.count(k, known, false, declined)
		return false
	}
	return b.look(k, known)
}

// look counts a verification of an answer of that peer.
func (b *Book) look(k attest.Key, known bool) bool {
	m, in := b.seen[k]
	if m&looks >= maxLooks {
		return false
	}
	if in || known || len(b.seen) < maxSeen {
		b.seen[k] = m + 1
	}
	return true
}

// count notes what a peer said and counts it once. It reports whether it was the first time, as far as is remembered:
// always that of a peer which is known or was chosen.
func (b *Book) count(k attest.Key, known, chosen bool, what mark) bool {
	m, in := b.seen[k]
	if m&what != 0 {
		return false
	}
	if !in && !known && !chosen && len(b.seen) >= maxSeen {
		return true
	}
	b.seen[k] = m | what
	one := 0
	if known {
		one = 1
	}
	switch what {
	case offered:
		b.Received++
		b.ReceivedKnown += one
	case declined:
		b.Declined++
		b.DeclinedKnown += one
	}
	return true
}

// Decline counts a peer that declined. It reports whether it is the first time.
func (b *Book) Decline(k attest.Key, known bool) bool {
	return b.count(k, known, false, declined)
}

// Add scores an offer and keeps it if it is among the best. A provider's first offer counts; a later one is ignored and
// comes back with Excluded set to [Repeated]. An offer that came from a stranger's own announcement and comes again from
// a direct copy is the same offer, and is kept as one of those.
func (b *Book) Add(e Entry) Entry {
	p := e.Offer.Provider
	e = b.rules.rate(e)
	mine := func(other Entry) bool { return other.Offer.Provider == p }
	i := slices.IndexFunc(b.strangers, mine)
	if m := b.seen[p]; m&offered != 0 || i >= 0 {
		if e.Known || !e.Direct || m&offeredOwn != 0 || slices.ContainsFunc(b.own, mine) {
			e.Excluded = Repeated
			return e
		}
		if i >= 0 {
			first := b.strangers[i]
			b.strangers = slices.Delete(slices.Clone(b.strangers), i, i+1)
			first.Direct = true
			e = first
		}
	}
	b.count(p, e.Known, e.Direct, offered)
	if e.own() {
		b.seen[p] |= offeredOwn
		b.own = Keep(b.rules.Bid, append(b.own, e))
	} else {
		b.strangers = seated(b.rules.Bid, append(b.strangers, e))
	}
	b.fill()
	return e
}

// fill notes whether strangers have all the seats, and which is the highest.
func (b *Book) fill() {
	b.full = len(b.strangers) == StrangerSeats
	b.worst = attest.Digest{}
	for _, e := range b.strangers {
		b.full = b.full && e.Excluded == ""
		if s := b.seat(e.Offer.Provider); bytes.Compare(s, b.worst[:]) > 0 {
			b.worst = attest.Digest(s)
		}
	}
}

func (b *Book) seat(k attest.Key) []byte {
	d := seatOf(b.rules.Bid, k)
	return d[:]
}

// Revise lets f change what was measured of each kept entry, and rates them again.
func (b *Book) Revise(f func(e *Entry)) {
	for _, list := range [][]Entry{b.own, b.strangers} {
		for i := range list {
			f(&list[i])
			list[i] = b.rules.rate(list[i])
		}
	}
	b.fill()
}

// Entries returns what is kept, best first. The slice is the caller's.
func (b *Book) Entries() []Entry { return Keep(b.rules.Bid, slices.Concat(b.own, b.strangers)) }

// Keep returns the entries that an auction keeps, best first: at most [MaxKept], among them at most [StrangerSeats] of
// keys without own evidence that the renter did not choose to ask: of those that can win, then of the others, the ones
// with the lowest H(bid ‖ key), which no one can choose.
func Keep(bid attest.Digest, entries []Entry) []Entry {
	var out, strangers []Entry
	for _, e := range entries {
		if e.own() {
			out = append(out, e)
		} else {
			strangers = append(strangers, e)
		}
	}
	out = append(out, seated(bid, strangers)...)
	sort.SliceStable(out, func(i, j int) bool { return better(out[i], out[j]) })
	return out[:min(len(out), MaxKept)]
}

func seatOf(bid attest.Digest, k attest.Key) attest.Digest {
	return attest.Sum(append(bid[:len(bid):len(bid)], k[:]...))
}

// seated returns the strangers that get a seat. An offer that cannot win takes none from one that can: a provider that
// the renter names would else be drawn out by a crowd that it did not ask for.
func seated(bid attest.Digest, strangers []Entry) []Entry {
	if len(strangers) <= StrangerSeats {
		return strangers
	}
	type place struct {
		seat attest.Digest
		i    int
	}
	places := make([]place, len(strangers))
	for i, e := range strangers {
		places[i] = place{seatOf(bid, e.Offer.Provider), i}
	}
	sort.SliceStable(places, func(i, j int) bool {
		a, b := strangers[places[i].i].Excluded != "", strangers[places[j].i].Excluded != ""
		if a != b {
			return b
		}
		return bytes.Compare(places[i].seat[:], places[j].seat[:]) < 0
	})
	out := make([]Entry, StrangerSeats)
	for i := range out {
		out[i] = strangers[places[i].i]
	}
	return out
}
