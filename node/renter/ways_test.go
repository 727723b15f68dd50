package renter_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/reputation"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/find"
)

const networkName = "test-renter"

// patience is how long a test waits at most. It is long for slow machines; no test needs it.
const patience = 2 * time.Minute

func newHost(t *testing.T, i byte) (*p2p.Host, attest.Signer) {
	t.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string('a'+rune(i)), ed25519.SeedSize)))
	h, err := p2p.New(p2p.Options{Key: key, Network: networkName, Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h, attest.NewSigner(key, attest.NetworkID(networkName))
}

// ways is what a test says about the ways to its providers.
type ways struct {
	mu     sync.Mutex
	paths  map[attest.Key]p2p.Path      // before; absent = direct
	wide   map[attest.Key]p2p.Path      // what Widen finds; absent = the path before
	rtt    map[attest.Key]time.Duration // absent = cannot be measured
	known  map[attest.Key]bool          // the round trip is known without measuring
	sought []attest.Key
	held   chan struct{} // Widen tells that it was called, and waits for its context; nil = it answers at once
}

func (w *ways) Path(k attest.Key) p2p.Path {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.paths[k]; ok {
		return p
	}
	return p2p.PathDirect
}

func (w *ways) Widen(ctx context.Context, k attest.Key, _ []string) (p2p.Path, error) {
	if w.held != nil {
		w.held <- struct{}{}
		<-ctx.Done()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sought = append(w.sought, k)
	if p, ok := w.wide[k]; ok {
		w.paths[k] = p
	}
	switch w.paths[k] {
	case p2p.PathNone:
		return p2p.PathNone, p2p.ErrUnreachable
	case p2p.PathLimited:
		return p2p.PathLimited, fmt.Errorf("widen: %w", p2p.ErrLimited)
	}
	return w.paths[k], nil
}

func (w *ways) RTT(k attest.Key) (time.Duration, bool) {
	if !w.known[k] {
		return 0, false
	}
	return w.rtt[k], true
}

func (w *ways) MeasureRTT(ctx context.Context, k attest.Key) (time.Duration, error) {
	if d, ok := w.rtt[k]; ok {
		return d, nil
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// seller is a provider that offers, and refuses every award: no job runs in these tests.
type seller struct {
	host   *p2p.Host
	signer attest.Signer
	mu     sync.Mutex
	awards int
}

func newSeller(t *testing.T, i byte, price market.MicroUSD, place market.Place, to *p2p.Host) *seller {
	t.Helper()
	s := &seller{}
	s.host, s.signer = newHost(t, i)
	_, err := deal.New(deal.Options{Host: s.host,
		Bid: func(_ context.Context, _ attest.Key, e attest.Envelope) (attest.Envelope, bool) {
			b, err := attest.Decode[market.Bid](e)
			if err != nil {
				t.Error(err)
				return attest.Envelope{}, false
			}
			o, err := s.signer.Sign(market.OfferDomain, market.Offer{Version: 1, Bid: e.ID(), Provider: s.signer.Key(), Price: price, IntervalMS: b.IntervalMS,
				FirmUntil: time.Now().Add(time.Minute).UnixMilli(), Nonce: market.Nonce{1}, Tier: b.Tier, Place: place, Simulated: true,
				Devices: []market.OfferedDevice{{ID: market.NewDeviceID(s.signer.Key(), "x"), Model: "RTX 4090", Name: "NVIDIA GeForce RTX 4090", MemBytes: 24 << 30}}})
			if err != nil {
				t.Error(err)
			}
			return o, err == nil
		},
		Award: func(_ context.Context, _ attest.Key, award attest.Envelope, _ []byte) (attest.Envelope, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.awards++
			return s.signer.Sign(market.DeclineDomain, market.Decline{Version: 1, About: award.ID(), Provider: s.signer.Key(), At: time.Now().UnixMilli(),
				Failures: []market.Failure{{Reason: market.CreditExceeded, Wanted: "credit", Available: "none"}}})
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.host.Connect(ctx, to.Key(), to.Addrs()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *seller) awarded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awards
}

// bench is a renter whose ways to its providers are made up.
type bench struct {
	t    *testing.T
	r    *renter.Renter
	host *p2p.Host
	ways *ways
	spec market.Spec
}

func newBench(t *testing.T, change func(*renter.Options)) *bench {
	t.Helper()
	b := &bench{t: t, ways: &ways{paths: map[attest.Key]p2p.Path{}, wide: map[attest.Key]p2p.Path{}, rtt: map[attest.Key]time.Duration{}, known: map[attest.Key]bool{}}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	o := renter.Options{Network: networkName, Engine: "none", Params: reputation.TestParams(), JobsDir: filepath.Join(t.TempDir(), "jobs")}
	var err error
	o.Host, o.Signer = newHost(t, 0)
	b.host = o.Host
	o.Store, err = store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "store")})
	must(err)
	t.Cleanup(func() { _ = o.Store.Close() })
	o.Find, err = find.New(find.Options{Host: o.Host})
	must(err)
	t.Cleanup(func() { _ = o.Find.Close() })
	o.Bids, err = bids.New(bids.Options{Host: o.Host})
	must(err)
	t.Cleanup(func() { _ = o.Bids.Close() })
	o.Files, err = blob.OpenStore(t.TempDir())
	must(err)
	o.Blobs, err = blob.New(blob.Options{Host: o.Host, Store: o.Files, Allow: func(attest.Key, attest.Digest) bool { return false }})
	must(err)
	o.Deal, err = deal.New(deal.Options{Host: o.Host, Answer: func(ctx context.Context, from attest.Key, e attest.Envelope) deal.Code {
		return b.r.Answer(ctx, from, e)
	}})
	must(err)
	if change != nil {
		change(&o)
	}
	b.r, err = renter.New(o)
	must(err)
	b.r.SetNetwork(b.ways)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	module := filepath.Join(t.TempDir(), "m.wasm")
	must(os.WriteFile(module, []byte("\x00asm\x01\x00\x00\x00"), 0o600))
	b.spec = market.Spec{Module: module, GPUs: 1, MaxPrice: 10 * market.USD, StartWithin: 5 * time.Second, Duration: time.Minute}
	return b
}

// run runs the job to its end, at the sellers, and returns its last auction and events.
func (b *bench) run(sellers ...*seller) (renter.Job, auction.Record, []renter.Event) {
	b.t.Helper()
	for _, s := range sellers {
		b.spec.Providers = append(b.spec.Providers, s.signer.Key())
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	j, err := b.r.Submit(ctx, b.spec, false)
	if err != nil {
		b.t.Fatal(err)
	}
	if j, err = b.r.Wait(ctx, j.ID); err != nil {
		b.t.Fatal(err)
	}
	records, err := b.r.Auctions(j.ID)
	if err != nil || len(records) == 0 {
		b.t.Fatalf("%d auctions, %v", len(records), err)
	}
	for i, rec := range records {
		if err := rec.Recompute(attest.NetworkID(networkName)); err != nil {
			b.t.Errorf("auction %d: %v", i, err)
		}
	}
	var events []renter.Event
	if err := b.r.Events(ctx, j.ID, 0, false, func(e renter.Event) error { events = append(events, e); return nil }); err != nil {
		b.t.Fatal(err)
	}
	return j, records[len(records)-1], events
}

func (b *bench) blameless() {
	b.t.Helper()
	reps, err := b.r.Reputations(time.Now())
	if err != nil || len(reps) != 0 {
		b.t.Errorf("%d peers have evidence against them, %v; nothing was signed", len(reps), err)
	}
}

// TestLimitedRelay has one provider that only a limited relay leads to, and one whom a hole can be punched to. The first is
// passed over, though it is cheaper, and nothing is signed to it.
func TestLimitedRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	limited, punched, gone := newSeller(t, 1, 100_000, market.Place{}, b.host), newSeller(t, 2, 300_000, market.Place{}, b.host), newSeller(t, 3, 200_000, market.Place{}, b.host)
	b.ways.paths[limited.signer.Key()], b.ways.paths[punched.signer.Key()] = p2p.PathLimited, p2p.PathLimited
	b.ways.wide[punched.signer.Key()] = p2p.PathPunched
	b.ways.paths[gone.signer.Key()] = p2p.PathNone
	j, rec, events := b.run(limited, punched, gone)
	if j.State != renter.JobNoOffer || j.Reason != auction.RelayLimited || !strings.HasPrefix(j.Detail, "1 provider can be reached only through a limited relay") {
		t.Errorf("job is %s (%s, %q)", j.State, j.Reason, j.Detail)
	}
	want := []auction.Unreached{{Peer: limited.signer.Key(), Reason: auction.RelayLimited}, {Peer: gone.signer.Key(), Reason: auction.CannotReach}}
	if diff := cmp.Diff(want, rec.Unreached); diff != "" {
		t.Errorf("passed over (-want +got):\n%s", diff)
	}
	if limited.awarded() != 0 || gone.awarded() != 0 || punched.awarded() != 1 || len(rec.Refusals) != 1 || len(j.Leases) != 0 {
		t.Errorf("%d, %d and %d awards, %d refusals; want one award, of the punched one", limited.awarded(), gone.awarded(), punched.awarded(), len(rec.Refusals))
	}
	surcharge := map[attest.Key]uint64{}
	for _, e := range rec.Entries {
		surcharge[e.Offer.Provider] = e.SurchargeBP
	}
	if diff := cmp.Diff(map[attest.Key]uint64{limited.signer.Key(): auction.RelayedBP, punched.signer.Key(): auction.PunchedBP, gone.signer.Key(): 0}, surcharge); diff != "" {
		t.Errorf("surcharges (-want +got):\n%s", diff)
	}
	var told []renter.UnreachedEvent
	sought := slices.Clone(b.ways.sought)
	for _, e := range events {
		if e.Kind == renter.EvUnreached {
			told = append(told, *e.Unreached)
		}
	}
	if len(told) != 2 || told[0].Peer != limited.signer.Key() || told[0].Reason != auction.RelayLimited {
		t.Errorf("events %+v", told)
	}
	if len(sought) != 3 {
		t.Errorf("paths were sought to %d peers, once each: want 3", len(sought))
	}
	b.blameless()
}

// TestOnlyLimitedRelays ends a job with the reason when no path to anybody carries it.
func TestOnlyLimitedRelays(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	one, two := newSeller(t, 1, 100_000, market.Place{}, b.host), newSeller(t, 2, 300_000, market.Place{}, b.host)
	b.ways.paths[one.signer.Key()], b.ways.paths[two.signer.Key()] = p2p.PathLimited, p2p.PathLimited
	j, rec, _ := b.run(one, two)
	if j.State != renter.JobNoOffer || j.Reason != auction.RelayLimited || !strings.HasPrefix(j.Detail, "2 providers can be reached only through a limited relay, which carries no job data") {
		t.Errorf("job is %s (%s, %q)", j.State, j.Reason, j.Detail)
	}
	if one.awarded()+two.awarded() != 0 || len(rec.Unreached) != 2 || rec.Award != nil || j.Cost != 0 || j.Vouched != 0 {
		t.Errorf("%d awards, unreached %+v, %s paid", one.awarded()+two.awarded(), rec.Unreached, j.Vouched)
	}
	b.blameless()
}

// TestStopWhileSeeking stops a job while it waits for a path. Nobody is asked any more.
func TestStopWhileSeeking(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	s := newSeller(t, 1, 100_000, market.Place{}, b.host)
	b.ways.paths[s.signer.Key()], b.ways.held = p2p.PathLimited, make(chan struct{}, 8)
	b.spec.Providers = []attest.Key{s.signer.Key()}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	j, err := b.r.Submit(ctx, b.spec, false)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.ways.held:
	case <-ctx.Done():
		t.Fatal("no path was sought")
	}
	began := time.Now()
	if err := b.r.Stop(ctx, j.ID); err != nil {
		t.Fatal(err)
	}
	if j, err = b.r.Wait(ctx, j.ID); err != nil || j.State != renter.JobStopped || s.awarded() != 0 {
		t.Errorf("job is %s, %v, after %d awards", j.State, err, s.awarded())
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	records, err := b.r.Auctions(j.ID)
	if err != nil || len(records) == 0 || !records[len(records)-1].Stopped {
		t.Fatalf("%d auctions, %v", len(records), err)
	}
	if err := records[len(records)-1].Recompute(attest.NetworkID(networkName)); err != nil {
		t.Error(err)
	}
}

// TestLatency holds offers against the round trip that is measured.
func TestLatency(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	near, edge, far, mute := newSeller(t, 1, 300_000, market.Place{}, b.host), newSeller(t, 2, 290_000, market.Place{}, b.host),
		newSeller(t, 3, 100_000, market.Place{}, b.host), newSeller(t, 4, 100_000, market.Place{}, b.host)
	b.spec.Latency = 50 * time.Millisecond
	b.ways.rtt[near.signer.Key()] = 4100 * time.Microsecond // counts as 5 ms
	b.ways.rtt[edge.signer.Key()] = 50 * time.Millisecond
	b.ways.rtt[far.signer.Key()], b.ways.known[far.signer.Key()] = 50*time.Millisecond+1, true
	_, rec, events := b.run(near, edge, far, mute)
	type seen struct {
		RTT, Surcharge uint64
		Excluded       string
	}
	got := map[attest.Key]seen{}
	for _, e := range rec.Entries {
		got[e.Offer.Provider] = seen{e.RTTMS, e.SurchargeBP, e.Excluded}
	}
	want := map[attest.Key]seen{near.signer.Key(): {5, 50, ""}, edge.signer.Key(): {50, auction.LatencyBP, ""}, far.signer.Key(): {51, auction.LatencyBP, "too_far"},
		mute.signer.Key(): {0, 0, "latency_unknown"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	// 0.30 · 1.005 is less than 0.29 · 1.05.
	if rec.Entries[0].Offer.Provider != near.signer.Key() || near.awarded() != 1 || far.awarded()+mute.awarded() != 0 {
		t.Errorf("first is %s, awards %d %d %d", rec.Entries[0].Offer.Provider.Short(), near.awarded(), far.awarded(), mute.awarded())
	}
	if !slices.ContainsFunc(events, func(e renter.Event) bool {
		return e.Kind == renter.EvOffer && e.Offer.RTTMS == 51 && e.Offer.Excluded == "too_far"
	}) {
		t.Error("no event tells of the offer that is too far")
	}
}

// TestImpossiblePlace halves the rate of a provider that cannot be where it says it is, and does not take it for a job that
// asks for that place.
func TestImpossiblePlace(t *testing.T) {
	t.Parallel()
	berlin := market.Place{Continent: "eu", Country: "de", City: "berlin"}
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked for %v", asked), func(t *testing.T) {
			var liar, honest *seller
			b := newBench(t, func(o *renter.Options) {
				o.PlaceFault = func(k attest.Key, p market.Place) bool {
					if p != berlin {
						t.Errorf("asked about %s", p)
					}
					return k == liar.signer.Key()
				}
			})
			honest, liar = newSeller(t, 1, 300_000, berlin, b.host), newSeller(t, 2, 300_000, berlin, b.host)
			excluded := ""
			if asked {
				b.spec.Require, excluded = []market.Place{{Continent: "eu"}}, "impossible_place"
			}
			_, rec, _ := b.run(honest, liar)
			if len(rec.Entries) != 2 {
				t.Fatalf("%d entries", len(rec.Entries))
			}
			first, second := rec.Entries[0], rec.Entries[1]
			if first.Offer.Provider != honest.signer.Key() || second.MeanBP != first.MeanBP/2 || !second.PlaceFault || first.PlaceFault || second.Excluded != excluded || second.Known {
				t.Errorf("first %+v, second mean %d, fault %v, excluded %q", first.MeanBP, second.MeanBP, second.PlaceFault, second.Excluded)
			}
			if asked && liar.awarded() != 0 {
				t.Error("it was awarded")
			}
		})
	}
}

// A renter without answers of its own must not be asked for more than the protocol lets in.
func TestStreamsOfAnswers(t *testing.T) {
	if deal.AnswerProtocol.MaxIn != auction.MaxStreams {
		t.Errorf("the protocol lets in %d streams, the market reckons with %d", deal.AnswerProtocol.MaxIn, auction.MaxStreams)
	}
}

// A bid carries as many addresses as fit: a renter behind a router is reached through relays, whose addresses are long.
func TestAddressesOfABid(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	circuit := func(i int) string {
		return fmt.Sprintf("/ip4/203.0.113.%d/udp/4711/quic-v1/p2p/12D3KooWBHyZvKW2VPopbocgfNTFK3KQQX2EFQcuo3kPFvFEfAt%d/p2p-circuit", 100+i, i)
	}
	addrs := market.PickAddrs([]string{"/ip6/2001:db8:1234:5678:9abc:def0:1234:5678/udp/4711/quic-v1", "/ip4/198.51.100.100/tcp/4711", circuit(1), circuit(2), circuit(3)}, 4)
	bid := func() market.Bid {
		now := time.Now()
		return market.Bid{Version: 1, Renter: b.host.Key(), Request: market.Nonce{1}, Seq: 1 << 40, IssuedAt: now.UnixMilli(), AnnounceUntil: now.Add(time.Minute).UnixMilli(),
			ValidUntil: now.Add(24 * time.Hour).UnixMilli(), Workload: market.WASM, Count: 64, Class: "amd", Models: []string{"RTX 4090", "A100-SXM4-80GB"}, MemBytes: 80 << 30,
			HostMemBytes: 4 << 30, DurationMS: 1 << 34, StartWithinMS: 1 << 29, Tier: market.Silver, Require: []market.Place{{Continent: "eu", Country: "de", City: "frankfurt"}},
			GraceMS: 3_600_000, DeclineBP: 10_000, IntervalMS: 600_000, Simulated: true, ReplyTo: addrs}
	}
	usual, large := bid(), bid()
	for i := range 8 {
		large.Models = append(large.Models[:min(i, len(large.Models))], strings.Repeat(string('a'+rune(i)), 60))
	}
	for _, tt := range []struct {
		name string
		bid  market.Bid
		want int
	}{{"usual", usual, 4}, {"with eight long models", large, 3}} {
		env, err := b.r.SignBid(&tt.bid)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := attest.MarshalEnvelope(env)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes with %d addresses", tt.name, len(raw), len(tt.bid.ReplyTo))
		if len(raw) > market.MaxBidBytes || len(tt.bid.ReplyTo) != tt.want {
			t.Errorf("%s: %d bytes with %d addresses, want %d", tt.name, len(raw), len(tt.bid.ReplyTo), tt.want)
		}
	}
}

// A job does not wait for a provider that it may not go to, such as the only one that it names and that lost it before.
func TestNobodyToWaitFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	s := newSeller(t, 1, 100_000, market.Place{}, b.host)
	b.spec.Exclude, b.spec.StartWithin = []attest.Key{s.signer.Key()}, patience
	began := time.Now()
	j, _, _ := b.run(s)
	if took := time.Since(began); j.State != renter.JobNoOffer || j.Reason != "no_offer" || took > patience/2 {
		t.Errorf("job is %s (%s) after %s", j.State, j.Reason, took)
	}
}
