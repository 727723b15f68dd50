package bids_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/bids"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

var testNetwork = attest.NetworkID("test")

// announce returns a bid of host i as it is first announced now.
func announce(i int, request byte) market.Bid {
	now := time.Now()
	return market.Bid{
		Version: 1, Renter: attest.NewSigner(p2ptest.Key(i), testNetwork).Key(), Request: market.Nonce{request}, Seq: 1,
		IssuedAt: now.UnixMilli(), AnnounceUntil: now.Add(30 * time.Second).UnixMilli(), ValidUntil: now.Add(10 * time.Minute).UnixMilli(),
		Workload: market.WASM, Count: 1, Class: "nv", DurationMS: 60_000, StartWithinMS: 5_000, Tier: market.Silver, IntervalMS: 1_000,
		ReplyTo: []string{"/ip4/192.0.2.1/tcp/4711"},
	}
}

func sign(t *testing.T, i int, b market.Bid) attest.Envelope {
	t.Helper()
	e, err := attest.NewSigner(p2ptest.Key(i), testNetwork).Sign(market.BidDomain, b)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func encode(t *testing.T, e attest.Envelope) []byte {
	t.Helper()
	b, err := attest.MarshalEnvelope(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// network is hosts with gossip.
type network struct {
	*p2ptest.Network
	t      *testing.T
	gossip []*bids.Gossip
}

func newNetwork(t *testing.T, n int) *network {
	t.Helper()
	w := &network{Network: p2ptest.New(t, 0, p2ptest.Options{}), t: t}
	for range n {
		w.add(p2p.Testnet, bids.Options{})
	}
	return w
}

func (w *network) add(profile p2p.Profile, o bids.Options) *bids.Gossip {
	w.t.Helper()
	o.Host = w.Add(p2p.Options{Profile: profile, Relay: p2p.RelayPolicy{Serve: true}})
	g, err := bids.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.gossip = append(w.gossip, g)
	return g
}

// connectRandomly connects each host to the next one and to k-1 others, the same in each run.
func (w *network) connectRandomly(k int) {
	r := rand.New(rand.NewPCG(1, 2))
	n := len(w.gossip)
	for i := range n {
		w.Connect(w.Host(i), w.Host((i+1)%n))
		for range k - 1 {
			if j := r.IntN(n); j != i {
				w.Connect(w.Host(i), w.Host(j))
			}
		}
	}
}

func (w *network) close() {
	for _, g := range w.gossip {
		if err := g.Close(); err != nil {
			w.t.Error(err)
		}
	}
	w.Close()
}

// subscribe subscribes host i.
func (w *network) subscribe(i int, topics ...bids.Topic) <-chan bids.Heard {
	w.t.Helper()
	c, err := w.gossip[i].Subscribe(w.t.Context(), topics...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

var nv24 = []bids.Topic{{Class: "nv-24g", Place: "any"}, {Class: "nv-24g", Place: "eu"}}

// TestLightClientReachesMesh publishes from a light client right after it has connected to 4 of 30 providers.
func TestLightClientReachesMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		w := newNetwork(t, n)
		defer w.close()
		light := w.add(p2p.Light, bids.Options{})
		for i := range n {
			for j := 1; j <= 4; j++ {
				w.Connect(w.Host(i), w.Host((i+j)%n))
			}
		}
		var heard []<-chan bids.Heard
		for i := range n {
			heard = append(heard, w.subscribe(i, nv24...))
		}
		time.Sleep(5 * time.Second)
		if _, err := light.Publish(t.Context(), sign(t, n, announce(n, 1)), []string{"nv-24g"}, nil); !errors.Is(err, bids.ErrNobody) {
			t.Errorf("Publish before connecting = %v, want ErrNobody", err)
		}
		for j := range 4 {
			w.Connect(w.Host(n), w.Host(7*j))
		}
		start := time.Now()
		bid := announce(n, 2)
		// One bid on several topics: those who listen on two of them must hear it once.
		peers, err := light.Publish(t.Context(), sign(t, n, bid), []string{"nv-24g", "nv-32g"}, []string{"eu", "any"})
		// Each of its neighbours listens, and knows eight others.
		if err != nil || peers != 9 {
			t.Fatalf("Publish = %d, %v, want 9 peers", peers, err)
		}
		time.Sleep(2 * time.Second)
		for i, c := range heard {
			if len(c) != 1 {
				t.Errorf("host %d heard %d bids within 2 s, want 1", i, len(c))
				continue
			}
			h := <-c
			if diff := cmp.Diff(bid, h.Bid); diff != "" || h.Envelope.Verify(testNetwork, market.BidDomain) != nil {
				t.Errorf("host %d heard another bid (-want +got):\n%s", i, diff)
			}
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("took %v", d)
		}
		if _, err := light.Subscribe(t.Context(), nv24...); !errors.Is(err, bids.ErrLight) {
			t.Errorf("Subscribe by a light client = %v, want ErrLight", err)
		}
		if _, err := light.Relay(nv24...); !errors.Is(err, bids.ErrLight) {
			t.Errorf("Relay by a light client = %v, want ErrLight", err)
		}
		time.Sleep(10 * time.Second)
		// Nobody sends bids to the light client: it has told no one a topic.
		if _, err := w.gossip[0].Publish(t.Context(), sign(t, 0, announce(0, 3)), []string{"nv-24g"}, nil); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if s := light.Stats(); s.Heard != 0 || len(s.Dropped) != 0 {
			t.Errorf("the light client took part: %+v", s)
		}
	})
}

func TestPublishWaitsForTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2)
		defer w.close()
		c := w.subscribe(0, nv24...)
		go w.Connect(w.Host(1), w.Host(0))
		start := time.Now()
		n, err := w.gossip[1].Publish(t.Context(), sign(t, 1, announce(1, 1)), []string{"nv-24g"}, nil)
		if err != nil || n != 1 {
			t.Fatalf("Publish while connecting = %d, %v, want 1", n, err)
		}
		if d := time.Since(start); d > 300*time.Millisecond {
			t.Errorf("Publish took %v, at most 300 ms are promised", d)
		}
		if h := <-c; h.From != w.Host(1).Key() || h.Topic != nv24[0] {
			t.Errorf("heard from %s on %s, want %s on %s", h.From, h.Topic, w.Host(1).Key(), nv24[0])
		}
		start = time.Now()
		if n, err := w.gossip[1].Publish(t.Context(), sign(t, 1, announce(1, 2)), []string{"amd-24g"}, nil); !errors.Is(err, bids.ErrNobody) || n != 0 {
			t.Errorf("Publish on a topic of nobody = %d, %v, want ErrNobody", n, err)
		}
		if d := time.Since(start); d != 300*time.Millisecond {
			t.Errorf("Publish gave up after %v, want 300 ms", d)
		}
	})
}

func TestPublishRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2)
		defer w.close()
		w.subscribe(0, nv24...)
		w.Connect(w.Host(1), w.Host(0))
		long := announce(1, 1)
		for range 8 {
			long.ReplyTo = append(long.ReplyTo[:min(7, len(long.ReplyTo))], "/dns4/"+strings.Repeat("x", 190))
		}
		old := sign(t, 1, announce(1, 2))
		time.Sleep(5 * time.Minute)
		for _, tt := range []struct {
			name    string
			e       attest.Envelope
			classes []string
			places  []string
			want    error // nil: any
		}{
			{"too large", sign(t, 1, long), []string{"nv-24g"}, nil, nil},
			{"expired", old, []string{"nv-24g"}, nil, market.ErrExpired},
			{"of another renter", sign(t, 1, announce(0, 3)), []string{"nv-24g"}, nil, attest.ErrSignature},
			{"unknown class", sign(t, 1, announce(1, 4)), []string{"nv-25g"}, nil, market.ErrUnknown},
			{"unknown place", sign(t, 1, announce(1, 5)), []string{"nv-24g"}, []string{"europe"}, nil},
			{"no class", sign(t, 1, announce(1, 6)), nil, nil, bids.ErrNobody},
		} {
			if n, err := w.gossip[1].Publish(t.Context(), tt.e, tt.classes, tt.places); err == nil || n != 0 || (tt.want != nil && !errors.Is(err, tt.want)) {
				t.Errorf("%s: Publish = %d, %v, want %v", tt.name, n, err, tt.want)
			}
		}
	})
}

