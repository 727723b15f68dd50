package peers

import (
	"log/slog"
	"time"
)

// sleepGap is how far the clocks must drift apart between two looks to mean a sleep.
const sleepGap = 30 * time.Second

// slept reports whether the computer slept between two looks. The monotonic clock stands still meanwhile on most
// systems, so the wall clock runs ahead of it; where it does not, both make a leap that a look every few seconds never
// sees. A clock that was set forward looks the same, and costs one look at the network.
func slept(wall, monotonic time.Duration) bool {
	return wall-monotonic > sleepGap || monotonic > look+sleepGap
}

// watcher compares what is with what was.
type watcher struct {
	clock time.Time
	addrs func() ([]string, error)
	last  []string
	known bool // last was read
}

func (w *watcher) first(log *slog.Logger) {
	addrs, err := w.addrs()
	if err != nil {
		log.Warn("addresses of this computer cannot be read; a change of networks is not noticed", "err", err)
		return
	}
	w.last, w.known = addrs, true
}

// look returns what has changed since the last look, "" for nothing.
func (w *watcher) look(now time.Time) string {
	// Round strips the monotonic reading, so that the first difference is of wall clocks and the second is not.
	why := ""
	if slept(now.Round(0).Sub(w.clock.Round(0)), now.Sub(w.clock)) {
		why = "sleep"
	}
	w.clock = now
	addrs, err := w.addrs()
	if err != nil {
		return why
	}
	if w.known && !sameAddrs(w.last, addrs) && why == "" {
		why = "addresses"
	}
	w.last, w.known = addrs, true
	return why
}
