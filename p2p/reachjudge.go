package p2p

import (
	"cmp"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// The rules of the verdict.
const (
	maxFindings  = 8                // kept of one address, newest last
	findingLife  = time.Hour        // an older finding says nothing about now
	punchLife    = time.Hour        // of a hole punch as a proof that punching works here
	dialAgain    = 15 * time.Minute // about an address that worked; most routers keep a mapping for longer or for good
	dialFailed   = 5 * time.Minute  // about one that did not
	dialDoubted  = 10 * time.Second // about one that worked and then failed
	enoughNo     = 3                // failures in a row that end an address, if there are as many peers
	waitFailed   = 25 * time.Second // for a relay, before "all addresses fail" becomes "unreachable"
	waitAny      = 45 * time.Second // for anything at all
	maxWitnesses = 8
)

// finding is what one peer found when it dialled one own address.
type finding struct {
	by attest.Key
	at time.Time
	ok bool
}

// record is all findings about one own address, newest last.
type record []finding

// add returns the record with one more finding.
func (r record) add(f finding) record {
	r = append(r, f)
	return r[max(0, len(r)-maxFindings):]
}

// fresh returns the findings that still count.
func (r record) fresh(now time.Time) record {
	i := slices.IndexFunc(r, func(f finding) bool { return now.Sub(f.at) < findingLife })
	if i < 0 {
		return nil
	}
	return r[i:]
}

// worked reports whether others can dial the address: one of the last three could. One or two failures after a success
// are a doubt, since they may be the others' fault: some cannot send UDP.
func (r record) worked(now time.Time) bool {
	r = r.fresh(now)
	return slices.ContainsFunc(r[max(0, len(r)-enoughNo):], func(f finding) bool { return f.ok })
}

// failed reports whether the address is known not to work.
func (r record) failed(now time.Time) bool { return len(r.fresh(now)) > 0 && !r.worked(now) }

// due returns when the address should be dialled next, if there are so many peers to do it.
func (r record) due(now time.Time, servers int) time.Time {
	r = r.fresh(now)
	n := len(r)
	switch {
	case n == 0:
		return now
	case r[n-1].ok:
		return r[n-1].at.Add(dialAgain)
	case r.worked(now):
		return r[n-1].at.Add(dialDoubted)
	case n < min(enoughNo, servers):
		return now
	}
	return r[n-1].at.Add(dialFailed)
}

// evidence is all that the verdict depends on.
type evidence struct {
	forced    market.Reach      // taken for granted, if not unknown
	lan       bool              // private addresses count
	records   map[string]record // by own address
	own       []string          // own addresses that others are to dial, in order
	inbound   finding           // LAN only: the newest connection from a peer that was not dialled first
	punched   finding           // the newest hole punch that succeeded
	relays    []attest.Key      // peers that hold a reservation
	met       time.Time         // first connection since the last recheck; zero = nobody to dial
	nobodyOwn bool              // there is no address to dial, and there never will be: this peer does not listen
}

// judge returns what follows from the evidence. Since and the wires are left to the caller.
func judge(e evidence, now time.Time) Reach {
	r := Reach{Relays: slices.Clone(e.relays)}
	var yes, no record
	allFailed := len(e.own) > 0 || e.nobodyOwn
	for _, a := range e.own {
		rec := e.records[a].fresh(now)
		switch {
		case rec.worked(now):
			r.Worked = append(r.Worked, a)
			yes = append(yes, rec...)
		case rec.failed(now):
			r.Failed = append(r.Failed, a)
			no = append(no, rec...)
		default:
			allFailed = false
		}
	}
	yes = slices.DeleteFunc(yes, func(f finding) bool { return !f.ok })
	punched := !e.punched.at.IsZero() && now.Sub(e.punched.at) < punchLife && len(e.relays) > 0
	switch {
	case e.forced != market.ReachUnknown:
		r.Verdict = e.forced
		r.CheckedAt = now
	case len(yes) > 0:
		r.Verdict = market.ReachDirect
		r.Witnesses, r.CheckedAt = witnesses(yes)
	case e.lan && !e.inbound.at.IsZero() && now.Sub(e.inbound.at) < findingLife:
		r.Verdict = market.ReachDirect
		r.Witnesses, r.CheckedAt = witnesses(record{e.inbound})
	case punched:
		r.Verdict = market.ReachPunched
		r.Witnesses, r.CheckedAt = witnesses(record{e.punched})
	case len(e.relays) > 0:
		r.Verdict = market.ReachRelayed
		r.Witnesses, r.CheckedAt = slices.Clone(e.relays[:min(len(e.relays), maxWitnesses)]), now
	case e.met.IsZero():
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
