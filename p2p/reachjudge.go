package p2p

import (
	"cmp"
	"slices"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// The rules of the verdict.
const (
	maxFindings  = 8                // kept of one address, newest last
	findingLife  = time.Hour        // an older finding says nothing about now
	punchLife    = time.Hour        // of a hole punch as a proof that punching works here
	dialAgain    = 5 * time.Minute  // about an address that worked
	workedLife   = 10 * time.Minute // in which a success outweighs all failures that come after it: these may be lies
	dialFailed   = 5 * time.Minute  // about one that did not
	dialDoubted  = 10 * time.Second // about one that worked and then failed
	dialDisputed = time.Minute      // about one that has failed more often since
	enoughRanges = 2                // address ranges that the failures come from, if peers are in as many
	enoughNo     = 3                // failures in a row that end an address, if there are as many peers
	waitFailed   = 25 * time.Second // for a relay, before "all addresses fail" becomes "unreachable"
	waitAny      = 45 * time.Second // for anything at all
	waitOthers   = time.Minute      // for more peers to confirm a failure
	dialOthers   = 30 * time.Second // about an address that failed, while there are peers that have not tried
	maxWitnesses = 8
)

// finding is what one peer found when it dialled one own address.
type finding struct {
	by attest.Key
	at time.Time
	ok bool

	from string // the address range of that peer, as [AddrRange] names it; "" if it does not matter
}

// record is all findings about one own address, newest last.
type record []finding

// add returns the record with one more finding.
func (r record) add(f finding) record {
	r = append(r, f)
	if len(r) <= maxFindings {
		return r
	}
	drop := 0 // not the newest success: any number of liars must not push it out
	if r.lastOK() == 0 {
		drop = 1
	}
	return slices.Delete(r, drop, drop+1)
}

// lastOK returns the index of the newest success, -1 for none.
func (r record) lastOK() int {
	for i, f := range slices.Backward(r) {
		if f.ok {
			return i
		}
	}
	return -1
}

// ranges returns how many address ranges the findings come from.
func (r record) ranges() int {
	seen := make(map[string]bool)
	for _, f := range r {
		seen[f.from] = true
	}
	return len(seen)
}

// crowd is who there is to dial.
type crowd struct {
	servers int       // peers that dial back
	ranges  int       // address ranges that these are in
	doubt   time.Time // what was found earlier does not outweigh what came later
}

// enough reports whether failures come from enough peers, and from enough places, to be believed.
func (c crowd) enough(r record) bool {
	return len(r) >= max(1, min(enoughNo, c.servers)) && r.ranges() >= min(enoughRanges, c.ranges)
}

// fresh returns the findings that still count.
func (r record) fresh(now time.Time) record {
	i := slices.IndexFunc(r, func(f finding) bool { return now.Sub(f.at) < findingLife })
	if i < 0 {
		return nil
	}
	return r[i:]
}

// worked reports whether others can dial the address: one could, not long ago or without enough failures since. A failure
// may be the other's fault, as some cannot send UDP, or a lie.
func (r record) worked(now time.Time, c crowd) bool {
	r = r.fresh(now)
	i := r.lastOK()
	if i < 0 {
		return false
	}
	if now.Sub(r[i].at) < workedLife && !r[i].at.Before(c.doubt) {
		return true
	}
	no := r[i+1:]
	return len(no) < enoughNo || no.ranges() < min(enoughRanges, c.ranges)
}

// failed reports whether the address is known not to work: nobody could, and these were enough, or nobody else says
// anything for long.
func (r record) failed(now time.Time, c crowd) bool {
	f := r.fresh(now)
	return len(f) > 0 && !r.worked(now, c) && (c.enough(f) || now.Sub(f[0].at) >= waitOthers)
}

// due returns when the address should be dialled next.
func (r record) due(now time.Time, c crowd) time.Time {
	r = r.fresh(now)
	n := len(r)
	switch {
	case n == 0 || r[n-1].at.Before(c.doubt):
		return now
	case r[n-1].ok:
		return r[n-1].at.Add(dialAgain)
	case r.worked(now, c) && n-1-r.lastOK() <= enoughNo:
		return r[n-1].at.Add(dialDoubted)
	case r.worked(now, c):
		return r[n-1].at.Add(dialDisputed)
	case n < maxFindings && !c.enough(r):
		return now
	case n < min(maxFindings, c.servers):
		return r[n-1].at.Add(dialOthers)
	}
	return r[n-1].at.Add(dialFailed)
}

// evidence is all that the verdict depends on.
type evidence struct {
	forced    market.Reach      // taken for granted, if not unknown
	lan       bool              // private addresses count
	records   map[string]record // by own address
	own       []string          // own addresses that others are to dial, in order
	inbound   finding           // LAN only: the newest connection from a peer that was not dialled first, and when it was made
	lasts     bool              // that connection is still there
	outside   bool              // peers beyond the LANs are there: what neighbours find says nothing about the verdict
	crowd     crowd             // who dials addresses that decide
	punched   finding           // the newest hole punch that succeeded
	relays    []attest.Key      // peers that hold a reservation
	met       time.Time         // first connection since the last recheck, or since nobody was connected; zero = nobody yet
	alone     bool              // nobody is connected, so that nobody could try
	nobodyOwn bool              // there is no address to dial, and there never will be: this peer does not listen
}

// judge returns what follows from the evidence. Since and the wires are left to the caller.
func judge(e evidence, now time.Time) Reach {
	r := Reach{Relays: slices.Clone(e.relays)}
	var yes, no record
	tried, allFailed := 0, true
	for _, a := range e.own {
		rec, decides := e.records[a].fresh(now), e.decides(a)
		worked, failed := rec.worked(now, e.crowdFor(a)), rec.failed(now, e.crowdFor(a))
		switch {
		case worked:
			r.Worked = append(r.Worked, a)
		case failed:
			r.Failed = append(r.Failed, a)
		}
		if !decides {
			continue
		}
		tried++
		switch {
		case worked:
			yes = append(yes, rec...)
		case failed:
			no = append(no, rec...)
		default:
			allFailed = false
		}
	}
	allFailed = allFailed && (tried > 0 || e.nobodyOwn)
	yes = slices.DeleteFunc(yes, func(f finding) bool { return !f.ok })
	no = slices.DeleteFunc(no, func(f finding) bool { return f.ok })
	punched := !e.punched.at.IsZero() && now.Sub(e.punched.at) < punchLife && len(e.relays) > 0
	switch {
	case e.forced != market.ReachUnknown:
		r.Verdict = e.forced
		r.CheckedAt = now
	case len(yes) > 0:
		r.Verdict = market.ReachDirect
		r.Witnesses, r.CheckedAt = witnesses(yes)
	case e.letIn(now, no, allFailed):
		r.Verdict = market.ReachDirect
		r.Witnesses, r.CheckedAt = witnesses(record{e.inbound})
	case punched:
		r.Verdict = market.ReachPunched
		r.Witnesses, r.CheckedAt = witnesses(record{e.punched})
	case len(e.relays) > 0:
		r.Verdict = market.ReachRelayed
		r.Witnesses, r.CheckedAt = slices.Clone(e.relays[:min(len(e.relays), maxWitnesses)]), now
	case e.met.IsZero(), e.alone:
		r.Verdict = market.ReachUnknown
	case allFailed && now.Sub(e.met) >= waitFailed, now.Sub(e.met) >= waitAny:
		r.Verdict = market.ReachNone
		r.Witnesses, r.CheckedAt = witnesses(no)
		if r.CheckedAt.IsZero() {
			r.CheckedAt = now // nobody could try; that it took too long is found now
		}
	}
	return r
}

// decides reports an own address that the verdict depends on: with peers beyond the LANs, none of a LAN.
func (e *evidence) decides(addr string) bool {
	if !e.outside {
		return true
	}
	m, err := ma.NewMultiaddr(addr)
	return err == nil && global(m)
}

// crowdFor returns who dials an address. Neighbours, who dial those of a LAN, are all in one place.
func (e *evidence) crowdFor(addr string) crowd {
	if e.decides(addr) {
		return e.crowd
	}
	return crowd{servers: 1, ranges: 1, doubt: e.crowd.doubt}
}

// letIn reports whether a neighbour's connection to this peer proves that it can be reached: on a LAN without outside
// peers, and unless all addresses were found not to work after it was made.
func (e *evidence) letIn(now time.Time, no record, allFailed bool) bool {
	if !e.lan || e.outside || e.inbound.at.IsZero() || !e.lasts && now.Sub(e.inbound.at) >= findingLife {
		return false
	}
	_, failed := witnesses(no)
	return !allFailed || !failed.After(e.inbound.at)
}

// witnesses returns who found it, newest first and each once, and when the newest did.
func witnesses(rec record) (by []attest.Key, at time.Time) {
	rec = slices.Clone(rec)
	slices.SortStableFunc(rec, func(a, b finding) int { return cmp.Compare(b.at.UnixNano(), a.at.UnixNano()) })
	for _, f := range rec {
		if at.IsZero() {
			at = f.at
		}
		if len(by) < maxWitnesses && !slices.Contains(by, f.by) {
			by = append(by, f.by)
		}
	}
	return by, at
}
