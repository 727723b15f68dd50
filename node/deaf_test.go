package node_test

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// TestDeafRenters announces bids whose answers go to an address where nobody speaks, which holds each answer up for
// seconds. The provider hears what comes meanwhile, without waiting for those answers to fail, and goes on selling.
func TestDeafRenters(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody ever speaks on them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	addr := fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", deaf.Addr().(*net.TCPAddr).Port)

	var log logged
	p := nodetest.StartProviderLogging(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil,
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	carrier := newRaw(t, noPorts()) // passes on the bids of renters that nobody can reach
	gossip, err := bids.New(bids.Options{Host: carrier.host, PerMinute: 6000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gossip.Close() })
	carrier.connect(p)
	const many = 100
	for range many {
		liar := newSigner(t)
		now := time.Now()
		bid, err := liar.Sign(market.BidDomain, market.Bid{Version: 1, Renter: liar.Key(), Request: random16(), Seq: 1, IssuedAt: now.UnixMilli(),
			AnnounceUntil: now.Add(time.Minute).UnixMilli(), ValidUntil: now.Add(time.Minute).UnixMilli(), Workload: market.WASM, Count: 1,
			Class: "any", DurationMS: 60_000, StartWithinMS: 1000, Tier: market.Silver, Simulated: true, IntervalMS: 1000, ReplyTo: []string{addr}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gossip.Publish(within(t, patience), bid, []string{"nv-24g"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		s, err := p.Client.Status(t.Context())
		if err == nil && s.BidsHeard < many {
			err = fmt.Errorf("%d of %d bids heard", s.BidsHeard, many)
		}
		return err
	})
	if failed := log.count("answer did not reach the renter"); failed > many/4 {
		t.Errorf("%d answers failed before all bids were heard: hearing waited for them", failed)
	}
	want(t, run(t, r, guest(t, "exit", "0")), renter.JobSucceeded, "")
}

// count returns how often a message was logged.
func (l *logged) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), message)
}
