package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/doctor"
	"github.com/lacuna-network/lacuna/p2p"
)

// The exit codes. The commands run and wait pass on the job's own exit code; for them, these are raised by jobOffset,
// but for exitInterrupted, so that they are told apart from what the job, timeout, docker and signals use.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNoOffer     = 3
	exitStopped     = 4
	exitVerify      = 5
	exitNotRunning  = 6
	exitInterrupted = 130

	jobOffset = 200
)

// exitError is an error that knows its exit code, its name for scripts and what to do next.
type exitError struct {
	exit    int
	code    string // snake_case, for -o json
	err     error
	hint    string // may be empty
	details any    // may be nil; JSON only
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// usageError reports a command line or a config that cannot be used.
func usageError(hint, format string, args ...any) error {
	return &exitError{exit: exitUsage, code: "usage", err: fmt.Errorf(format, args...), hint: hint}
}

// jobExit ends run and wait with the job's own exit code; there is nothing more to print.
type jobExit int

func (e jobExit) Error() string { return fmt.Sprintf("the job ended with exit code %d", int(e)) }

// classify returns err as the error it is for the outside.
func (c *cli) classify(err error) *exitError {
	var e *exitError
	var sent *api.Error
	var port *p2p.PortError
	switch {
	case errors.As(err, &e):
		return e
	case c.interrupted.Load() && errors.Is(err, context.Canceled):
		return &exitError{exit: exitInterrupted, code: "interrupted", err: errors.New("interrupted")}
	case notRunning(err):
		return &exitError{exit: exitNotRunning, code: "not_running", err: err, hint: "start it with: lacuna up -d"}
	case errors.As(err, &sent):
		e := &exitError{exit: exitFailed, code: sent.Code, err: err, hint: sent.Hint}
		if sent.Details != nil {
			e.details = sent.Details
		}
		if sent.Status == http.StatusBadRequest {
			e.exit = exitUsage
		}
		return e
	case errors.As(err, &port):
		e := &exitError{exit: exitFailed, code: "port_taken", err: err, hint: doctor.PortHint(port)}
		if !port.Taken() {
			e.code = "port_forbidden"
		}
		return e
	case errors.Is(err, ledger.ErrProof):
		return &exitError{exit: exitVerify, code: "verification_failed", err: err}
	}
	return &exitError{exit: exitFailed, code: "failed", err: err}
}

// report prints err on stderr, in words or as JSON, and returns the exit code. forJob says that the command passes on
// the exit code of a job.
func (c *cli) report(err error, forJob bool) int {
	if err == nil {
		return exitDone
	}
	var own jobExit
	if errors.As(err, &own) {
		return int(own)
	}
	if errors.Is(err, found{}) {
		return exitFailed
	}
	e := c.classify(err)
	switch c.format {
	case "json", "jsonl":
		var hint *string // null = none
		if e.hint != "" {
			hint = &e.hint
		}
		b, _ := json.Marshal(map[string]any{"error": map[string]any{
			"code": e.code, "message": e.Error(), "hint": hint, "details": e.details}})
		fmt.Fprintln(c.stderr, string(b))
	default:
		// Several faults at once are several lines; only the first gets the word.
		fmt.Fprintln(c.stderr, c.paint(red, "error:")+" "+strings.ReplaceAll(e.Error(), "\n", "\n       "))
		if e.hint != "" {
			fmt.Fprintln(c.stderr, c.paint(bold, "hint:")+"  "+e.hint)
		}
	}
	if forJob && e.exit < exitInterrupted {
		return e.exit + jobOffset
	}
	return e.exit
}
