package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// goBench runs a benchmark of a package, and returns what it prints. Networks in virtual time exist only in tests.
func (b *bench) goBench(ctx context.Context, pkg, pattern, benchtime string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^"+pattern+"$", "-benchtime", benchtime, "-timeout", "30m", pkg)
	cmd.Dir = b.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run %s of %s: %w\n%s", pattern, pkg, err, out)
	}
	return out, nil
}

// row is a figure that a benchmark reports.
type row struct {
	bench, metric string // of what go test prints; spaces of the name are underscores there
	name, unit    string // in the table
	aim           *aim
}

// addRows takes figures out of what benchmarks print.
func (b *bench) addRows(out []byte, def string, rows ...row) error {
	for _, r := range rows {
		values, err := parseBenchmark(out, r.bench)
		if err != nil {
			return err
		}
		v, ok := values[r.metric]
		if !ok {
			return fmt.Errorf("%s reports no %s", r.bench, r.metric)
		}
		b.report.add(r.name, r.unit, []float64{v}, r.aim, def)
	}
	return nil
}

// measureAuctions reports how long auctions take where the network decides.
func (b *bench) measureAuctions(ctx context.Context) error {
	b.say("auctions among 100 whole nodes in virtual time; this takes some minutes")
	out, err := b.goBench(ctx, "./node", "BenchmarkAuctionTimes", "1x")
	if err != nil {
		return err
	}
	const name = "BenchmarkAuctionTimes/100"
	def := "100 whole nodes (90 providers, 10 light renters) in one process and in virtual time, 80 ms of round trip between any two; " +
		"bid signed → award countersigned, of 20 auctions each, 5 of the cold ones. Full ones are of renters that know nobody; in early ones an offer of a provider that the renter " +
		"trusts, at or below its reference price, closes the window; cold ones begin without a connection to those. Streams are those of our protocols that all peers open. It is node's BenchmarkAuctionTimes."
	return b.addRows(out, def,
		row{name, "over-window-p50-rtt", "80 ms apart: bid → award, beyond the window", "RTT", &aim{AtMost: 1.5}},
		row{name, "window-ms", "  the window", "ms", nil},
		row{name, "award-p50-ms", "  bid → award, median", "ms", nil},
		row{name, "award-p95-ms", "  bid → award, p95", "ms", &aim{AtMost: 1500}},
		row{name, "early-p50-rtt", "80 ms apart: bid → award, closed early", "RTT", &aim{AtMost: 4}},
		row{name, "early-p95-ms", "  closed early, p95", "ms", &aim{AtMost: 1500}},
		row{name, "cold-p50-rtt", "  closed early, cold", "RTT", &aim{AtMost: 4}},
		row{name, "heard", "  peers that gossip brought the bid", "", nil},
		row{name, "offers", "  offers per auction", "", nil},
		row{name, "streams", "  streams per auction", "", nil})
}

// measureGossip reports how far bids spread, and what checking one costs.
func (b *bench) measureGossip(ctx context.Context) error {
	b.say("bids among 200 peers in virtual time, and their checks")
	out, err := b.goBench(ctx, "./p2p/bids", "BenchmarkReach", "1x")
	if err != nil {
		return err
	}
	def := "Bids among 200 peers with about 8 neighbours each, in virtual time, 50 ms of round trip between any two. It is p2p/bids' BenchmarkReach."
	if err := b.addRows(out, def,
		row{"BenchmarkReach", "share", "peers that a bid reaches", "", &aim{AtLeast: 0.999}},
		row{"BenchmarkReach", "p95-virtual-ms", "  until 95 % of them have it", "ms", nil}); err != nil {
		return err
	}
	if out, err = b.goBench(ctx, "./p2p/bids", "BenchmarkCheck", "1s"); err != nil {
		return err
	}
	def = "What a peer does with each bid that comes in (parse, verify, decode, times, replay, rates), over ed25519.Verify of the same bytes; a copy is a bid " +
		"that came before. It is p2p/bids' BenchmarkCheck."
	return b.addRows(out, def,
		row{"BenchmarkCheck/first", "x-ed25519", "bid checked / bare Ed25519", "", nil},
		row{"BenchmarkCheck/copy", "x-ed25519", "  a copy of it / bare Ed25519", "", nil})
}

// measureAsks reports what look-ups of asks cost.
func (b *bench) measureAsks(ctx context.Context) error {
	b.say("look-ups of asks among 200 peers in virtual time")
	out, err := b.goBench(ctx, "./p2p/find", "BenchmarkLookup", "1x")
	if err != nil {
		return err
	}
	def := "A light client with six connections looks for asks among 199 providers in three places, in virtual time, 50 ms of round trip between any two. It is " +
		"p2p/find's BenchmarkLookup."
	var rows []row
	for _, of := range []struct {
		what string
		aim  *aim
	}{{"all", &aim{AtMost: 2000}}, {"8 of a class", nil}} {
		name := "BenchmarkLookup/200_peers/" + strings.ReplaceAll(of.what, " ", "_")
		rows = append(rows, row{name, "ms-to-all", "asks of 199 providers, " + of.what, "ms", of.aim},
			row{name, "ms-to-first", "  first ask", "ms", nil}, row{name, "asks-read", "  asks read", "", nil}, row{name, "calls", "  calls to other peers", "", nil})
	}
	return b.addRows(out, def, rows...)
}

// measureCrowds reports what crowds of providers cost a renter.
func (b *bench) measureCrowds(ctx context.Context) error {
	b.say("auctions in crowds of up to 10,000")
	out, err := b.goBench(ctx, "./market/auction", "BenchmarkCrowd", "3x")
	if err != nil {
		return err
	}
	def := "What the offers of that many providers, all of which serve the bid, cost the renter in one auction: messages to and from it, signatures checked, offers " +
		"kept. It is market/auction's BenchmarkCrowd."
	var rows []row
	for _, n := range []string{"100", "1000", "10000"} {
		name := "BenchmarkCrowd/" + n
		rows = append(rows, row{name, "messages/op", n + " providers: messages per auction", "", nil},
			row{name, "checks/op", "  offers checked", "", nil}, row{name, "kept/op", "  offers kept", "", &aim{AtMost: 32}})
	}
	return b.addRows(out, def, rows...)
}

// measurePunched reports how fast bulk data is behind routers.
func (b *bench) measurePunched(ctx context.Context) error {
	b.say("bulk data over a hole-punched connection in virtual time")
	out, err := b.goBench(ctx, "./p2p", "BenchmarkPunchedBulk", "1x")
	if err != nil {
		return err
	}
	const name = "BenchmarkPunchedBulk/routers"
	def := "8 MiB between two hosts behind port-restricted routers after a hole punch, over the same between two in the open, and over a bare libp2p stream on the " +
		"same connection; virtual time, 40 ms of round trip, 100 Mbit/s; means of 4 turns. The punch is the time from the wish for a stream to the stream, the relayed " +
		"connection included. It is p2p's BenchmarkPunchedBulk."
	return b.addRows(out, def,
		row{name, "punched/direct", "bulk, hole-punched / direct", "", &aim{AtLeast: 0.9}},
		row{name, "punched/raw", "bulk, hole-punched / bare libp2p stream", "", &aim{AtLeast: 0.9}},
		row{name, "direct/raw", "bulk, direct / bare libp2p stream", "", &aim{AtLeast: 0.9}},
		row{name, "punch-ms", "  hole punch", "ms", nil})
}
