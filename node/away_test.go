package node_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/node/renter"
)

// providerSees waits until the provider sees a lease as f wants it.
func providerSees(t *testing.T, p *nodetest.Peer, id attest.Digest, f func(api.LeaseView) bool) {
	t.Helper()
	eventually(t, func() error {
		v, err := p.Client.Lease(t.Context(), id.Hex())
		if err == nil && !f(v) {
			err = fmt.Errorf("lease is %s (%s), %d receipts, %d acknowledged", v.State, v.Reason, v.Receipts, v.Acknowledged)
		}
		return err
	})
}

// bothVerify holds the files of both sides of a job's one lease against each other.
func bothVerify(t *testing.T, p, r *nodetest.Peer, j renter.Job) ledger.Report {
	t.Helper()
	providerSees(t, p, *j.Lease, func(v api.LeaseView) bool {
		return v.Outcome != nil && v.Outcome.Signers == 2 && v.Due == v.Vouched
	})
	file, err := p.Client.ExportLease(t.Context(), j.Lease.Hex())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ledger.Verify(file)
	if err != nil {
		t.Fatalf("file of the provider: %v", err)
	}
	ours := paid(t, r, j.ID)
	if theirs.Leases[0].Head != ours.Leases[0].Head || theirs.Vouched != ours.Vouched {
		t.Errorf("provider: %d receipts, %s vouched; renter: %d, %s", theirs.Receipts, theirs.Vouched, ours.Receipts, ours.Vouched)
	}
	return ours
}

