// Command bench measures the program against itself and prints one table: how long a job takes from the command to its
// first output, how fast receipts become durable and offers are checked, what an idle peer costs, how fast bulk data flows,
// and what auctions, gossip and look-ups take where the network decides.
//
//	go run ./scripts/bench [-json] [-peers 20] [-jobs 30] [-only jobs,rates,memory,peers,bulk,punched,auctions,gossip,asks,crowds,program]
//
// What can be is a ratio to the same work without us, both measured in turns in one run, so that it says the same on a
// slow and on a fast machine. The table's notes define each figure. Figures with an aim say whether it is met; the exit
// code does not depend on that, since a busy machine may miss any aim.
//
// It builds the binary, runs real peers as processes in a temporary folder and leaves nothing behind. It needs the Go
// tool and the working directory inside the repository, and is run by people; CI runs only its tests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	root        string // of the repository
	dir         string // of this run, removed at its end
	binary      string // the program, built for this run
	peers, jobs int
	report      report
	progress    io.Writer
}

// section is a part of the run that can be chosen by name.
type section struct {
	name string
	run  func(*bench, context.Context) error
}

func sections() []section {
	return []section{{"jobs", (*bench).measureJobs}, {"rates", (*bench).measureRates}, {"memory", (*bench).measureMemory}, {"peers", (*bench).measurePeers}, {"bulk", (*bench).measureBulk},
		{"punched", (*bench).measurePunched}, {"auctions", (*bench).measureAuctions}, {"gossip", (*bench).measureGossip}, {"asks", (*bench).measureAsks},
		{"crowds", (*bench).measureCrowds}, {"program", (*bench).measureProgram}}
}

// names returns the names of all sections.
func names() string {
	var out []string
	for _, s := range sections() {
		out = append(out, s.name)
	}
	return strings.Join(out, ", ")
}

func main() {
	if n, err := strconv.Atoi(os.Getenv(crowdVar)); err == nil { // this process holds the peers of another one's run
		if err := runCrowd(n, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	asJSON := fs.Bool("json", false, "print one JSON document in place of the table")
	b := &bench{progress: stderr}
	fs.IntVar(&b.peers, "peers", 20, "providers in the network of the jobs")
	fs.IntVar(&b.jobs, "jobs", 30, "jobs of each kind")
	only := fs.String("only", "", "measure these parts only: "+names())
	if err := fs.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if b.peers < 1 || b.peers > 60 || b.jobs < 1 || b.jobs > 1000 {
		return errors.New("want 1 to 60 peers and 1 to 1000 jobs")
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	var errs []error
	for _, s := range chosen { // a part that fails does not take the others' figures with it
		if err := s.run(b, ctx); err != nil {
			errs = append(errs, fmt.Errorf("measure %s: %w", s.name, err))
		}
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return errors.Join(append(errs, enc.Encode(b.report))...)
	}
	return errors.Join(append(errs, b.report.print(stdout))...)
}

// choose returns the sections of that list, all for "".
func choose(list string) ([]section, error) {
	all := sections()
	if list == "" {
		return all, nil
	}
	var out []section
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no part %q; there are %s", name, names())
		}
		out = append(out, all[i])
	}
	return out, nil
}

// prepare finds the repository and builds the binary as it is released: stripped.
func (b *bench) prepare(ctx context.Context) (err error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	b.root = filepath.Dir(strings.TrimSpace(string(mod)))
	if b.dir, err = os.MkdirTemp("", "lacuna-bench-"); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	b.report.Machine = machine{Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), At: time.Now().UTC().Truncate(time.Second)}
	b.binary = filepath.Join(b.dir, "lacuna")
	b.say("building the binary")
	if err := b.build(ctx, b.binary, "-ldflags=-s -w"); err != nil {
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	return nil
}

func (b *bench) build(ctx context.Context, to string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-trimpath"}, flags...), "-o", to, "./cmd/lacuna")...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }
