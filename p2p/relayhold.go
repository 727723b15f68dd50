package p2p

import (
	"context"
	"fmt"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
)

// relayHolder gets places at relays while this peer needs them, with the library's AutoRelay. That is fed by
// hand and not over the host's event bus: an event that still waits there when the host closes would start it again,
// for good.
type relayHolder struct {
	auto *autorelay.AutoRelay
	feed chan any
}

// holdRelays begins; nothing is reserved before it is fed.
func holdRelays(h host.Host, f *relayFinder) (*relayHolder, error) {
	r := &relayHolder{feed: make(chan any)}
	var err error
	if r.auto, err = autorelay.NewAutoRelay(fedHost{h, r}, f.options()...); err != nil {
		return nil, fmt.Errorf("hold relays: %w", err)
	}
	r.auto.Start()
	return r, nil
}

// state says whether others can dial this peer; if they cannot, relays are looked for.
func (r *relayHolder) state(ctx context.Context, state network.Reachability) {
	select {
	case r.feed <- event.EvtLocalReachabilityChanged{Reachability: state}:
	case <-ctx.Done():
	}
}

// close gives up looking. Nobody must feed it any more.
func (r *relayHolder) close() error {
	// When this is taken, what was fed before has been done; in itself it means nothing.
	r.feed <- event.EvtLocalReachabilityChanged{Reachability: -1}
	return r.auto.Close()
}

// fedHost is the host as AutoRelay sees it.
type fedHost struct {
	host.Host
	r *relayHolder
}

// EventBus returns the host's, with another source of reachability.
func (h fedHost) EventBus() event.Bus { return fedBus{h.Host.EventBus(), h.r} }

// IDService is what AutoRelay waits on before it looks at what a relay speaks.
func (h fedHost) IDService() identify.IDService {
	if s, ok := h.Host.(interface{ IDService() identify.IDService }); ok {
		return s.IDService()
	}
	return nil
}

type fedBus struct {
	event.Bus
	r *relayHolder
}

// Subscribe returns what is fed, for reachability.
func (b fedBus) Subscribe(kind any, o ...event.SubscriptionOpt) (event.Subscription, error) {
	if _, ok := kind.(*event.EvtLocalReachabilityChanged); ok {
		return fedSub{b.r.feed}, nil
	}
	return b.Bus.Subscribe(kind, o...)
}

type fedSub struct{ c chan any }

// Out returns where it comes out.
func (s fedSub) Out() <-chan any { return s.c }

// Name returns a name for the library's metrics.
func (fedSub) Name() string { return "lacuna" }

// Close does nothing: relayHolder.close does.
func (fedSub) Close() error { return nil }