// TestBadBidsStopAtTheFirstPeer sends what a hostile peer would, and sees it counted and passed on to nobody.
func TestBadBidsStopAtTheFirstPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1)
		defer w.close()
		reg := prometheus.NewRegistry()
		first := w.add(p2p.Testnet, bids.Options{PerMinute: 2, Registerer: reg})
		w.add(p2p.Testnet, bids.Options{})
		w.Connect(w.Host(0), w.Host(1))
		w.Connect(w.Host(1), w.Host(2))
		near, far := w.subscribe(1, nv24...), w.subscribe(2, nv24...)
		old := encode(t, sign(t, 0, announce(0, 9)))
		time.Sleep(5 * time.Minute)
		forged := sign(t, 0, announce(0, 1))
		forged.Sig[0] ^= 1
		for _, data := range [][]byte{
			[]byte("hello"), encode(t, forged), old,
			encode(t, sign(t, 0, announce(0, 2))), encode(t, sign(t, 0, announce(0, 3))), encode(t, sign(t, 0, announce(0, 4))),
		} {
			if err := w.gossip[0].Raw(t.Context(), nv24[0], data); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		twin := announce(0, 3) // the same announcement with other content
		twin.Count = 2
		if err := w.gossip[0].Raw(t.Context(), nv24[0], encode(t, sign(t, 0, twin))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(near) != 2 || len(far) != 2 {
			t.Errorf("heard %d near and %d far, want 2 each", len(near), len(far))
		}
		want := bids.Stats{Heard: 2, Dropped: map[string]uint64{"malformed": 1, "signature": 1, "expired": 1, "rate": 1, "replayed": 1}}
		if diff := cmp.Diff(want, first.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(bids.Stats{Heard: 2, Dropped: map[string]uint64{}}, w.gossip[2].Stats()); diff != "" {
			t.Errorf("stats behind the first peer (-want +got):\n%s", diff)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				got[f.GetName()] += m.GetCounter().GetValue()
			}
		}
		if diff := cmp.Diff(map[string]float64{"lacuna_bids_heard_total": 2, "lacuna_bids_dropped_total": 5, "lacuna_bids_published_total": 0}, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		// Five more that only the sender can be blamed for, and it is heard no more, whosever bid it brings.
		for i := range 5 {
			if err := w.gossip[0].Raw(t.Context(), nv24[0], []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if got := first.Stats().Dropped["malformed"]; got != 6 {
			t.Errorf("%d malformed bids counted, want 6", got)
		}
		if err := w.gossip[0].Raw(t.Context(), nv24[0], encode(t, sign(t, 5, announce(5, 7)))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(near) != 2 {
			t.Errorf("a bid from a peer that floods garbage was heard")
		}
	})
}

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // for a fixed clock
		now := time.Now()
		bid := func(change func(*market.Bid)) []byte {
			b := announce(1, 1)
			if change != nil {
				change(&b)
			}
			payload, err := attest.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			return encode(t, attest.NewSigner(p2ptest.Key(1), testNetwork).SignBytes(market.BidDomain, payload))
		}
		foreign, err := attest.NewSigner(p2ptest.Key(1), attest.NetworkID("main")).Sign(market.BidDomain, announce(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name  string
			data  []byte
			at    time.Duration
			why   string
			blame bool
		}{
			{"good", bid(nil), 0, "", false},
			{"good, slow clock", bid(nil), -time.Minute, "", false},
			{"good, fast clock", bid(nil), 2 * time.Minute, "", false},
			{"nothing", nil, 0, "malformed", true},
			{"oversized", make([]byte, market.MaxBidBytes+1), 0, "size", true},
			{"trailing byte", append(bid(nil), 0), 0, "malformed", true},
			{"invalid value", bid(func(b *market.Bid) { b.Count = 0 }), 0, "malformed", true},
			{"of another network", encode(t, foreign), 0, "signature", true},
			{"for another renter", encode(t, sign(t, 1, announce(2, 1))), 0, "signature", true},
			{"late", bid(nil), 3 * time.Minute, "expired", false},
			{"early", bid(nil), -3 * time.Minute, "future", false},
		} {
			g := bids.NewGuard(testNetwork, 10, nil)
			why, blame := g.Check(tt.data, now.Add(tt.at))
			if why != tt.why || blame != tt.blame {
				t.Errorf("%s: dropped as %q, blame %v; want %q, %v", tt.name, why, blame, tt.why, tt.blame)
			}
		}
		g := bids.NewGuard(testNetwork, 1, nil)
		twin := func(b *market.Bid) { b.Count = 2 }
		second := func(b *market.Bid) { b.Seq = 2 }
		for i, tt := range []struct {
			data  []byte
			after time.Duration
			why   string
		}{
			{bid(nil), 0, ""},
			{bid(nil), 0, ""}, // as it comes on another topic, or by a hub: it costs nothing
			{bid(twin), 0, "replayed"},
			{bid(second), 0, "rate"},
			{bid(second), time.Minute, ""},
			{bid(nil), time.Minute, ""},
			{bid(twin), time.Minute, "replayed"},
			{bid(nil), 10 * time.Minute, "expired"},
		} {
			if why, _ := g.Check(tt.data, now.Add(tt.after)); why != tt.why {
				t.Errorf("message %d: dropped as %q, want %q", i, why, tt.why)
			}
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	taken, later := bids.Flood(40_000, time.Now())
	if taken != 1<<15 || !later {
		t.Errorf("%d of 40,000 announcements were noted, want %d; after they expired, room = %v", taken, 1<<15, later)
	}
}

func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2)
		defer w.close()
		hub := w.add(p2p.Hub, bids.Options{})
		c := w.subscribe(0, nv24...)
		stop, err := hub.Relay(nv24...)
		if err != nil {
			t.Fatal(err)
		}
		w.Connect(w.Host(0), w.Host(2))
		w.Connect(w.Host(1), w.Host(2))
		time.Sleep(2 * time.Second)
		if _, err := w.gossip[1].Publish(t.Context(), sign(t, 1, announce(1, 1)), []string{"nv-24g"}, []string{"eu"}); err != nil {
			t.Fatal(err)
		}
		if h := <-c; h.From != w.Host(2).Key() {
			t.Errorf("heard from %s, want the hub", h.From)
		}
		stop()
		time.Sleep(2 * time.Second)
		// It passes nothing on any more, but publishes for others.
		if err := w.gossip[1].Announce(t.Context(), nv24[1], encode(t, sign(t, 1, announce(1, 2)))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if len(c) != 0 {
			t.Error("the hub passes on bids after it was stopped")
		}
	})
}

func TestSubscribeEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1)
		c := w.subscribe(0, nv24...)
		if _, err := w.gossip[0].Subscribe(t.Context(), bids.Topic{Class: "nv-25g", Place: "any"}); !errors.Is(err, market.ErrUnknown) {
			t.Errorf("Subscribe to an unknown class = %v", err)
		}
		w.close()
		if _, open := <-c; open {
			t.Error("a bid after Close")
		}
		if _, err := w.gossip[0].Subscribe(t.Context(), nv24...); err == nil {
			t.Error("Subscribe after Close succeeded")
		}
	})
}

