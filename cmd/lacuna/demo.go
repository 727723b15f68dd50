package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/testnet"
	"github.com/lacuna-network/lacuna/scripts/examples"
)

// killWinner is the one fault that the demo knows.
const killWinner = "kill-winner"

// Limits of the demo's waits.
const (
	demoAsksWait = 20 * time.Second
	demoJobWait  = 3 * time.Minute
)

func (c *cli) demoCommand() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use: "demo", Short: "The whole story on this machine: bid, offers, award, job, receipts, reputation", Args: noArgs,
		Long: `Start a local network of five providers and one renter, each a process of its own,
with simulated GPUs of different model, place and price, and let the renter train a
small neural network on handwritten digits at the provider that wins the auction.

The processes, the auction, the training and the receipts are real; only the GPUs are
simulated, and everything signed says so. Nothing is left behind but the receipt file.`,
		Example: `  lacuna demo
  lacuna demo --fault kill-winner           the winner is killed in mid-job
  lacuna demo --keep                        leave the network up, to look around
  lacuna demo -o json | jq .receipts
  lacuna receipts verify lacuna-demo.receipts`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.fault != "" && d.fault != killWinner {
				return usageError("the one fault is "+killWinner, "--fault %q: unknown", d.fault)
			}
			d.c = c
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.receipts, "receipts", "lacuna-demo.receipts", "write the exported receipts to this `file`")
	cmd.Flags().StringVar(&d.fault, "fault", "", "what goes wrong: "+killWinner)
	cmd.Flags().BoolVar(&d.keep, "keep", false, "leave the network up and print commands to try")
	return cmd
}

// demoProvider is one seller of the demo's network.
type demoProvider struct {
	name, model, memory, place, price string
	fault                             string // script of a fault, JSON, "" = none
}

// demoProviders: one has too little memory for the job, and the cheapest that could take it drops its first lease.
var demoProviders = []demoProvider{
	{name: "berlin", model: "RTX 4090", memory: "24GiB", place: "eu/de/berlin", price: "0.21 USD/h"},
	{name: "paris", model: "RTX 3090", memory: "24GiB", place: "eu/fr/paris", price: "0.24 USD/h"},
	{name: "dallas", model: "L40S", memory: "48GiB", place: "na/us/dallas", price: "0.48 USD/h"},
	{name: "warsaw", model: "RTX A5000", memory: "24GiB", place: "eu/pl/warsaw", price: "0.12 USD/h", fault: `[{"kind":"lost","lease":1,"after":"400ms"}]`},
	{name: "london", model: "RTX 3060 12GB", memory: "12GiB", place: "eu/gb/london", price: "0.08 USD/h"},
}

// gpus returns the simulated device of the provider, with a plausible load.
func (p demoProvider) gpus() string {
	device := map[string]any{
		"model": p.model, "memory": p.memory, "place": p.place, "price": p.price,
		"load": []map[string]any{{"for": "2s", "util": 9100, "power_mw": 310000, "mem_mib": 4200, "temp_c": 61},
			{"for": "3s", "util": 9700, "power_mw": 335000, "mem_mib": 4200, "temp_c": 66}},
		"idle": map[string]any{"util": 0, "power_mw": 21000, "mem_mib": 12, "temp_c": 38},
	}
	if p.fault != "" {
		device["faults"] = json.RawMessage(p.fault)
	}
	b, err := json.Marshal([]any{device})
	if err != nil {
		panic("demo: " + err.Error()) // constant data
	}
	return string(b)
}

// demo is one run of the demo.
type demo struct {
	receipts, fault string
	keep            bool

	c      *cli
	screen *screen
	net    *testnet.Net
	client *api.Client // the renter's
	dir    string      // files of the job
	names  map[attest.Key]string
	keys   map[string]attest.Key
	start  time.Time

	bid        string
	offers     int
	declines   []demoDecline
	reputation *renter.ReputationEvent
	killed     string
}

// demoResult is what the demo ends with in -o json.
type demoResult struct {
	Peers       int             `json:"peers"`
	BidID       string          `json:"bid_id"`
	Offers      int             `json:"offers"`
	Declines    []demoDecline   `json:"declines"`
	Winner      attest.Key      `json:"winner"`
	Price       market.MicroUSD `json:"price_per_gpu_hour_microusd"`
	AuctionMS   *uint64         `json:"auction_ms"`
	ToRunMS     *uint64         `json:"time_to_running_ms"`
	Job         demoJob         `json:"job"`
	Receipts    demoReceipts    `json:"receipts"`
	Cost        market.MicroUSD `json:"cost_microusd"`
	Vouched     market.MicroUSD `json:"voucher_total_microusd"`
	Reputation  demoReputation  `json:"reputation"`
	Simulated   bool            `json:"simulated"`
	Fault       string          `json:"fault,omitempty"`
	Leases      int             `json:"leases"`
	TookMS      int64           `json:"took_ms"`
	NetworkName string          `json:"network"`
}

