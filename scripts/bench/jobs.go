package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/testnet"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

const (
	netWait   = 3 * time.Minute // for all peers to start: they share the cores
	asksWait  = time.Minute     // for all asks to be found
	jobWait   = time.Minute     // for one job
	settle    = 3 * time.Second // after the start, so that its work is not measured
	poll      = 100 * time.Millisecond
	simulated = `[{"model":"RTX 4090","price":"0.21 USD/h","place":"eu/de","idle":{"util":0,"power_mw":21000,"mem_mib":12,"temp_c":38}}]`
)

// taken is how long the parts of one job took, in ms.
type taken struct {
	first   float64 // command started → first byte of the job's output on its stdout
	post    float64 // command started → job accepted by the daemon
	prepare float64 // → bid signed
	auction float64 // → award countersigned
	start   float64 // → first process start heard of
	output  float64 // → first output at the renter's daemon
	show    float64 // → on the command's stdout
	needed  float64 // what the auction cannot do without; 0 if it closed early
	offers  float64
}

// jobsNet is a network with those that post jobs.
type jobsNet struct {
	*testnet.Net
	binary    string
	renters   []testnet.Peer
	providers []attest.Key
}

// measureJobs runs jobs one after the other through the command line, as a user does.
func (b *bench) measureJobs(ctx context.Context) (err error) {
	n, err := b.startJobsNet(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	module, _ := examples.Digits()
	hello, large := filepath.Join(b.dir, "hello.wasm"), filepath.Join(b.dir, "digits.wasm")
	if err := errors.Join(os.WriteFile(hello, helloModule(), 0o600), os.WriteFile(large, module, 0o600)); err != nil {
		return err
	}
	b.say("one job at each provider, so that the module is cached")
	first, others := n.renters[0], n.renters[1:]
	for _, k := range n.providers {
		if _, err := n.one(ctx, first, "--provider", k.String(), hello); err != nil {
			return err
		}
	}
	b.say("%d jobs of renters that know nobody yet", b.jobs)
	var fresh []taken
	for i := range b.jobs {
		t, err := n.one(ctx, others[i/len(n.providers)], "--provider", n.providers[i%len(n.providers)].String(), hello)
		if err != nil {
			return err
		}
		fresh = append(fresh, t)
	}
	b.say("%d jobs of a renter that knows all", b.jobs)
	usual, err := n.some(ctx, b.jobs, first, hello)
	if err != nil {
		return err
	}
	b.say("%d jobs with a module of %d kB", b.jobs, len(module)>>10)
	args := []string{"--provider", n.providers[0].String(), large, "-h"} // it prints its flags and ends
	if _, err := n.one(ctx, first, args...); err != nil {
		return err
	}
	big, err := n.some(ctx, b.jobs, first, args...)
	if err != nil {
		return err
	}
	b.addJobs(fresh, usual, big)
	return nil
}

// addJobs reports the jobs of fresh renters, of one with experience, and those with a large module.
func (b *bench) addJobs(fresh, usual, big []taken) {
	note := fmt.Sprintf("`lacuna run` of a module that prints a line, %d providers and the renters on this machine, the module cached at each provider; "+
		"from the start of the command to the first byte on its stdout. ", b.peers)
	b.addParts("new renter: run → first output byte", fresh, note+"The renter has no experience of the provider, so the auction runs its whole window. The parts follow.")
	var ratios []float64
	for _, t := range fresh {
		if t.needed > 0 {
			ratios = append(ratios, t.auction/t.needed)
		}
	}
	b.report.add("bid → award / what it needs", "", ratios, &aim{AtMost: 1.5},
		"Bid signed → award countersigned, over the auction's window plus one round trip (award and its answer; bid and offers cross within "+
			"the window). The round trip is the shortest that the renter measured, as on one machine longer ones measure its load. Of the new renters; auctions that an offer closed early are left out.")
	b.report.add("offers per auction", "", pick(fresh, func(t taken) float64 { return t.offers }), nil, "Offers that the renter received and verified within the window.")
	b.addParts("known provider: run → first output byte", usual, note+"The renter has experience of all, so the first good offer closes the auction. The parts follow.")
	b.report.add("3 MB module: submission → first output", "ms",
		pick(big, func(t taken) float64 { return t.prepare + t.auction + t.start + t.output }), &aim{AtMost: 500},
		"At a known provider that has the demo's module in its cache; until the output is at the renter's daemon. Two parts follow.")
	def := "Parts of the line above: module digested and stored; module loaded and started."
	b.report.add("  submission → bid", "ms", pick(big, func(t taken) float64 { return t.prepare }), nil, def)
	b.report.add("  running → output at the daemon", "ms", pick(big, func(t taken) float64 { return t.output }), nil, def)
}

func (b *bench) addParts(name string, all []taken, def string) {
	b.report.add(name, "ms", pick(all, func(t taken) float64 { return t.first }), &aim{AtMost: 500}, def)
	for _, p := range []struct {
		name string
		part func(taken) float64
	}{
		{"  command → submission", func(t taken) float64 { return t.post }},
		{"  submission → bid", func(t taken) float64 { return t.prepare }},
		{"  bid → award", func(t taken) float64 { return t.auction }},
		{"  award → running", func(t taken) float64 { return t.start }},
		{"  running → output at the daemon", func(t taken) float64 { return t.output }},
		{"  → on the command's stdout", func(t taken) float64 { return t.show }},
	} {
		b.report.add(p.name, "ms", pick(all, p.part), nil, def)
	}
}

func pick(all []taken, f func(taken) float64) []float64 {
	out := make([]float64, len(all))
	for i, t := range all {
		out[i] = f(t)
	}
	return out
}

// startJobsNet starts the network and waits until a renter finds all asks.
func (b *bench) startJobsNet(ctx context.Context) (*jobsNet, error) {
	// One that fills the caches and then knows all, and as many as it takes that each meets a provider once.
	renters := 1 + (b.jobs+b.peers-1)/b.peers
	b.say("starting %d providers and %d renters", b.peers, renters)
	var specs []testnet.PeerSpec
	for i := range b.peers {
		specs = append(specs, testnet.PeerSpec{Name: fmt.Sprintf("p%d", i+1), Provide: true, GPUs: simulated})
	}
	for i := range renters {
		specs = append(specs, testnet.PeerSpec{Name: fmt.Sprintf("renter%d", i+1)})
	}
	net, err := testnet.Up(ctx, testnet.Options{Dir: filepath.Join(b.dir, "jobs"), Binary: b.binary, Network: "test-bench", Peers: specs, Timeout: netWait})
	if err != nil {
		return nil, err
	}
	n := &jobsNet{Net: net, binary: b.binary}
	if err := n.meet(ctx); err != nil {
		return nil, errors.Join(err, net.Close())
	}
	return n, nil
}

func (n *jobsNet) meet(ctx context.Context) error {
	for _, p := range n.Peers() {
		if !p.Provide {
			n.renters = append(n.renters, p)
			continue
		}
		st, err := p.Client.Status(ctx)
		if err != nil {
			return err
		}
		n.providers = append(n.providers, st.Peer)
	}
	ctx, cancel := context.WithTimeout(ctx, asksWait)
	defer cancel()
	for _, r := range n.renters {
		if err := n.findAll(ctx, r); err != nil {
			return err
		}
	}
	return sleep(ctx, settle)
}

// findAll waits until the renter finds every ask.
func (n *jobsNet) findAll(ctx context.Context, r testnet.Peer) error {
	found := map[attest.Key]bool{}
	for len(found) < len(n.providers) {
		err := r.Client.Asks(ctx, api.AskFilter{Limit: 4 * len(n.providers)}, func(a api.AskView) error { found[a.Peer] = true; return nil })
		if err == nil {
			err = sleep(ctx, poll)
		}
		if err != nil {
			return fmt.Errorf("%s found %d of %d asks: %w", r.Name, len(found), len(n.providers), err)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (n *jobsNet) some(ctx context.Context, count int, r testnet.Peer, args ...string) ([]taken, error) {
	var all []taken
	for range count {
		t, err := n.one(ctx, r, args...)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// one runs a job to its end.
func (n *jobsNet) one(ctx context.Context, r testnet.Peer, args ...string) (taken, error) {
	ctx, cancel := context.WithTimeout(ctx, jobWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.binary, append([]string{"--home", r.Home, "run", "--yes", "--gpus", "1"}, args...)...)
	var said tail
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return taken{}, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return taken{}, err
	}
	_, _ = io.ReadFull(stdout, make([]byte, 1)) // ends without one if the job writes to stderr only
	seen := time.Now()
	if _, err := io.Copy(io.Discard, stdout); err != nil {
		return taken{}, errors.Join(err, cmd.Wait())
	}
	if werr := cmd.Wait(); werr != nil {
		return taken{}, fmt.Errorf("run a job: %w\n%s", werr, said)
	}
	return parts(ctx, r.Client, began, seen)
}

// tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-2000):]
	return len(p), nil
}

// parts reads from the renter's record of its newest job how long each part took.
func parts(ctx context.Context, c *api.Client, began, seen time.Time) (t taken, err error) {
	jobs, err := c.Jobs(ctx)
	if err != nil {
		return t, err
	}
	if len(jobs) == 0 || jobs[0].CreatedAt.Before(began) || jobs[0].AuctionMS == nil || jobs[0].ToRunMS == nil || jobs[0].ToOutMS == nil {
		return t, errors.New("the renter does not know how long the job took")
	}
	j := jobs[0]
	var awarded time.Time
	err = c.Events(ctx, j.ID, 0, false, func(e renter.Event) error {
		if e.Kind == renter.EvAward {
			awarded = e.At
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	toAward := ms(awarded.Sub(j.CreatedAt))
	t = taken{first: ms(seen.Sub(began)), post: ms(j.CreatedAt.Sub(began)), prepare: max(0, toAward-float64(*j.AuctionMS)), auction: float64(*j.AuctionMS),
		start: max(0, float64(*j.ToRunMS)-toAward), output: float64(*j.ToOutMS - *j.ToRunMS)}
	t.show = t.first - t.post - float64(*j.ToOutMS)
	return t, need(ctx, c, j.ID, &t)
}

// need fills in what the job's auction needed at least.
func need(ctx context.Context, c *api.Client, job string, t *taken) error {
	auctions, err := c.Auctions(ctx, job)
	if err != nil {
		return err
	}
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var rtts []float64
	for _, p := range st.Peers {
		if p.LatencyMS != nil {
			rtts = append(rtts, *p.LatencyMS)
		}
	}
	if len(auctions) == 0 || len(rtts) == 0 {
		return errors.New("the renter keeps no auction of the job, or no latency of a peer")
	}
	a := auctions[len(auctions)-1]
	t.offers = float64(a.Received)
	if a.ClosedBy == string(auction.ByWindow) {
		t.needed = float64(a.WindowMS) + slices.Min(rtts)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
