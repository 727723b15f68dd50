package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/p2p/hello"
)

func (n *Node) status(context.Context) (api.Status, error) {
	n.mu.Lock()
	started, heard, heardAt := n.started, n.heard, n.heardAt
	n.mu.Unlock()
	s := api.Status{Peer: n.Key(), Network: n.o.Config.Network.Name, Role: n.role(), Version: n.o.Version, PID: os.Getpid(),
		Home: n.o.Home.Dir(), UptimeMS: time.Since(started).Milliseconds(), Addrs: n.host.Addrs(), Listen: n.host.ListenAddresses(),
		Notes: append([]string{}, n.host.ListenNotes()...), Peers: n.peerViews(), Reachability: api.ViewReach(n.host.Reach()), BidsHeard: heard,
		StoreDamaged: len(n.store.Damaged()), Drops: map[string]uint64{}}
	if !heardAt.IsZero() {
		utc := heardAt.UTC()
		s.LastBidHeardAt = &utc
	}
	if f := n.peers.LastFailure(); len(s.Peers) == 0 && f.Reason != "" {
		s.LastDialError = fmt.Sprintf("…%s was tried %s ago: %s", f.Peer.Short(), time.Since(f.At).Round(time.Second), f.Reason)
	}
	if skew, ok := n.hello.Skew(); ok {
		s.Clock.Peers = skew.Peers
		if skew.Peers >= hello.SkewPeers {
			ms := skew.Offset.Milliseconds()
			s.Clock.SkewMS = &ms
		}
	}
	if twin, ok := n.hello.Twin(); ok {
		s.Twin = &api.TwinView{Addr: twin.Addr, SeenAt: twin.SeenAt.UTC()}
	}
	for _, j := range n.renter.Jobs() {
		if !j.State.Final() {
			s.JobsRunning++
		}
	}
	if n.provider != nil {
		devices, err := n.devices.Devices()
		if err != nil {
			return s, err
		}
		s.Devices, s.LeasesRunning = len(devices), n.provider.Running()
		for _, d := range devices {
			s.Simulated = s.Simulated || d.Simulated
		}
	}
	if err := n.addMoney(&s); err != nil {
		return s, err
	}
	return s, n.addCounters(&s)
}

// refreshPatience is how long somebody who asks waits for others to dial this peer.
const refreshPatience = 8 * time.Second

func (n *Node) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	n.host.Refresh(ctx)
}

// peerViews shows the connected peers, the nearest first, those of unknown distance last.
func (n *Node) peerViews() []api.PeerView {
	views := []api.PeerView{}
	for _, p := range n.host.Peers() {
		v := api.PeerView{Peer: p.Key, Addr: p.Addr, Path: p.Path.String(), Inbound: p.Inbound, LatencyMS: n.latency(p.Key)}
		if m, ok := n.hello.Met(p.Key); ok {
			if m.Agent != "" {
				v.Agent = &m.Agent
			}
			if m.Trouble != "" {
				v.Trouble = &m.Trouble
			}
			if m.RoundTrip > 0 {
				ms := m.Offset.Milliseconds()
				v.ClockOffsetMS = &ms
			}
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b api.PeerView) int {
		switch {
		case a.LatencyMS == nil && b.LatencyMS == nil:
			return strings.Compare(a.Peer.String(), b.Peer.String())
		case a.LatencyMS == nil:
			return 1
		case b.LatencyMS == nil:
			return -1
		}
		return cmp.Or(cmp.Compare(*a.LatencyMS, *b.LatencyMS), strings.Compare(a.Peer.String(), b.Peer.String()))
	})
	return views
}

// latency returns the round trip to a peer in milliseconds, nil if it was not measured.
func (n *Node) latency(peer attest.Key) *float64 {
	rtt, ok := n.host.RTT(peer)
	if !ok {
		return nil
	}
	ms := float64(rtt.Microseconds()) / 1000
	return &ms
}

// The counters of p2p that a status shows.
const (
	relayCircuits = "lacuna_p2p_relay_circuits"
	relayPlaces   = "lacuna_p2p_relay_reservations"
	relayBytes    = "lacuna_p2p_relay_bytes_total"
)

// addCounters takes from the counters that /metrics shows: what peers sent and nobody acted on, by part and reason, and
// what this peer relays.
func (n *Node) addCounters(s *api.Status) error {
	families, err := n.registry.Gather()
	if err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	relay := api.RelayingView{DayMaxBytes: n.o.Config.Network.RelayPerDay, Bulk: n.o.Config.Network.RelayBulk}
	for _, f := range families {
		part, drops := strings.CutSuffix(strings.TrimPrefix(f.GetName(), "lacuna_"), "_dropped_total")
		for _, m := range f.GetMetric() {
			switch {
			case drops:
				for _, l := range m.GetLabel() {
					if v := uint64(m.GetCounter().GetValue()); v > 0 {
						s.Drops[part+"_"+l.GetValue()] = v
					}
				}
			case f.GetName() == relayCircuits:
				relay.Circuits = int(m.GetGauge().GetValue())
			case f.GetName() == relayPlaces:
				relay.Places = int(m.GetGauge().GetValue())
			case f.GetName() == relayBytes:
				relay.Bytes = uint64(m.GetCounter().GetValue())
			}
		}
	}
	if n.relays() {
		s.Relaying = &relay
	}
	return nil
}

// addMoney sums what is promised to this peer as a provider, and by it as a renter. Nothing is received yet: there is no
// settlement rail.
func (n *Node) addMoney(s *api.Status) error {
	views, err := n.leases(context.Background(), "")
	for _, v := range views {
		if v.Role == ledger.Renter.String() {
			s.OwedMicroUSD += v.Vouched
			continue
		}
		s.PromisedMicroUSD += v.Due
		s.VouchedMicroUSD += v.Vouched
	}
	return err
}