type demoDecline struct {
	Peer      attest.Key `json:"peer"`
	Reason    string     `json:"reason"`
	Wanted    string     `json:"wanted"`
	Available string     `json:"available"`
}

type demoJob struct {
	State         string         `json:"state"`
	ExitCode      *int           `json:"exit_code"`
	Result        map[string]any `json:"result"`
	OutputsDigest *attest.Digest `json:"outputs_digest"`
}

type demoReceipts struct {
	Count    int           `json:"count"`
	Verified int           `json:"verified"`
	Head     attest.Digest `json:"head"`
	File     string        `json:"file"`
}

type demoReputation struct {
	BeforeBP *int `json:"before_bp"`
	AfterBP  *int `json:"after_bp"`
}

func (d *demo) run(ctx context.Context) (err error) {
	d.start = d.c.now()
	w := d.c.stdout
	if !d.c.human() {
		w = d.c.stderr // stdout is one document
	}
	d.screen = &screen{stdout: w, stderr: w, live: d.c.errTTY && d.c.outTTY, quiet: d.c.quiet, paint: d.c.paint}
	if err := d.up(ctx); err != nil {
		return err
	}
	defer func() {
		if cerr := d.close(); err == nil {
			err = cerr
		}
	}()
	if err := d.history(ctx); err != nil {
		return fmt.Errorf("build a history: %w", err)
	}
	job, err := d.mainJob(ctx)
	if err != nil {
		return err
	}
	report, err := d.verify(ctx, job)
	if err != nil {
		return err
	}
	return d.finish(job, report)
}

// say prints a line of the story.
func (d *demo) say(format string, args ...any) { d.screen.line(format, args...) }

// title begins a chapter.
func (d *demo) title(format string, args ...any) {
	d.say("\n%s", d.c.paint(bold, fmt.Sprintf(format, args...)))
}

// up starts the network and waits until the renter finds every ask in the DHT.
func (d *demo) up(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := d.checkReceiptFile(); err != nil {
		return err
	}
	d.title("A network on this machine: %d providers and a renter, each a process of its own. The GPUs are simulated.", len(demoProviders))
	d.screen.status("starting 6 peers")
	specs := make([]testnet.PeerSpec, 0, len(demoProviders)+1)
	for _, p := range demoProviders {
		specs = append(specs, testnet.PeerSpec{Name: p.name, Provide: true, GPUs: p.gpus()})
	}
	specs = append(specs, testnet.PeerSpec{Name: "renter"})
	network, dir := fmt.Sprintf("test-demo-%d", os.Getpid()), ""
	if d.keep { // among the others, where testnet ls finds it
		root, err := testnetRoot()
		if err != nil {
			return err
		}
		dir = filepath.Join(root, network)
	}
	if d.net, err = testnet.Up(ctx, testnet.Options{Dir: dir, Binary: self, Network: network, Peers: specs, Keep: d.keep, Logger: d.c.logger(slog.LevelWarn)}); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "lacuna-demo-"); err != nil {
		return errors.Join(err, d.close())
	}
	if err := d.meet(ctx); err != nil {
		return errors.Join(err, d.close())
	}
	return nil
}

// checkReceiptFile finds out before anything is started whether the receipts can be written at the end.
func (d *demo) checkReceiptFile() error {
	before := exists(d.receipts)
	f, err := os.OpenFile(d.receipts, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return usageError("name another file with --receipts", "write %s: %w", d.receipts, pathCause(err))
	}
	if err := f.Close(); err != nil || before {
		return err
	}
	return os.Remove(d.receipts)
}

// meet learns who is who and waits for the asks.
func (d *demo) meet(ctx context.Context) error {
	d.names, d.keys = map[attest.Key]string{}, map[string]attest.Key{}
	for _, p := range d.net.Peers() {
		st, err := p.Client.Status(ctx)
		if err != nil {
			return err
		}
		d.names[st.Peer], d.keys[p.Name] = p.Name, st.Peer
		if p.Name == "renter" {
			d.client = p.Client
		}
	}
	d.c.names = d.names
	d.screen.status("waiting until the renter finds the asks in the DHT")
	ctx, cancel := context.WithTimeout(ctx, demoAsksWait)
	defer cancel()
	found := map[attest.Key]api.AskView{}
	for len(found) < len(demoProviders) {
		err := d.client.Asks(ctx, api.AskFilter{Limit: api.DefaultAsks}, func(a api.AskView) error { found[a.Peer] = a; return nil })
		if err != nil {
			return fmt.Errorf("the renter found %d of %d asks: %w", len(found), len(demoProviders), err)
		}
		time.Sleep(poll)
	}
	d.screen.status("")
	for _, p := range demoProviders {
		l := found[d.keys[p.name]].Lots[0]
		d.say("  %-8s %-14s %6s  %-14s %s", p.name, l.Model, memOf(l.MemBytes), p.place, l.Price.PerHour())
	}
	d.say("  %s", d.c.paint(dim, fmt.Sprintf("all %d asks found through the DHT, %s after the start", len(found), millis(uint64(d.c.now().Sub(d.start).Milliseconds())))))
	return nil
}

