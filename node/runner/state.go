package runner

import (
	"fmt"
	"time"
)

// Stream tells the two outputs of a job apart.
type Stream uint8

// The streams of a job.
const (
	Stdout Stream = iota + 1
	Stderr
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	}
	return fmt.Sprintf("stream(%d)", uint8(s))
}

// State says how a job ended; 0 is unset.
type State uint8

// The ways a job ends.
const (
	// Exited: the program ended by itself; ExitCode says with what.
	Exited State = iota + 1
	// LogLimit: it wrote more than LogBytes.
	LogLimit
	// MemoryLimit: it asked for more than MemBytes.
	MemoryLimit
	// DiskLimit: its files took more than DiskBytes.
	DiskLimit
	// Deadline: it ran for longer than the deadline.
	Deadline
	// Killed: the parent asked for it.
	Killed
	// Trapped: the sandbox stopped the program at a fault, such as a division
	// by zero.
	Trapped
	// Invalid: the module could not be run at all.
	Invalid
	// Crashed: the sandbox itself died; not the program's fault as far as is
	// known.
	Crashed
)

// String returns the state's name in lower_snake case.
func (s State) String() string {
	switch s {
	case Exited:
		return "exited"
	case LogLimit:
		return "output_limit"
	case MemoryLimit:
		return "memory_limit"
	case DiskLimit:
		return "disk_limit"
	case Deadline:
		return "deadline"
	case Killed:
		return "killed"
	case Trapped:
		return "trapped"
	case Invalid:
		return "invalid_module"
	case Crashed:
		return "crashed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Usage is what a job has used.
type Usage struct {
	CPU       time.Duration // user and system time of the sandbox and the guest in it
	Running   time.Duration // time since the start, pauses left out
	RSSBytes  uint64        // resident memory now, 0 after the end
	DiskBytes uint64        // size of all files it has written, as last looked at
	LogBytes  uint64        // output delivered to Log
}

// Result says how a job ended.
type Result struct {
	State       State
	ExitCode    int           // set for Exited, otherwise 0
	CPU         time.Duration // user and system time in all
	Running     time.Duration // from start to end, pauses left out
	MaxRSSBytes uint64        // highest resident memory seen, 0 if not measured
	// Reason is one line for people: the trap, the limit, or what Kill was
	// given. It may hold text of the module's author. It is empty for Exited.
	Reason string
}
