package market_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/market"
)

func TestPickAddrs(t *testing.T) {
	const (
		tcp, quic, ws = "/ip4/198.51.100.1/tcp/4711", "/ip4/198.51.100.1/udp/4711/quic-v1", "/ip4/198.51.100.1/tcp/443/wss"
		tcp6, quic6   = "/ip6/2001:db8::1/tcp/4711", "/ip6/2001:db8::1/udp/4711/quic-v1"
		relayA        = "/ip4/203.0.113.1/tcp/1/p2p/12D3A/p2p-circuit"
		relayALonger  = "/ip4/203.0.113.1/udp/1/quic-v1/p2p/12D3A/p2p-circuit"
		relayB        = "/ip4/203.0.113.2/tcp/4711/p2p/12D3B/p2p-circuit"
		relayC        = "/ip4/203.0.113.33/tcp/4711/p2p/12D3C/p2p-circuit"
	)
	for _, tt := range []struct {
		name  string
		addrs []string
		most  int
		want  []string
	}{
		{"none", nil, 4, nil},
		{"few", []string{quic, tcp}, 4, []string{quic, tcp}},
		{"many straight ones keep their order", []string{quic, tcp, quic6, tcp6, ws}, 4, []string{quic, tcp, quic6, tcp6}},
		{"twice", []string{quic, quic, tcp}, 4, []string{quic, tcp}},
		{"one per relay, the shortest", []string{relayALonger, relayA, relayB}, 4, []string{relayA, relayB}},
		{"relays get half", []string{relayB, relayC, relayA, quic, tcp, quic6}, 4, []string{quic, tcp, relayA, relayB}},
		{"one relay leaves room", []string{relayA, quic, tcp, quic6, tcp6}, 4, []string{quic, tcp, quic6, relayA}},
		{"relays fill what is left", []string{quic, relayA, relayB, relayC}, 4, []string{quic, relayA, relayB, relayC}},
		{"too long", []string{"/dns4/" + strings.Repeat("a", 200) + "/tcp/1", tcp, "/dns4/" + strings.Repeat("a", 200) + relayA}, 4, []string{tcp}},
		{"one place", []string{relayA, tcp}, 1, []string{tcp}},
		{"no place", []string{relayA, tcp}, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := strings.Join(tt.addrs, " ")
			got := market.PickAddrs(tt.addrs, tt.most)
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("picked (-want +got):\n%s", diff)
			}
			if strings.Join(tt.addrs, " ") != before {
				t.Error("the caller's list was changed")
			}
		})
	}
}
