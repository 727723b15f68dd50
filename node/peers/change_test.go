package peers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/node/peers"
)

func TestSlept(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		name            string
		wall, monotonic time.Duration
		want            bool
	}{
		{"an ordinary look", 5 * s, 5 * s, false},
		{"a late one", 20 * s, 20 * s, false},
		{"the wall clock was corrected", 7 * s, 5 * s, false},
		{"it was set back", -3600 * s, 5 * s, false},
		{"half a minute is not enough", 35 * s, 5 * s, false},
		{"a sleep", 3600 * s, 5 * s, true},
		{"a sleep where both clocks go on", 3600 * s, 3600 * s, true},
	} {
		if got := peers.Slept(tt.wall, tt.monotonic); got != tt.want {
			t.Errorf("%s: Slept(%v, %v) = %v, want %v", tt.name, tt.wall, tt.monotonic, got, tt.want)
		}
	}
}

func TestWatcher(t *testing.T) {
	addrs, fails := []string{"192.0.2.1", "2001:db8::1"}, error(nil)
	look := peers.Looks(start, func() ([]string, error) { return addrs, fails })
	now := start
	step := func(name string, by time.Duration, want string) {
		t.Helper()
		now = now.Add(by)
		if got := look(now); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	step("nothing", peers.Look, "")
	addrs = []string{"2001:db8::1", "192.0.2.1"}
	step("another order", peers.Look, "")
	addrs = []string{"198.51.100.7"}
	step("another network", peers.Look, "addresses")
	step("it stays", peers.Look, "")
	fails = errors.New("no")
	step("unreadable", peers.Look, "")
	addrs, fails = nil, nil
	step("none", peers.Look, "addresses")
	step("a sleep", time.Hour, "sleep")
	step("and on", peers.Look, "")
}
