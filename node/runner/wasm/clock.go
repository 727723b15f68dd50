package wasm

import (
	"time"

	"github.com/tetratelabs/wazero/sys"
)

const (
	// clockEpoch is the guest's wall time at its start: 2022-01-01 UTC, in
	// Unix nanoseconds, the same as wazero's own fake clock.
	clockEpoch = 1640995200 * int64(time.Second)
	// clockStep is by how much each reading moves the clock, in nanoseconds.
	// A guest that waits by reading the clock over and over so gets on.
	clockStep = sys.ClockResolution(time.Microsecond)
)

// clock is the guest's time. It moves by its own readings and by the guest's
// sleeps only, so it is the same in each run. wazero's fake clock does not
// move in a sleep; a Go guest, which sleeps until its clock says so, would
// sleep hundreds of times as long. It is used by one goroutine.
type clock struct {
	ns int64 // since the guest's start
}

func (c *clock) nano() int64 {
	c.ns += int64(clockStep)
	return c.ns
}

func (c *clock) wall() (sec int64, nsec int32) {
	t := clockEpoch + c.nano()
	return t / int64(time.Second), int32(t % int64(time.Second))
}

// sleep really sleeps, so that a guest that waits costs no CPU time.
func (c *clock) sleep(ns int64) {
	if ns > 0 {
		time.Sleep(time.Duration(ns))
		c.ns += ns
	}
}
