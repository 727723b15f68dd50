package p2p

import (
	"net/netip"
	"runtime"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/x/rate"
)

// Profile is the role a peer plays on the network. It picks the numbers below, and those of p2p/find and p2p/bids.
type Profile string

// The profiles.
const (
	Hub      Profile = "hub"      // publicly reachable: also bootstrap, DHT server and relay of bid topics
	Provider Profile = "provider" // any peer that stays, whether it sells or not: a client of the DHT until others can dial it, then a hub
	Light    Profile = "light"    // there for one job, or wants it so: serves no DHT and subscribes to no topic
	Testnet  Profile = "testnet"  // many peers on one machine
)

// numbers are the settings of libp2p that differ between profiles.
type numbers struct {
	low, high int           // marks of the connection manager
	grace     time.Duration // how long a fresh connection is safe from trimming
	perIP     int           // connections per IPv4 address and per IPv6 /56
	rps       float64       // new connections per second from one IPv4 address or IPv6 /56
	burst     int           // new connections at once from there
}

// profiles holds the numbers. Connections are the cost of a peer: 0.1 MB and 7 goroutines each (measured 2026-11-30
// with go-libp2p v0.52.0).
//
//   - Marks: a high mark below what the DHT needs makes trim and redial thrash (operations took 20 times the CPU with
//     10/16 among 50 peers). A light client needs its hubs and the peers of its auctions; a hub holds a region.
//   - Per IP: libp2p allows 8 connections per address and one new one per 5 s. A rack behind one NAT is more than that,
//     and all connections through one relay count as the relay's address (measured: 7 of 40 offers got through). A peer
//     behind a router gets as many as a relay has circuits for it; a hub sees relays less.
//   - Testnet: every peer has the same address, so nothing is limited by address.
var profiles = map[Profile]numbers{
	Hub:      {low: 800, high: 2000, grace: 60 * time.Second, perIP: 64, rps: 5, burst: 128},
	Provider: {low: 80, high: 160, grace: 30 * time.Second, perIP: 160, rps: 5, burst: 160},
	Light:    {low: 30, high: 60, grace: 30 * time.Second, perIP: 160, rps: 5, burst: 160},
	Testnet:  {low: 24, high: 96, grace: 5 * time.Second},
}

// Waits of this package.
const (
	dialTimeout  = 10 * time.Second // for one connection, all addresses together
	pingTimeout  = 5 * time.Second  // for the one ping that measures a new peer's latency
	probeTimeout = 2 * time.Second  // for each way of probing; silence is noticed after 5 s, so two probes fit
	probeGrace   = time.Second      // for a ping to contradict that all TCP addresses refused
)

// limits returns the options for connections and resources. A test network gets no resource manager, whatever the role:
// its peers share one address and one machine, and the limits per protocol hold there as everywhere.
func (p Profile) limits(testnet bool, m *metrics) ([]libp2p.Option, error) {
	n := profiles[p]
	cm, err := connmgr.NewConnManager(n.low, n.high, connmgr.WithGracePeriod(n.grace))
	if err != nil {
		return nil, err
	}
	options := []libp2p.Option{libp2p.ConnectionManager(cm)}
	if testnet || p == Testnet {
		return append(options, libp2p.ResourceManager(&network.NullResourceManager{})), nil
	}
	scaling := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&scaling)
	// The system limit must lie above the high mark, or connections are refused before they can be trimmed.
	base := scaling.SystemBaseLimit
	base.Conns, base.ConnsOutbound = max(base.Conns, 4*n.high), max(base.ConnsOutbound, 2*n.high)
	base.ConnsInbound, base.FD = max(base.ConnsInbound, 2*n.high), max(base.FD, 2*n.high)
	scaling.SystemBaseLimit = base
	perIP := func(bits int) []rcmgr.ConnLimitPerSubnet {
		return []rcmgr.ConnLimitPerSubnet{{PrefixLength: bits, ConnCount: n.perIP}}
	}
	subnet := func(bits int) []rate.SubnetLimit {
		return []rate.SubnetLimit{{PrefixLength: bits, Limit: rate.Limit{RPS: n.rps, Burst: n.burst}}}
	}
	rm, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(scaling.AutoScale()),
		rcmgr.WithMetricsDisabled(), rcmgr.WithMetrics(blocked{m}),
		rcmgr.WithLimitPerSubnet(perIP(32), perIP(56)),
		rcmgr.WithConnRateLimiters(&rate.Limiter{
			NetworkPrefixLimits: []rate.PrefixLimit{ // without a limit: peers on this machine
				{Prefix: netip.MustParsePrefix("127.0.0.0/8")}, {Prefix: netip.MustParsePrefix("::1/128")},
			},
			SubnetRateLimiter: rate.SubnetLimiter{
				IPv4SubnetLimits: subnet(32), IPv6SubnetLimits: subnet(56), GracePeriod: time.Minute,
			},
		}))
	if err != nil {
		return nil, err
	}
	return append(options, libp2p.ResourceManager(counted{rm, m})), nil
}

// agent returns the user agent that identify tells other peers.
func agent(version string) string { return "lacuna/" + version + " " + runtime.GOOS }
