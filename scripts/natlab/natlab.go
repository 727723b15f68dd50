//go:build linux

// Command natlab runs real peers behind real routers and prints who can work for whom, and how.
//
//	go run ./scripts/natlab [-only home,symmetric,relay-restart] [-json] [-keep] [-binary FILE]
//
// It makes an internet out of network namespaces of this machine: a link with addresses that look public, hubs on it, and
// for each kind of place (see kinds) a provider and a renter, each behind a router of its own. No packet leaves the
// namespaces. Then it tells three things: what each peer found about its own reachability; for every pair of a provider's
// and a renter's place whether a job was done, over which path and after how long, or for which reason it was refused;
// and how scenes end, in which routers, addresses and hubs change. What must come out stands in the code (see expect):
// the exit code is 1 if anything else did.
//
// It needs Linux, root, the programs ip, iptables and ip6tables, and the go command unless -binary names the program to
// test. It ends every process that it started and removes the namespaces and files, also after an interrupt; what a killed
// run has left is removed by the next one. The test of this package runs four jobs; CI runs the command.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// verdictWait is how long after its start a peer may take to know how others reach it.
const verdictWait = 60 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "natlab:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// pair is one job to run: the kinds of the provider's and the renter's place.
type pair struct{ provider, renter string }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (ok bool, err error) {
	fs := flag.NewFlagSet("natlab", flag.ContinueOnError)
	fs.SetOutput(stderr)
	asJSON := fs.Bool("json", false, "print one JSON document in place of the tables")
	keep := fs.Bool("keep", false, "leave the peers running until this program is interrupted")
	binary := fs.String("binary", "", "the `program` to test; the default is built from this tree")
	only := fs.String("only", "", "run these kinds of places and scenes only, a list with commas")
	if err := fs.Parse(args); err != nil {
		return false, err
	}
	pairs, stories, err := choose(*only)
	if err != nil {
		return false, err
	}
	l, err := newLab(ctx, ".", *binary, stderr)
	defer func() { err = errors.Join(err, l.close()) }()
	if err != nil {
		return false, err
	}
	r, err := l.measure(ctx, pairs, stories)
	if err != nil {
		return false, err
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = r.print(stdout)
	}
	if *keep && err == nil {
		fmt.Fprintf(stderr, "homes are in %s, namespaces begin with %s; interrupt to end\n", l.dir, l.world.prefix)
		<-ctx.Done()
	}
	return len(r.faults()) == 0, err
}

