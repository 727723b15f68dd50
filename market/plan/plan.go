// Package plan is the provider's timetable: which device is held or leased, by what, and until when.
//
// [Plan] is plain state with rules: an award holds its devices for a short time, a start takes them, an end frees
// them. It is pure, takes the time as an argument, and is not safe for concurrent use; the provider guards it.
package plan

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// ErrTaken means that a device is held or leased already.
var ErrTaken = errors.New("device is taken")

type slot struct {
	lease attest.Digest
	until time.Time // end of a hold; zero = leased until released
}

// Plan is the state of all devices of one provider. Use [New].
type Plan struct{ slots map[string]slot }

// New returns a plan in which every device is free.
func New() *Plan { return &Plan{slots: map[string]slot{}} }

// Free reports whether nobody has the device at that time.
func (p *Plan) Free(device string, now time.Time) bool {
	s, ok := p.slots[device]
	return !ok || (!s.until.IsZero() && !now.Before(s.until))
}

// Hold reserves the devices for a lease until then, all or none. A device that the lease has taken stays taken. It
// returns an error that wraps [ErrTaken].
func (p *Plan) Hold(devices []string, lease attest.Digest, now, until time.Time) error {
	for _, d := range devices {
		if s := p.slots[d]; !p.Free(d, now) && s.lease != lease {
			return fmt.Errorf("%w: %s by lease %s", ErrTaken, d, s.lease.Short())
		}
	}
	for _, d := range devices {
		if s, ok := p.slots[d]; ok && s.lease == lease && s.until.IsZero() {
			continue // a second copy of the award came after the start
		}
		p.slots[d] = slot{lease, until}
	}
	return nil
}

// Take makes the hold of a lease last until [Plan.Release]. It returns an error that wraps [ErrTaken] if the hold ran
// out and somebody else has a device now.
func (p *Plan) Take(devices []string, lease attest.Digest, now time.Time) error {
	return p.Hold(devices, lease, now, time.Time{})
}

// Release frees what the lease has.
func (p *Plan) Release(lease attest.Digest) {
	for d, s := range p.slots {
		if s.lease == lease {
			delete(p.slots, d)
		}
	}
}
