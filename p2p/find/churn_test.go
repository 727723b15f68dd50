package find_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// TestChurn kills half of the peers that keep an ask, cuts the network, heals it, and withdraws.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, provider, renter = 60, 0, 59
		w := newNetwork(t, n, true)
		defer w.close(t)
		servers := w.finders[:n-1]
		for _, f := range w.finders {
			f.Know(servers)
		}
		seq := uint64(0)
		publish := func() {
			t.Helper()
			seq++
			if err := w.finders[provider].Publish(t.Context(), sign(t, provider, ask(provider, seq, 50*time.Minute, nil))); err != nil {
				t.Fatal(err)
			}
		}
		q := find.Query{Classes: []string{"nv-24g"}, Places: []string{"eu"}}
		check := func(when string, want ...string) {
			t.Helper()
			start := time.Now()
			if diff := cmp.Diff(append([]string{}, want...), w.lookup(t, renter, q)); diff != "" {
				t.Errorf("%s, after %v (-want +got):\n%s", when, time.Since(start), diff)
			}
			t.Logf("%s: %v", when, time.Since(start))
			if d := time.Since(start); d > 8*time.Second {
				t.Errorf("%s: the look-up took %v", when, d)
			}
		}
		before := w.count(t, "lacuna_find_served_total") + w.count(t, "lacuna_find_puts_total")
		start := time.Now()
		publish()
		t.Logf("publishing took %v and %d calls, %d of them with the ask", time.Since(start),
			w.count(t, "lacuna_find_served_total")+w.count(t, "lacuna_find_puts_total")-before, w.count(t, "lacuna_find_puts_total"))
		check("published", "0#1")

		dead := make(map[*find.Finder]bool)
		var alive []*p2p.Host
		for _, b := range [][2]string{{"nv-24g", "eu"}, {"nv-24g", "any"}, {"all", "any"}} {
			for i, f := range find.Nearest(servers, b[0], b[1]) {
				if i%2 == 0 && f != w.finders[provider] {
					dead[f] = true
				}
			}
		}
		for i, f := range w.finders {
			w.Mute(w.Host(i), dead[f])
			if !dead[f] {
				alive = append(alive, w.Host(i))
			}
		}
		check("with half of its storing peers dead", "0#1")
		time.Sleep(find.Republish)
		publish()
		check("published again", "0#2")

		half := alive[:len(alive)/2] // with the provider and without the renter
		w.Partition(half)
		time.Sleep(find.Republish)
		publish()
		time.Sleep(time.Minute)
		if got := w.lookup(t, renter, q); len(got) > 1 || (len(got) == 1 && got[0] != "0#2") {
			t.Errorf("cut off from the provider: found %v", got)
		}
		time.Sleep(50 * time.Minute)
		check("cut off for long")
		w.Heal()
		publish()
		check("healed", "0#4")
		if err := w.finders[provider].Withdraw(t.Context(), sign(t, provider, ask(provider, seq+1, 2*time.Second, nil))); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		check("withdrawn")
	})
}
