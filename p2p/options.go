package p2p

import (
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
)

// libp2p returns the options of the library.
func (o *Options) libp2p() ([]libp2p.Option, error) {
	key, err := crypto.UnmarshalEd25519PrivateKey(o.Key)
	if err != nil {
		return nil, err
	}
	options, err := o.Profile.limits(o.Testnet)
	if err != nil {
		return nil, err
	}
	options = append(options,
		libp2p.Identity(key), libp2p.UserAgent(agent(o.Version)), libp2p.ProtocolVersion("lacuna/1"),
		libp2p.DisableMetrics(), libp2p.DisableRelay(), libp2p.WithDialTimeout(dialTimeout), libp2p.AddrsFactory(o.announced()))
	options = append(options, o.transports()...)
	return append(append(options, o.reaching()...), o.Libp2p...), nil
}

// reaching returns how this peer finds out whether others can reach it, and what helps them to.
func (o *Options) reaching() []libp2p.Option {
	switch {
	case o.Testnet:
		// Peers of one machine learn nothing from being told how others see them, and it stalls virtual time.
		return []libp2p.Option{libp2p.DisableIdentifyAddressDiscovery(), libp2p.ForceReachabilityPublic()}
	case o.Profile == Hub:
		// A hub that has dialled little yet must not conclude that UDP or IPv6 is blocked, or it refuses to help
		// others find out whether they can be reached.
		return []libp2p.Option{libp2p.EnableAutoNATv2(), libp2p.UDPBlackHoleSuccessCounter(nil), libp2p.IPv6BlackHoleSuccessCounter(nil)}
	}
	return []libp2p.Option{libp2p.EnableAutoNATv2(), libp2p.NATPortMap()}
}
