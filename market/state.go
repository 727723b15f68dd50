package market

import (
	"fmt"
	"time"
)

// LeaseState is where a lease is in its life. 0 means not set.
type LeaseState uint8

// The states of a lease. Void, Done, Failed and Lost are final.
const (
	Offered  LeaseState = iota + 1 // an offer stands
	Awarded                        // both signed; the devices are held
	Starting                       // the start came; inputs are staged, nothing is billed
	Running                        // the process runs
	Paused                         // the process stands still
	Void                           // no start came in time; nobody's fault
	Done                           // the job ran to its end
	Failed                         // it ended before, by a limit, a fault or on request
	Lost                           // the other side was not seen again
)

var leaseStateNames = [...]string{
	Offered: "offered", Awarded: "awarded", Starting: "starting", Running: "running", Paused: "paused",
	Void: "void", Done: "done", Failed: "failed", Lost: "lost",
}

// String returns the state's name in JSON and in print.
func (s LeaseState) String() string {
	if int(s) < len(leaseStateNames) && leaseStateNames[s] != "" {
		return leaseStateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText returns the state's name.
func (s LeaseState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Final reports whether nothing comes after s.
func (s LeaseState) Final() bool { return s >= Void }

// LeaseEvent is what may happen to a lease. 0 means not set.
type LeaseEvent uint8

// The events in a lease's life.
const (
	EvAward   LeaseEvent = iota + 1 // both signatures are stored
	EvStart                         // the first work frame
	EvReady                         // the process runs
	EvPause                         // it was paused
	EvResume                        // it runs again
	EvFinish                        // the process ended by itself
	EvStop                          // a limit, a fault, the owner or the renter ended it
	EvSilence                       // the other side was not heard of for too long
	EvExpire                        // the state's own deadline passed
)

// next is the life of a lease, the same for both sides and the store. A missing entry is an event that cannot happen
// in that state. EvStop, a cancel, is valid in every state that is not final.
var next = map[LeaseState]map[LeaseEvent]LeaseState{
	Offered:  {EvAward: Awarded, EvStop: Void, EvExpire: Void},
	Awarded:  {EvStart: Starting, EvStop: Void, EvExpire: Void, EvSilence: Void},
	Starting: {EvReady: Running, EvStop: Failed, EvExpire: Failed, EvSilence: Lost},
	Running:  {EvPause: Paused, EvFinish: Done, EvStop: Failed, EvSilence: Lost, EvExpire: Failed},
	Paused:   {EvResume: Running, EvFinish: Done, EvStop: Failed, EvSilence: Lost, EvExpire: Failed},
}

// Next returns the state after the event, or an error if the event cannot happen in s.
func Next(s LeaseState, e LeaseEvent) (LeaseState, error) {
	if n, ok := next[s][e]; ok {
		return n, nil
	}
	return s, fmt.Errorf("lease is %s: event %d cannot happen", s, e)
}

// StageMax bounds the time from a lease's start until its process runs; it is free.
const StageMax = 10 * time.Minute
