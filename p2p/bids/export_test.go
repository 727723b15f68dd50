package bids

import (
	"context"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// CanSubscribe reports whether peers of the network may subscribe to that name.
func CanSubscribe(network, name string) bool {
	return topicFilter{prefix: prefix(network)}.CanSubscribe(name)
}

// Guard checks messages as a peer does that has seen none.
type Guard struct{ g *guard }

// NewGuard returns a guard.
func NewGuard(network attest.Digest, perMinute int) Guard { return Guard{newGuard(network, perMinute)} }

// Check returns why a message is dropped, and whether its forwarder is to blame.
func (g Guard) Check(t Topic, data []byte, now time.Time) (why string, blame bool) {
	_, r := g.g.check(t, data, false, now)
	return string(r), r.provable()
}

// Raw sends any bytes on a topic, past this peer's own checks.
func (g *Gossip) Raw(ctx context.Context, t Topic, data []byte) error {
	joined, err := g.pubsub.Join(t.name(g.host.Network()))
	if err != nil {
		return err
	}
	defer joined.Close()
	return joined.Publish(ctx, data)
}

// Flood notes n announcements that live a minute. It returns how many found room, and whether one does afterwards.
func Flood(n int, now time.Time) (taken int, later bool) {
	s := newSeen()
	for i := range n {
		if s.add(announcement{seq: uint64(i)}, now.Add(time.Minute), now) {
			taken++
		}
	}
	return taken, s.add(announcement{seq: uint64(n)}, now.Add(time.Hour), now.Add(2*time.Minute))
}