func TestTopics(t *testing.T) {
	eu := market.Place{Continent: "eu", Country: "de"}
	if diff := cmp.Diff(nv24, bids.TopicsFor("nv-24g", eu)); diff != "" {
		t.Errorf("TopicsFor (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nv24[:1], bids.TopicsFor("nv-24g", market.Place{})); diff != "" {
		t.Errorf("TopicsFor an unknown place (-want +got):\n%s", diff)
	}
	if got := bids.TopicsFor("nv-25g", eu); got != nil {
		t.Errorf("TopicsFor an unknown class = %v", got)
	}
	for _, class := range gpu.Classes() {
		if !bids.CanSubscribe("test", "/lacuna/test/bids/1/"+class+"/any") {
			t.Errorf("class %s has no topic", class)
		}
	}
	for _, name := range []string{
		"", "nv-24g/eu", "/lacuna/main/bids/1/nv-24g/eu", "/lacuna/test/bids/2/nv-24g/eu", "/lacuna/test/bids/1/nv-24g",
		"/lacuna/test/bids/1/nv-24g/eu/de", "/lacuna/test/bids/1/nv-24g/", "/lacuna/test/bids/1//any",
	} {
		if bids.CanSubscribe("test", name) {
			t.Errorf("topic %q is let in", name)
		}
	}
}

func FuzzGuard(f *testing.F) {
	e, err := attest.NewSigner(p2ptest.Key(1), testNetwork).Sign(market.BidDomain, announce(1, 1))
	if err != nil {
		f.Fatal(err)
	}
	b, err := attest.MarshalEnvelope(e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(slices.Concat(b, []byte{0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		why, blame := bids.NewGuard(testNetwork, 1, nil).Check(data, time.Now())
		if why == "" && len(data) > market.MaxBidBytes {
			t.Errorf("took %d bytes", len(data))
		}
		if blame && why == "" {
			t.Error("blamed for a good bid")
		}
	})
}
