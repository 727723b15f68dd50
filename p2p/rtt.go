package p2p

import (
	"context"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// RTT returns the round trip to a peer as measured, the lowest of the recent measurements, and false if there is none.
// It is kept for a while after the connection has ended.
func (h *Host) RTT(key attest.Key) (time.Duration, bool) {
	d := h.host.Peerstore().LatencyEWMA(PeerID(key))
	return d, d > 0
}

// MeasureRTT pings a connected peer and returns the round trip.
func (h *Host) MeasureRTT(ctx context.Context, key attest.Key) (time.Duration, error) {
	return h.pingOnce(ctx, PeerID(key))
}