// choose returns the jobs and scenes of a list of names, all for an empty list.
func choose(list string) (pairs []pair, stories []story, err error) {
	var chosen []string
	if list == "" {
		for _, k := range kinds() {
			chosen = append(chosen, k.name)
		}
		return product(chosen), scenes(), nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if _, ok := kindOf(name); ok {
			chosen = append(chosen, name)
			continue
		}
		i := slices.IndexFunc(scenes(), func(s story) bool { return s.name == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("no kind of place and no scene is called %q", name)
		}
		stories = append(stories, scenes()[i])
	}
	return product(chosen), stories, nil
}

// product returns all pairs of kinds, in rounds: within a round, no provider and no renter has two jobs.
func product(names []string) []pair {
	var out []pair
	for round := range names {
		for i := range names {
			out = append(out, pair{names[(i+round)%len(names)], names[i]})
		}
	}
	return out
}

// measure runs the jobs and plays the scenes.
func (l *lab) measure(ctx context.Context, pairs []pair, stories []story) (*report, error) {
	r := &report{}
	if err := l.people(ctx, pairs); err != nil {
		return nil, err
	}
	l.say("%d peers are up; they find out how others reach them", len(l.all())+len(l.hubs))
	if err := l.verdicts(ctx, r); err != nil {
		return nil, err
	}
	l.say("%d jobs", len(pairs))
	r.Cells = make([]cell, len(pairs))
	index := make([]int, len(pairs))
	for i := range pairs {
		index[i] = i
	}
	if err := each(index, func(i int) (err error) {
		r.Cells[i], err = l.cell(ctx, pairs[i])
		return err
	}); err != nil {
		return nil, err
	}
	for i := range r.Verdicts {
		p, err := l.named(r.Verdicts[i].Peer).status(ctx)
		if err != nil {
			return nil, err
		}
		v := &r.Verdicts[i]
		v.Later, v.UDP, v.TCP, v.Relays = p.Reachability.Verdict, p.Reachability.UDP, p.Reachability.TCP, len(p.Reachability.Relays)
	}
	for _, s := range stories {
		r.Scenes = append(r.Scenes, l.play(ctx, s))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return r, nil
}

// people starts the peers of the pairs.
func (l *lab) people(ctx context.Context, pairs []pair) error {
	var wanted [][2]string
	for _, p := range pairs {
		for _, w := range [][2]string{{provider, p.provider}, {renting, p.renter}} {
			if !slices.Contains(wanted, w) {
				wanted = append(wanted, w)
			}
		}
	}
	return each(wanted, func(w [2]string) error {
		_, err := l.peer(ctx, w[0], w[1])
		return err
	})
}

// verdicts waits until every peer knows how others reach it.
func (l *lab) verdicts(ctx context.Context, r *report) error {
	for _, p := range slices.Concat(l.hubs, l.all()) {
		word, after, err := p.verdict(ctx, verdictWait)
		if err != nil {
			return err
		}
		v := verdict{Peer: p.name, Place: p.kind.name, Verdict: word, AfterMS: after.Milliseconds()}
		want := p.kind.verdicts
		if p.kind.name == "" {
			want = []string{"direct"} // a hub
		}
		if !slices.Contains(want, word) {
			v.Faults = append(v.Faults, fmt.Sprintf("the verdict is %s, want %s", word, strings.Join(want, " or ")))
		}
		r.Verdicts = append(r.Verdicts, v)
	}
	return nil
}

// named returns a peer or hub.
func (l *lab) named(name string) *peer {
	all := slices.Concat(l.hubs, l.all())
	return all[slices.IndexFunc(all, func(p *peer) bool { return p.name == name })]
}

// cell runs the job of one pair.
func (l *lab) cell(ctx context.Context, want pair) (cell, error) {
	p, err := l.peer(ctx, provider, want.provider)
	if err != nil {
		return cell{}, err
	}
	r, err := l.peer(ctx, renting, want.renter)
	if err != nil {
		return cell{}, err
	}
	got, err := l.run(ctx, r, p, task{})
	if err != nil {
		return cell{}, err
	}
	c := got.cell(p.kind, r.kind)
	l.say("provider %s, renter %s: %s, %s %v", want.provider, want.renter, c.State, c.Path, c.Faults)
	if len(c.Faults) > 0 {
		l.say("the log of %s ends with\n%s\nthat of %s with\n%s", p.name, p.tail(20), r.name, r.tail(20))
	}
	return c, nil
}

// cell holds a job against what is expected.
func (r ran) cell(p, q kind) cell {
	want, why := expect(p, q)
	c := cell{Provider: p.name, Renter: q.name, Want: want, Why: why, State: string(r.job.State), Path: r.path, OutputMS: r.job.ToOutMS,
		TookMS: r.took.Milliseconds(), Reason: r.reason, Faults: r.faults}
	switch done := c.State == "succeeded"; {
	case want == straight && !done:
		c.Faults = append(c.Faults, fmt.Sprintf("the job is %s (%s), although %s", c.State, c.Reason, why))
	case want == straight && c.Path != "direct" && c.Path != "hole-punched":
		c.Faults = append(c.Faults, fmt.Sprintf("the path is %s, although %s", c.Path, why))
	case want == refused && done:
		c.Faults = append(c.Faults, "the job is done, but there can be no way: "+why)
	}
	return c
}