// spec returns a training job.
func (d *demo) spec(name string, args ...string) (market.Spec, error) {
	dir := filepath.Join(d.dir, name)
	module, data := examples.Digits()
	wasm := filepath.Join(d.dir, "digits.wasm")
	input := filepath.Join(d.dir, "data")
	if _, err := os.Stat(wasm); errors.Is(err, os.ErrNotExist) {
		if err := errors.Join(os.WriteFile(wasm, module, 0o600), os.CopyFS(input, data)); err != nil {
			return market.Spec{}, err
		}
	}
	return market.Spec{Name: name, Module: wasm, Args: args, GPUs: 1, MaxPrice: market.USD, Budget: market.USD, Duration: 5 * time.Minute,
		Interval: time.Second, Inputs: []market.Transfer{{From: input, To: "/data"}}, Outputs: []market.Transfer{{From: "/out", To: dir}},
		Checkpoint: "/ckpt", Every: time.Second, Grace: 5 * time.Second}, nil
}

// history runs a tiny job at each provider that can take the main one, so that the renter has experience of its own.
func (d *demo) history(ctx context.Context) error {
	d.title("1. A little history: one tiny job at each, so that the renter has experience of its own")
	d.screen.status("4 tiny jobs run at once")
	ctx, cancel := context.WithTimeout(ctx, demoJobWait)
	defer cancel()
	type tried struct {
		name string
		job  renter.Job
	}
	var jobs []tried
	for _, p := range demoProviders[:4] {
		s, err := d.spec("try-"+p.name, "-epochs", "1", "-images", "300")
		if err != nil {
			return err
		}
		s.Providers = []attest.Key{d.keys[p.name]}
		j, err := d.client.Submit(ctx, s, false)
		if err != nil {
			return err
		}
		jobs = append(jobs, tried{p.name, j})
	}
	defer d.screen.status("")
	dropped := 0
	for _, t := range jobs {
		j, err := d.client.Wait(ctx, t.job.ID)
		if err != nil {
			return err
		}
		verdict := "finished"
		switch j.State {
		case renter.JobSucceeded:
		case renter.JobNoOffer:
			verdict = "was too slow to answer" // a busy machine, nobody's fault
		default:
			verdict = "let the renter down: " + words(j.Reason)
			dropped++
		}
		rep, err := d.client.Reputation(ctx, d.keys[t.name])
		if err != nil {
			return err
		}
		d.say("  %-8s %-40s paid %-14s success rate %s", t.name, verdict, j.Vouched, percent(rep.MeanBP))
	}
	if dropped == 0 {
		return errors.New("no tiny job was dropped, one was to be: this machine is too busy for the demo, try again later")
	}
	return nil
}

// mainJob posts the training job and follows it.
func (d *demo) mainJob(ctx context.Context) (renter.Job, error) {
	d.title("2. The auction: train on 4,000 digits, one GPU with 24 GiB")
	s, err := d.spec("digits", "-epochs", "12")
	if err != nil {
		return renter.Job{}, err
	}
	s.VRAMBytes = 24 << 30
	ctx, cancel := context.WithTimeout(ctx, demoJobWait)
	defer cancel()
	j, err := d.client.Submit(ctx, s, false)
	if err != nil {
		return j, err
	}
	t := newCourse(d.c, d.screen)
	ended := make(chan error, 2)
	go func() {
		ended <- d.client.Events(ctx, j.ID, 0, true, func(e renter.Event) error {
			if err := t.event(e); err != nil {
				return err
			}
			return d.note(e)
		})
	}()
	go func() {
		ended <- d.client.Log(ctx, j.ID, 0, true, func(k joblog.Chunk) error { return d.log(k) })
	}()
	for range 2 {
		if err := <-ended; err != nil {
			cancel()
			return j, err
		}
	}
	if j, err = d.client.Wait(ctx, j.ID); err != nil {
		return j, err
	}
	if j.State != renter.JobSucceeded {
		return j, t.end(j)
	}
	return j, nil
}

// log shows the job's output, with the time from outside: the job's own clock is fixed.
func (d *demo) log(k joblog.Chunk) error {
	for _, l := range strings.Split(strings.TrimRight(string(k.Data), "\n"), "\n") {
		d.screen.line("  %s  %s", d.c.paint(dim, fmt.Sprintf("%6.1fs", d.c.now().Sub(d.start).Seconds())), l)
	}
	return nil
}

