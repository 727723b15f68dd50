package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/testnet"
)

// killWinner is the one fault that the demo knows.
const killWinner = "kill-winner"

// Limits of the demo's waits.
const (
	demoUpWait   = 2 * time.Minute
	demoAsksWait = time.Minute
	demoJobWait  = 4 * time.Minute
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
	{name: "paris", model: "RTX 3090", memory: "24GiB", place: "eu/fr/paris", price: "0.29 USD/h"},
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

// demo is one run of the demo: this file brings its network up and down, demostory.go tells what happens on it.
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

	job        string // id of the training job
	auction    demoAuction
	rehearsed  bool // the auction is the rehearsal's
	reputation map[attest.Key]renter.ReputationEvent
	killed     string
}

// demoResult is what the demo ends with in -o json.
type demoResult struct {
	Peers int `json:"peers"`
	// The bid with its offers and declines is the job's own, or, where this machine was too busy for all providers to
	// answer that in time, the one of the rehearsal just before it.
	BidID       string          `json:"bid_id"`
	Offers      int             `json:"offers"`
	Declines    []demoDecline   `json:"declines"`
	Rehearsal   bool            `json:"rehearsal"`
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
	if d.net, err = testnet.Up(ctx, testnet.Options{Dir: dir, Binary: self, Network: network, Peers: specs, Keep: d.keep, Timeout: demoUpWait, Logger: d.c.logger(slog.LevelWarn)}); err != nil {
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
	d.names, d.keys, d.reputation = map[attest.Key]string{}, map[string]attest.Key{}, map[attest.Key]renter.ReputationEvent{}
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
