package find_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// crowd is n peers that know each other by name only, all but the last with an ask where it should be kept. The last is a
// light client with connections to six of them.
func crowd(t testing.TB, n int) *network {
	w := newNetwork(t, n, true)
	servers := w.finders[:n-1]
	for i, f := range servers {
		f.Know(servers)
		a := ask(i, 1, time.Hour, func(a *market.Ask) { a.Place = market.Place{Continent: []string{"eu", "na", "as"}[i%3]} })
		find.Keep(servers, a, sign(t, i, a))
	}
	for i := range 6 {
		w.Connect(w.Host(n-1), w.Host(i*(n-1)/6))
	}
	return w
}

// cost is what a look-up took.
type cost struct {
	found, calls, records int
	first, all            time.Duration
}

func (w *network) measure(t testing.TB, q find.Query) cost {
	t.Helper()
	calls, records := w.count(t, "lacuna_find_served_total"), w.count(t, "lacuna_find_asks_total")
	start := time.Now()
	var c cost
	for x := range w.finders[len(w.finders)-1].Lookup(t.Context(), q) {
		if c.found++; c.found == 1 {
			c.first = time.Since(start)
		}
		if len(q.Places) == 1 && x.Ask.Place.Continent != q.Places[0] {
			t.Errorf("found an ask in %s", x.Ask.Place.Continent)
		}
	}
	c.all = time.Since(start)
	c.calls, c.records = w.count(t, "lacuna_find_served_total")-calls, w.count(t, "lacuna_find_asks_total")-records
	return c
}

// lookups are questions with how many of n providers fit, and the most that an answer may cost: calls to other peers, and
// asks that are read beyond those wanted.
var lookups = []struct {
	name  string
	q     find.Query
	want  func(n int) int
	calls int
	extra int
	all   time.Duration
}{
	{"8 of any", find.Query{Limit: 8}, func(int) int { return 8 }, 40, 4, time.Second},
	{"8 of a class", find.Query{Classes: []string{"nv-24g"}, Limit: 8}, func(int) int { return 8 }, 40, 4, time.Second},
	{"all", find.Query{}, func(n int) int { return n }, 80, 10, 2 * time.Second},
	{"all of a class in a place", find.Query{Classes: []string{"nv-24g"}, Places: []string{"eu"}}, func(n int) int { return (n + 2) / 3 }, 80, 10, 2 * time.Second},
	{"all of a class in a place, again", find.Query{Classes: []string{"nv-24g"}, Places: []string{"eu"}}, func(n int) int { return (n + 2) / 3 }, 80, 10, time.Second},
}

func TestLargeNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		w := crowd(t, n)
		defer w.close(t)
		for _, tt := range lookups {
			c := w.measure(t, tt.q)
			t.Logf("%-34s %+v", tt.name, c)
			if want := tt.want(n - 1); c.found != want || c.records > want+tt.extra || c.calls > tt.calls || c.all > tt.all {
				t.Errorf("%s: %+v, want %d found with at most %d calls, %d asks read, in %v", tt.name, c, want, tt.calls, want+tt.extra, tt.all)
			}
		}
		calls, puts := w.count(t, "lacuna_find_served_total"), w.count(t, "lacuna_find_puts_total")
		start := time.Now()
		if err := w.finders[3].Publish(t.Context(), sign(t, 3, ask(3, 2, time.Hour, nil))); err != nil {
			t.Error(err)
		}
		d := time.Since(start)
		calls, puts = w.count(t, "lacuna_find_served_total")-calls, w.count(t, "lacuna_find_puts_total")-puts
		t.Logf("publishing took %v, %d calls to find the way and %d with the ask", d, calls, puts)
		if d > 2*time.Second || calls > 160 || puts > 80 {
			t.Errorf("publishing took %v, %d calls to find the way and %d with the ask, want at most 2 s, 160 and 80", d, calls, puts)
		}
	})
}

// BenchmarkLookup reports what look-ups cost in networks of 50 and 200 peers, in virtual time. They are not repeated: in
// virtual time the second is as the first.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{50, 200} {
		var costs []cost
		if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "lookups", F: func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := crowd(t, n)
				defer w.close(t)
				for _, tt := range lookups {
					costs = append(costs, w.measure(t, tt.q))
				}
			})
		}}}) {
			b.Fatal("a look-up failed")
		}
		for i, tt := range lookups {
			b.Run(fmt.Sprintf("%d peers/%s", n, tt.name), func(b *testing.B) {
				for range b.N { // measured above
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(costs[i].first.Milliseconds()), "ms-to-first")
				b.ReportMetric(float64(costs[i].all.Milliseconds()), "ms-to-all")
				b.ReportMetric(float64(costs[i].calls), "calls")
				b.ReportMetric(float64(costs[i].records), "asks-read")
			})
		}
	}
}
