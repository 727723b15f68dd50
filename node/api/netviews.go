package api

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// PeerView is a connected peer.
type PeerView struct {
	Peer          attest.Key `json:"peer"`
	Addr          string     `json:"addr"`
	Path          string     `json:"path"`            // direct, hole-punched, relayed, or limited: a relay that carries signalling only
	Inbound       bool       `json:"inbound"`         // it dialled this peer
	LatencyMS     *float64   `json:"latency_ms"`      // round trip; null = not measured yet
	Agent         *string    `json:"agent"`           // its software; null = not told
	ClockOffsetMS *int64     `json:"clock_offset_ms"` // its clock ahead of this peer's; null = not known
	Trouble       *string    `json:"trouble"`         // why it is not understood, such as which side is too old; null = it is
}

// Reachability is whether others can dial the peer, as they found.
type Reachability struct {
	Verdict     string       `json:"verdict"`      // direct, hole-punched, relayed, unreachable or unknown
	Since       *time.Time   `json:"since"`        // when the verdict became what it is; null = unknown
	CheckedAt   *time.Time   `json:"checked_at"`   // when it was last confirmed; null = never
	By          []attest.Key `json:"by"`           // who found it, newest first; empty where it is by definition
	AddrsWorked []string     `json:"addrs_worked"` // own addresses that others have dialled
	AddrsFailed []string     `json:"addrs_failed"` // own addresses that others could not dial
	Relays      []attest.Key `json:"relays"`       // peers that hold a place for this one
	UDP         *string      `json:"udp"`          // open or blocked, on the way out of here; null = not known
	TCP         *string      `json:"tcp"`
}

// ClockView is how far this peer's clock is from those of its peers.
type ClockView struct {
	SkewMS *int64 `json:"skew_ms"` // the median of the peers' clocks ahead of this one; null = too few have told theirs
	Peers  int    `json:"peers"`   // that have told theirs
}

// TwinView is another peer that runs under this one's key.
type TwinView struct {
	Addr   string    `json:"addr"` // where it was seen, "" = not known
	SeenAt time.Time `json:"seen_at"`
}

// RelayingView is what this peer relays for others.
type RelayingView struct {
	Circuits    int    `json:"circuits"`      // open now
	Places      int    `json:"places"`        // peers that others reach through this one
	Bytes       uint64 `json:"bytes"`         // carried since the start, both directions
	DayMaxBytes uint64 `json:"day_max_bytes"` // in 24 hours; nothing more is carried then
	Bulk        bool   `json:"bulk"`          // job data may pass, not signalling alone
}

// ViewReach shows what others found.
func ViewReach(r p2p.Reach) Reachability {
	return Reachability{Verdict: r.Verdict.String(), Since: instant(r.Since), CheckedAt: instant(r.CheckedAt), By: full(r.Witnesses),
		AddrsWorked: full(r.Worked), AddrsFailed: full(r.Failed), Relays: full(r.Relays), UDP: known(string(r.UDP)), TCP: known(string(r.TCP))}
}

// instant returns t in UTC, nil for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
