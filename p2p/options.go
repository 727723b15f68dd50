package p2p

import (
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"

	"github.com/lacuna-network/lacuna/market"
)

// libp2p returns the options of the library.
func (o *Options) libp2p(h *Host) ([]libp2p.Option, error) {
	key, err := crypto.UnmarshalEd25519PrivateKey(o.Key)
	if err != nil {
		return nil, err
	}
	options, err := o.Profile.limits(o.testnet(), h.metrics)
	if err != nil {
		return nil, err
	}
	options = append(options,
		libp2p.Identity(key), libp2p.UserAgent(agent(o.Version)), libp2p.ProtocolVersion("lacuna/1"),
		libp2p.DisableMetrics(), libp2p.WithDialTimeout(dialTimeout), libp2p.ConnectionGater(h.gate),
		// After a hundred dials that failed, as in an hour without a network, the library would believe that UDP or IPv6
		// is blocked here and try it once in a hundred times from then on.
		libp2p.UDPBlackHoleSuccessCounter(nil), libp2p.IPv6BlackHoleSuccessCounter(nil))
	options = append(options, o.reaching(h)...)
	options = append(options, o.transports()...)
	return append(options, o.Libp2p...), nil
}

// reaching returns what helps others to reach this peer, and it to reach them.
func (o *Options) reaching(h *Host) []libp2p.Option {
	if h.reach == nil {
		// Peers of one machine learn nothing from being told how others see them, and it stalls virtual time.
		options := []libp2p.Option{libp2p.DisableRelay(), libp2p.DisableIdentifyAddressDiscovery(), libp2p.ForceReachabilityPublic()}
		if len(o.Announce) > 0 {
			options = append(options, libp2p.AddrsFactory(standing{fixed: parseAll(o.Announce), verdict: market.ReachDirect}.told))
		}
		return options
	}
	punch := &puncher{lan: o.LAN, seen: h.reach.seen, won: h.reach.punched}
	options := []libp2p.Option{
		libp2p.EnableRelay(), libp2p.AddrsFactory(h.reach.told),
		libp2p.EnableHolePunching(holepunch.DirectDialTimeout(punchDial), holepunch.WithTracer(punch), holepunch.WithAddrFilter(punch)),
	}
	if o.Reach != market.ReachUnknown {
		return append(options, libp2p.DisableIdentifyAddressDiscovery()) // as above
	}
	return append(options, libp2p.NATPortMap())
}
