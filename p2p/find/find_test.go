package find_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/find"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

var testNetwork = attest.NetworkID("test")

func signer(i int) attest.Signer { return attest.NewSigner(p2ptest.Key(i), testNetwork) }

// ask returns an ask of host i that lives as long as life.
func ask(i int, seq uint64, life time.Duration, change func(*market.Ask)) market.Ask {
	now := time.Now()
	a := market.Ask{
		Version: 1, Provider: signer(i).Key(), Seq: seq, IssuedAt: now.UnixMilli(), ExpiresAt: now.Add(life).UnixMilli(),
		Lots:      []market.Lot{{Model: "NVIDIA GeForce RTX 4090", Class: "nv-24g", MemBytes: 24 << 30, Count: 1, Free: 1, Price: 400_000}},
		Place:     market.Place{Continent: "eu", Country: "de"},
		Workloads: []market.Workload{market.WASM}, Tiers: []market.Tier{market.Silver}, Addrs: []string{"/ip4/192.0.2.1/tcp/4711"}, Agent: "lacuna/dev",
	}
	if change != nil {
		change(&a)
	}
	return a
}

func sign(t testing.TB, i int, a market.Ask) attest.Envelope {
	t.Helper()
	e, err := signer(i).Sign(market.AskDomain, a)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// network is n hosts with a finder each; the last one is a light client if light is set.
type network struct {
	*p2ptest.Network
	finders  []*find.Finder
	registry []*prometheus.Registry
}

func newNetwork(t testing.TB, n int, light bool) *network {
	t.Helper()
	w := &network{Network: p2ptest.New(t, n, p2ptest.Options{})}
	for i := range n {
		mode := find.Auto
		if light && i == n-1 {
			mode = find.Client
		}
		w.start(t, i, mode)
	}
	return w
}

// start starts the finder of host i, which has none yet.
func (w *network) start(t testing.TB, i int, mode find.Mode) *find.Finder {
	t.Helper()
	r := prometheus.NewRegistry()
	f, err := find.New(find.Options{Host: w.Host(i), Mode: mode, Registerer: r})
	if err != nil {
		t.Fatal(err)
	}
	w.finders, w.registry = append(w.finders, f), append(w.registry, r)
	return f
}

// count returns the sum of a counter over all finders, for those whose first label has one of the values, or for all.
func (w *network) count(t testing.TB, name string, values ...string) int {
	t.Helper()
	n := 0
	for _, r := range w.registry {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != name {
				continue
			}
			for _, m := range family.GetMetric() {
				if l := m.GetLabel(); len(values) == 0 || (len(l) > 0 && slices.Contains(values, l[0].GetValue())) {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

func (w *network) close(t testing.TB) {
	t.Helper()
	for _, f := range w.finders {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	w.Close()
}

// lookup returns the numbers of the providers found and their sequences, "3#1", in order.
func (w *network) lookup(t *testing.T, i int, q find.Query) []string {
	t.Helper()
	out := []string{}
	for f := range w.finders[i].Lookup(t.Context(), q) {
		n := slices.IndexFunc(w.Hosts(), func(h *p2p.Host) bool { return h.Key() == f.Ask.Provider })
		if f.Envelope.Verify(testNetwork, market.AskDomain) != nil {
			t.Errorf("ask of %d comes with an envelope that does not verify", n)
		}
		out = append(out, fmt.Sprintf("%d#%d", n, f.Ask.Seq))
	}
	slices.Sort(out)
	return out
}

// TestFreshNetworks looks for asks right after the peers of a small network have connected.
func TestFreshNetworks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		peers int
		light bool
	}{
		{"two peers", 2, false},
		{"three peers", 3, false},
		{"one peer and a light client", 2, true},
		{"two peers and a light client", 3, true},
		{"six peers", 6, false},
		{"five peers and a light client", 6, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t, tt.peers, tt.light)
				defer w.close(t)
				for _, h := range w.Hosts()[1:] {
					w.Connect(h, w.Host(0)) // a star, so that most do not know each other
				}
				start := time.Now()
				err := w.finders[0].Publish(t.Context(), sign(t, 0, ask(0, 1, time.Hour, nil)))
				if alone := tt.peers == 2 && tt.light; alone != errors.Is(err, find.ErrAlone) || !alone && err != nil {
					t.Fatalf("Publish = %v, want ErrAlone: %v", err, alone)
				}
				last := tt.peers - 1
				if diff := cmp.Diff([]string{"0#1"}, w.lookup(t, last, find.Query{Classes: []string{"nv-24g"}, Places: []string{"eu"}})); diff != "" {
					t.Errorf("found (-want +got):\n%s", diff)
				}
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("publishing and looking up took %v, want at most 5 s", d)
				}
			})
		})
	}
}

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 12, true)
		defer w.close(t)
		w.ConnectAll(3)
		for _, f := range w.finders {
			if err := f.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		publish := func(i int, seq uint64, change func(*market.Ask)) {
			t.Helper()
			if err := w.finders[i].Publish(t.Context(), sign(t, i, ask(i, seq, time.Hour, change))); err != nil {
				t.Fatal(err)
			}
		}
		publish(0, 1, nil)
		publish(1, 7, func(a *market.Ask) { a.Place = market.Place{Continent: "na"} })
		publish(2, 1, func(a *market.Ask) {
			a.Lots = append(a.Lots, market.Lot{Model: "NVIDIA A100", Class: "nv-80g", Count: 2, Free: 2, Price: 1_000_000})
		})
		publish(3, 1, func(a *market.Ask) { a.Lots[0].Class = "cpu"; a.Place = market.Place{} })
		publish(0, 2, nil) // replaces the first
		for _, tt := range []struct {
			name string
			q    find.Query
			want []string
		}{
			{"class and place", find.Query{Classes: []string{"nv-24g"}, Places: []string{"eu"}}, []string{"0#2", "2#1"}},
			{"class anywhere", find.Query{Classes: []string{"nv-24g"}}, []string{"0#2", "1#7", "2#1"}},
			{"two classes, each provider once", find.Query{Classes: []string{"nv-80g", "nv-24g"}, Places: []string{"any"}}, []string{"0#2", "1#7", "2#1"}},
			{"all", find.Query{}, []string{"0#2", "1#7", "2#1", "3#1"}},
			{"all in a place", find.Query{Places: []string{"na", "sa"}}, []string{"1#7"}},
			{"unknown place", find.Query{Classes: []string{"cpu"}, Places: []string{"eu"}}, []string{}},
			{"nobody", find.Query{Classes: []string{"amd-24g"}}, []string{}},
		} {
			if diff := cmp.Diff(tt.want, w.lookup(t, 11, tt.q)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
		if got := w.lookup(t, 11, find.Query{Limit: 2}); len(got) != 2 {
			t.Errorf("Limit 2: found %v", got)
		}
		for range w.finders[11].Lookup(t.Context(), find.Query{}) {
			break // leaves no goroutine behind, which the bubble checks
		}
		if n := len(w.Host(11).Peers()); n == 0 {
			t.Error("the light client is connected to nobody")
		}
	})
}

func TestAskIsReplacedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 6, false)
		defer w.close(t)
		w.ConnectAll(2)
		key := w.Host(0).Key()
		get := func() (uint64, error) {
			a, _, err := w.finders[3].Get(t.Context(), key)
			return a.Seq, err
		}
		if seq, err := get(); !errors.Is(err, find.ErrNotFound) {
			t.Errorf("Get before publishing = %d, %v", seq, err)
		}
		if err := w.finders[0].Publish(t.Context(), sign(t, 0, ask(0, 5, time.Hour, nil))); err != nil {
			t.Fatal(err)
		}
		if err := w.finders[0].Publish(t.Context(), sign(t, 0, ask(0, 4, time.Hour, nil))); err == nil {
			t.Error("an older ask was published over a newer one")
		}
		if seq, err := get(); err != nil || seq != 5 {
			t.Errorf("Get = %d, %v, want 5", seq, err)
		}
		if err := w.finders[0].Withdraw(t.Context(), sign(t, 0, ask(0, 6, 2*time.Second, nil))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if seq, err := get(); !errors.Is(err, find.ErrNotFound) {
			t.Errorf("Get after withdrawing = %d, %v", seq, err)
		}
		if got := w.lookup(t, 3, find.Query{}); len(got) != 0 {
			t.Errorf("found %v after withdrawing", got)
		}

		if err := w.finders[1].Publish(t.Context(), sign(t, 1, ask(1, 1, 20*time.Minute, nil))); err != nil {
			t.Fatal(err)
		}
		if got := w.lookup(t, 3, find.Query{}); len(got) != 1 {
			t.Errorf("found %v, want one", got)
		}
		time.Sleep(21 * time.Minute)
		if got := w.lookup(t, 3, find.Query{}); len(got) != 0 {
			t.Errorf("found %v after it expired", got)
		}
	})
}

func TestPublishRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2, false)
		defer w.close(t)
		alone := sign(t, 0, ask(0, 1, time.Hour, nil))
		if err := w.finders[0].Publish(t.Context(), alone); err == nil {
			t.Error("published to nobody without an error")
		}
		w.ConnectAll(1)
		long := func(a *market.Ask) {
			for range 15 {
				a.Lots = append(a.Lots, market.Lot{Model: strings.Repeat("x", 64), Class: "nv-24g", Count: 1, Price: 1})
				a.Addrs = append(a.Addrs, "/dns4/"+strings.Repeat("x", 190))
			}
		}
		old := sign(t, 0, ask(0, 2, time.Minute, nil))
		time.Sleep(2 * time.Minute)
		for _, tt := range []struct {
			name string
			e    attest.Envelope
			want error // nil: any
		}{
			{"of another peer", sign(t, 1, ask(1, 1, time.Hour, nil)), nil},
			{"signed by another peer", sign(t, 1, ask(0, 3, time.Hour, nil)), attest.ErrSignature},
			{"expired", old, market.ErrExpired},
			{"too large", sign(t, 0, ask(0, 3, time.Hour, long)), nil},
		} {
			if err := w.finders[0].Publish(t.Context(), tt.e); err == nil || (tt.want != nil && !errors.Is(err, tt.want)) {
				t.Errorf("%s: Publish = %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}

func TestOlderAskStaysReplaced(t *testing.T) {
	now := time.Now()
	got := find.Note(signer(1).Key(), []uint64{3, 5, 4, 5, 6}, now.Add(time.Minute).UnixMilli(), now)
	if diff := cmp.Diff([]bool{true, true, false, true, true}, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

// TestLightClientStoresNothing holds that a light client is in nobody's routing table.
func TestLightClientStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2, true)
		defer w.close(t)
		w.ConnectAll(1)
		time.Sleep(time.Minute)
		if n := w.finders[0].Size(); n != 0 {
			t.Errorf("the server's routing table holds %d peers, its only neighbour is a light client", n)
		}
		if n := w.finders[1].Size(); n != 1 {
			t.Errorf("the light client's routing table holds %d peers, want the server", n)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, false)
		defer w.close(t)
		r := prometheus.NewRegistry()
		h := w.Add(p2p.Options{})
		f, err := find.New(find.Options{Host: h, Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w.Connect(h, w.Host(0))
		if err := w.finders[0].Publish(t.Context(), sign(t, 0, ask(0, 1, time.Hour, nil))); err != nil {
			t.Fatal(err)
		}
		for range f.Lookup(t.Context(), find.Query{}) {
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, m := range families {
			for _, v := range m.GetMetric() {
				got[m.GetName()] += v.GetCounter().GetValue() + v.GetGauge().GetValue()
			}
		}
		delete(got, "lacuna_find_served_total") // depends on who met whom first
		want := map[string]float64{
			"lacuna_find_asks_total": 1, "lacuna_find_lookups_total": 1, "lacuna_find_questions_total": 1,
			"lacuna_find_puts_total": 1, "lacuna_find_held_asks": 1,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}
