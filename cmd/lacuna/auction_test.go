package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
)

// What stood in the way of an offer is shown with its auction.
func TestPrintWays(t *testing.T) {
	c, stdout, _ := newTestCLI()
	view := api.AuctionView{Bid: attest.Sum([]byte("bid")), ClosedBy: "window", Received: 3, ReceivedKnown: 1, DeclineCount: 70, DeclinedKnown: 2, Recomputed: true,
		Offers: []api.OfferView{
			{Peer: key(2), Kept: true, RTTMS: ptr(uint64(48)), Path: "hole-punched", SurchargeBP: 680},
			{Peer: key(3), Kept: true, Path: "relayed", SurchargeBP: 500},
			{Peer: key(4), Excluded: "too_far", RTTMS: ptr(uint64(130)), Path: "direct", SurchargeBP: 500, PlaceFault: true},
			{Peer: key(5), Kept: true, Path: "direct"}},
		Unreached: []api.UnreachedView{{Peer: key(3), Reason: "relay_limited"}}}
	if err := c.printAuctions([]api.AuctionView{view}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the way to " + c.peer(key(2)) + ": round trip 48ms, hole-punched, counts as 6.80% of the price\n",
		"the way to " + c.peer(key(3)) + ": relayed, counts as 5.00% of the price\n",
		"the way to " + c.peer(key(4)) + ": round trip 130ms, direct, counts as 5.00% of the price, it cannot be where it says it is",
		"answers: 3 peers offered (1 known here), 70 declined (2 known here)\n",
		"passed over before an award: " + c.peer(key(3)) + ", relay limited\n",
		"cannot win: too far",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout.String(), "the way to "+c.peer(key(5))) {
		t.Errorf("a way that costs nothing is shown:\n%s", stdout)
	}
}

func TestLatencyFlag(t *testing.T) {
	module := filepath.Join(t.TempDir(), "m.wasm")
	if err := os.WriteFile(module, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		arg  string
		want time.Duration
		ok   bool
	}{{"50ms", 50 * time.Millisecond, true}, {"1.5s", 1500 * time.Millisecond, true}, {"50", 0, false}, {"-1ms", 0, false}, {"far", 0, false}} {
		var f specFlags
		fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.register(fs)
		err := fs.Parse([]string{"--latency", tt.arg})
		if (err == nil) != tt.ok {
			t.Errorf("--latency %s: %v", tt.arg, err)
			continue
		}
		if s, err := f.spec([]string{module}, os.LookupEnv); tt.ok && (err != nil || s.Latency != tt.want) {
			t.Errorf("--latency %s gives %s, %v", tt.arg, s.Latency, err)
		}
	}
}
