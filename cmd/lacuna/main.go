// Command lacuna is the one binary of every peer: it sells idle GPUs, rents them, and checks what was paid for.
//
// The command only parses flags, prints and picks exit codes. What it shows comes from the daemon through [api.Client];
// what it runs itself is a [node.Node], in the foreground by up, for the time of one job by run. Verifying receipts,
// checking a config file and handling the identity need no daemon.
//
// Results go to stdout, progress and logs to stderr. Every flag can be given as LACUNA_<FLAG> in the environment; the
// command line wins. The exit codes stand in errors.go.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lacuna-network/lacuna/node/runner/wasm"
)

func main() {
	// The sandbox of a job is this binary again; nothing may come before it is told apart.
	if code, ok := wasm.ChildMain(); ok {
		os.Exit(code)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := &cli{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.LookupEnv, now: time.Now,
		inTTY: isTerminal(os.Stdin), outTTY: isTerminal(os.Stdout), errTTY: isTerminal(os.Stderr),
		newNode: newNode,
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		c.interrupted.Store(true)
		stop()
		<-signals // twice: at once
		fmt.Fprintln(os.Stderr)
		os.Exit(exitInterrupted)
	}()
	os.Exit(c.execute(ctx, os.Args[1:]))
}

// isTerminal reports whether f is a terminal. The null device is a character device too, and none.
func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(st, null)
}