// TestRenterAway lets the renter go and come back: within the time that the job may survive nothing stops, after it the
// job ends unpaid, and a job that ends meanwhile keeps its results (cases of a renter that disappears).
func TestRenterAway(t *testing.T) {
	t.Parallel()
	leave := func(t *testing.T, s market.Spec) (p, r *nodetest.Peer, j renter.Job, acked uint64) {
		t.Helper()
		p = nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
		r = nodetest.Start(t, nil)
		nodetest.Join(t, p, r)
		j = submit(t, r, s)
		until(t, r, j.ID, receiptNo(2))
		j, err := r.Client.Job(t.Context(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		r.Stop()
		v, err := p.Client.Lease(t.Context(), j.Lease.Hex())
		if err != nil {
			t.Fatal(err)
		}
		return p, r, j, v.Acknowledged
	}
	t.Run("for a short time", func(t *testing.T) {
		t.Parallel()
		s := guest(t, "sleeps")
		s.Survive = 5 * time.Minute
		p, r, j, acked := leave(t, s)
		providerSees(t, p, *j.Lease, func(v api.LeaseView) bool { return uint64(v.Receipts) >= acked+10 && v.State == "running" })
		r.Restart()
		providerSees(t, p, *j.Lease, func(v api.LeaseView) bool { return v.Acknowledged >= acked+10 && v.State == "running" })
		if _, err := r.Client.Stop(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		j = wait(t, r, j.ID)
		want(t, j, renter.JobStopped, "stopped")
		bothVerify(t, p, r, j)
	})
	t.Run("for too long", func(t *testing.T) {
		t.Parallel()
		s := guest(t, "sleeps")
		s.Survive = time.Second
		p, r, j, _ := leave(t, s)
		providerSees(t, p, *j.Lease, func(v api.LeaseView) bool { return v.State == "failed" && v.Reason == "not_acknowledged" })
		v, err := p.Client.Lease(t.Context(), j.Lease.Hex())
		if err != nil || v.Due-v.Vouched > ledger.AckLimit(market.Lease{Price: v.Price, Devices: v.Devices, IntervalMS: v.IntervalMS, SurviveMS: v.SurviveMS}) {
			t.Errorf("%s due, %s vouched, %v", v.Due, v.Vouched, err)
		}
		if err := deviceIs(t, p, "free"); err != nil {
			t.Error(err)
		}
		r.Restart()
		j = wait(t, r, j.ID)
		want(t, j, renter.JobStopped, "not_acknowledged")
		if rep := bothVerify(t, p, r, j); rep.Due != v.Due {
			t.Errorf("%s due after the return, %s before", rep.Due, v.Due)
		}
		blameless(t, r)
	})
	t.Run("while the job ends", func(t *testing.T) {
		t.Parallel()
		s := digitsSpec(t, "-epochs", "4", "-images", "3000")
		s.Interval, s.MaxPrice, s.Survive, s.Duration = 200*time.Millisecond, 100*market.USD, 10*time.Minute, 10*time.Minute
		p, r, j, _ := leave(t, s)
		providerSees(t, p, *j.Lease, func(v api.LeaseView) bool { return v.State == "done" })
		p.Restart() // what was left is kept also over this
		r.Restart()
		nodetest.Join(t, p, r)
		j = wait(t, r, j.ID)
		want(t, j, renter.JobSucceeded, "")
		if *j.ExitCode != 0 || below(t, s.Outputs[0].To, "metrics.json") == "" {
			t.Errorf("exit code %d, metrics %q", *j.ExitCode, below(t, s.Outputs[0].To, "metrics.json"))
		}
		bothVerify(t, p, r, j)
		noFolders(t, filepath.Join(p.Home, "jobs", "leased"))
	})
}

func TestAuctions(t *testing.T) {
	t.Parallel()
	big := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"0.30 USD/h"}]`, nil)
	small := nodetest.StartProvider(t, `[{"model":"RTX 3060 12GB","price":"0.10 USD/h"}]`, nil)
	r, r2 := nodetest.Start(t, nil), nodetest.Start(t, nil)
	nodetest.Join(t, big, small, r, r2)
	spec := func(args ...string) market.Spec {
		s := guest(t, args...)
		s.Providers = []attest.Key{big.Node.Key(), small.Node.Key()}
		return s
	}
	auction := func(t *testing.T, j renter.Job) api.AuctionView {
		t.Helper()
		views, err := r.Client.Auctions(t.Context(), j.ID)
		if err != nil || len(views) == 0 {
			t.Fatalf("%d auctions, %v", len(views), err)
		}
		for _, v := range views {
			if !v.Recomputed {
				t.Errorf("auction does not recompute: %s", v.RecomputeError)
			}
		}
		return views[len(views)-1]
	}
	t.Run("declines say what is missing", func(t *testing.T) {
		s := spec("exit", "0")
		s.VRAMBytes = 24 << 30
		j := run(t, r, s)
		want(t, j, renter.JobSucceeded, "")
		v := auction(t, j)
		for range 20 { // the window may close before a slow machine's decline comes
			if len(v.Declines) > 0 {
				break
			}
			j = run(t, r, s)
			want(t, j, renter.JobSucceeded, "")
			v = auction(t, j)
		}
		if *j.Provider != big.Node.Key() || len(v.Declines) != 1 || v.Declines[0].Peer != small.Node.Key() {
			t.Fatalf("won by %s, declines %+v", j.Provider, v.Declines)
		}
		if f := v.Declines[0].Failures[0]; f.Reason != market.VRAMTooSmall || f.Wanted != "24GiB" || f.Available != "12GiB" {
			t.Errorf("decline %+v", f)
		}
	})
	t.Run("no acceptable offer", func(t *testing.T) {
		s := spec("exit", "0")
		s.MaxPrice = market.USD / 100
		j := run(t, r, s)
		want(t, j, renter.JobNoOffer, "no_offer")
		v := auction(t, j)
		if v.Award != nil || len(v.Offers) != 2 || v.Offers[0].Excluded != "price_above_limit" || len(j.Leases) != 0 {
			t.Errorf("award %+v, offers %+v", v.Award, v.Offers)
		}
	})
	t.Run("dry run", func(t *testing.T) {
		var j renter.Job
		var v api.AuctionView
		for range 20 { // as above, for offers
			var err error
			if j, err = r.Client.Submit(t.Context(), spec("exit", "0"), true); err != nil {
				t.Fatal(err)
			}
			if j = wait(t, r, j.ID); j.State != renter.JobSucceeded {
				continue
			}
			if v = auction(t, j); len(v.Offers) == 2 {
				break
			}
		}
		want(t, j, renter.JobSucceeded, "dry_run")
		if !v.DryRun || v.Award != nil || len(v.Offers) != 2 || v.Offers[0].Peer != small.Node.Key() || len(j.Leases) != 0 || j.Cost != 0 {
			t.Errorf("award %+v, offers %+v, %d leases", v.Award, v.Offers, len(j.Leases))
		}
	})
	t.Run("two renters, one device", func(t *testing.T) {
		jobs := [2]renter.Job{submit(t, r, spec("sleeps")), submit(t, r2, spec("sleeps"))}
		won := map[attest.Key]bool{}
		for i, peer := range []*nodetest.Peer{r, r2} {
			until(t, peer, jobs[i].ID, receiptNo(1))
			j, err := peer.Client.Job(t.Context(), jobs[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			won[*j.Provider] = true
			if _, err := peer.Client.Stop(t.Context(), j.ID); err != nil {
				t.Fatal(err)
			}
		}
		if len(won) != 2 {
			t.Errorf("both jobs ran at the same provider")
		}
		for i, peer := range []*nodetest.Peer{r, r2} {
			want(t, wait(t, peer, jobs[i].ID), renter.JobStopped, "stopped")
		}
	})
	t.Run("a light peer listens to no bids", func(t *testing.T) {
		for _, p := range []*nodetest.Peer{r, r2} {
			s, err := p.Client.Status(t.Context())
			if err != nil || s.Role != "light" || s.BidsHeard != 0 {
				t.Errorf("role %s, %d bids heard, %v", s.Role, s.BidsHeard, err)
			}
			if n := metric(t, p, "lacuna_bids_heard_total"); n != "0" {
				t.Errorf("%s bids were delivered to a peer that sells nothing", n)
			}
		}
		if s, err := big.Client.Status(t.Context()); err != nil || s.BidsHeard == 0 {
			t.Errorf("the provider heard %d bids, %v", s.BidsHeard, err)
		}
	})
}

func TestSimulatedDevicesStayOnTestNetworks(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090"}]`, nil)
	p.Stop()
	gpus := p.Config("provide.simulate_gpus")
	dir := t.TempDir()
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(dir, func(string) string { return "" }, map[string]string{"network.name": "main", "provide.enabled": "true",
		"network.listen": "/ip4/127.0.0.1/tcp/0", "provide.simulate_gpus": gpus})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.New(node.Options{Home: h, Config: c})
	if err == nil {
		err = errors.Join(errors.New("no error"), n.Close())
	}
	if !strings.Contains(err.Error(), "simulated devices are allowed on test networks only") {
		t.Errorf("New on a public network: %v", err)
	}
}

// TestNothingIsLeft stops peers in the middle of a job, and looks for goroutines. It runs alone, before the parallel tests.
func TestNothingIsLeft(t *testing.T) {
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	r := nodetest.Start(t, nil)
	nodetest.Join(t, p, r)
	j := submit(t, r, guest(t, "sleeps"))
	until(t, r, j.ID, receiptNo(1))
	p.Stop()
	r.Stop()
	eventually(t, func() error {
		buf := make([]byte, 4<<20)
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			// The test's own goroutine, and nothing else, is in this module.
			if strings.Contains(g, "lacuna-network/lacuna/") && !strings.Contains(g, "node_test.") {
				return errors.New("a goroutine is left:\n" + g)
			}
		}
		return nil
	})
}
