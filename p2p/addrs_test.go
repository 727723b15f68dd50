package p2p_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

func TestTold(t *testing.T) {
	const (
		loop     = "/ip4/127.0.0.1/tcp/4101"
		bridge   = "/ip4/172.17.0.1/tcp/4101"
		vpn      = "/ip4/10.8.0.3/tcp/4101"
		home     = "/ip4/192.168.77.5/tcp/4101"
		link     = "/ip6/fe80::1/tcp/4101"
		ula      = "/ip6/fd00::5/tcp/4101"
		cgnat    = "/ip4/100.64.3.4/tcp/4101"
		public   = "/ip4/8.8.8.8/tcp/4101"
		public6  = "/ip6/2a00:1450::5/udp/4101/quic-v1"
		seen     = "/ip4/9.9.9.9/udp/40213/quic-v1"
		seenTCP  = "/ip4/9.9.9.9/tcp/40214"
		outside  = "/ip4/203.0.113.7/tcp/4101"
		circuitA = "/ip4/1.2.3.4/udp/4001/quic-v1/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA/p2p-circuit"
	)
	all := []string{loop, bridge, vpn, home, link, ula, cgnat, public, public6, seen, seenTCP, circuitA}
	base := p2p.Standing{
		Own:    []string{"127.0.0.1", "10.8.0.3", "192.168.77.5", "fe80::1", "fd00::5", "100.64.3.4", "8.8.8.8", "2a00:1450::5"},
		Hidden: []string{"172.17.0.1"},
	}
	with := func(change func(*p2p.Standing)) p2p.Standing {
		s := base
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name string
		s    p2p.Standing
		want []string
	}{
		{"public network", base, []string{public, public6}},
		{"one fails", with(func(s *p2p.Standing) { s.Failed = []string{public6} }), []string{public}},
		{"a mapping works", with(func(s *p2p.Standing) { s.Worked = []string{seen} }), []string{public, public6, seen}},
		{"lan", with(func(s *p2p.Standing) { s.LAN = true }), []string{vpn, home, ula, cgnat, public, public6}},
		{"test network", with(func(s *p2p.Standing) { s.Everything = true }), all[:11]},
		{"announce", with(func(s *p2p.Standing) { s.Fixed = []string{outside} }), []string{outside}},
		{"announce and lan", with(func(s *p2p.Standing) { s.Fixed, s.LAN = []string{outside}, true }), []string{outside}},
		{
			"relayed", with(func(s *p2p.Standing) {
				s.Failed, s.Relayed, s.Verdict = []string{public, public6}, []string{circuitA}, market.ReachRelayed
			}), []string{circuitA},
		},
		{
			"direct with an old relay", with(func(s *p2p.Standing) {
				s.Relayed, s.Verdict = []string{circuitA}, market.ReachDirect
			}), []string{public, public6},
		},
		{
			"announce that nobody can dial", with(func(s *p2p.Standing) {
				s.Fixed, s.Failed, s.Relayed, s.Verdict = []string{outside}, []string{outside}, []string{circuitA}, market.ReachRelayed
			}), []string{outside, circuitA},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.Told(all)); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}