// note keeps what the JSON result needs, and kills the winner where that is the fault.
func (d *demo) note(e renter.Event) error {
	switch e.Kind {
	case renter.EvBid:
		if d.bid == "" {
			d.bid = e.Bid.ID.String()
		}
	case renter.EvOffer:
		d.offers++
	case renter.EvDecline:
		for _, f := range e.Decline.Failures {
			d.declines = append(d.declines, demoDecline{e.Decline.Peer, f.Reason.String(), f.Wanted, f.Available})
		}
	case renter.EvAward:
		if d.killed == "" {
			d.title("3. The job at %s", d.c.peer(e.Award.Peer))
		}
	case renter.EvReputation:
		d.reputation = e.Reputation
	case renter.EvCheckpoint:
		if d.fault == killWinner && d.killed == "" && e.Checkpoint.Seq >= 2 {
			j, err := d.client.Job(context.Background(), "digits")
			if err != nil {
				return err
			}
			d.killed = d.names[*j.Provider]
			d.say("%s", d.c.paint(red, "  kill -9 "+d.killed))
			return d.net.Kill(d.killed)
		}
	}
	return nil
}

// verify exports the receipts of the job and checks them as a stranger would: from the file alone.
func (d *demo) verify(ctx context.Context, j renter.Job) (ledger.Report, error) {
	d.title("4. Proof")
	data, err := d.client.ExportJob(ctx, j.ID)
	if err != nil {
		return ledger.Report{}, err
	}
	if err := os.WriteFile(d.receipts, data, 0o644); err != nil {
		return ledger.Report{}, fmt.Errorf("write receipts: %w", err)
	}
	if data, err = os.ReadFile(d.receipts); err != nil {
		return ledger.Report{}, err
	}
	report, err := ledger.Verify(data)
	if err != nil {
		return report, err
	}
	d.say("  %s of %s verified: signatures, chains, prices", count(report.Receipts, "receipt"), count(len(report.Leases), "lease"))
	d.say("  due by the receipts %s = promised by the vouchers %s", report.Due, report.Vouched)
	d.say("  %s", d.c.paint(dim, "check it again, without network or daemon: lacuna receipts verify "+d.receipts))
	return report, nil
}

// finish prints the result.
func (d *demo) finish(j renter.Job, report ledger.Report) error {
	result, err := os.ReadFile(filepath.Join(d.dir, "digits", "metrics.json"))
	if err != nil {
		return fmt.Errorf("read the job's metrics: %w", err)
	}
	r := demoResult{Peers: len(demoProviders) + 1, BidID: d.bid, Offers: d.offers, Declines: d.declines, Winner: *j.Provider, Price: j.Price,
		AuctionMS: j.AuctionMS, ToRunMS: j.ToRunMS, Job: demoJob{State: string(j.State), ExitCode: j.ExitCode, OutputsDigest: j.OutputsDigest},
		Receipts: demoReceipts{Count: j.Receipts, Verified: report.Receipts, Head: report.Leases[len(report.Leases)-1].Head, File: d.receipts},
		Cost:     j.Cost, Vouched: report.Vouched, Simulated: j.Simulated, Fault: d.fault, Leases: len(report.Leases),
		TookMS: d.c.now().Sub(d.start).Milliseconds(), NetworkName: d.net.Network()}
	if err := json.Unmarshal(result, &r.Job.Result); err != nil {
		return fmt.Errorf("read the job's metrics: %w", err)
	}
	if d.reputation != nil {
		r.Reputation = demoReputation{d.reputation.BeforeBP, &d.reputation.AfterBP}
	}
	d.say("\n%s", d.c.paint(bold, fmt.Sprintf("Done in %s: accuracy %v, paid %s.", millis(uint64(r.TookMS)), r.Job.Result["accuracy"], r.Cost)))
	if d.keep {
		d.tour(j)
	}
	if d.c.human() {
		return nil
	}
	return d.c.print(r, nil)
}

// tour prints commands to try on a network that stays up.
func (d *demo) tour(j renter.Job) {
	p, err := d.net.Peer("renter")
	if err != nil {
		return
	}
	d.say("\nThe network stays up in %s. Try:", d.net.Dir())
	for _, args := range []string{"ps", "inspect " + j.Name + " --auction", "asks", "receipts ls " + j.Name, "reputation " + j.Provider.String() + " --explain"} {
		d.say("  lacuna --home %s %s", p.Home, args)
	}
	d.say("  lacuna testnet down %s", d.net.Network())
}

// close stops the network and removes what the demo made, but for the receipt file.
func (d *demo) close() error {
	var errs []error
	if d.net != nil {
		d.screen.status("stopping the peers")
		errs = append(errs, d.net.Close())
		d.screen.status("")
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}
