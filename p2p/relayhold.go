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

// relayHolder gets places at relays while this peer needs them, with the library's AutoRelay. That is told what to do by
// hand and not over the host's event bus: an event that still waits there when the host closes would start it again,
// for good.
type relayHolder struct {
	auto *autorelay.AutoRelay
	told chan any
}

// holdRelays begins; nothing is reserved before the first tell.
func holdRelays(h host.Host, f *relayFinder) (*relayHolder, error) {
	r := &relayHolder{told: make(chan any)}
	var err error
	if r.auto, err = autorelay.NewAutoRelay(toldHost{h, r}, f.options()...); err != nil {
		return nil, fmt.Errorf("hold relays: %w", err)
	}
	r.auto.Start()
	return r, nil
}

// tell says whether others can dial this peer; if they cannot, relays are looked for.
func (r *relayHolder) tell(ctx context.Context, state network.Reachability) {
	select {
	case r.told <- event.EvtLocalReachabilityChanged{Reachability: state}:
	case <-ctx.Done():
	}
}

// close gives up looking. Nobody must tell anything any more.
func (r *relayHolder) close() error {
	// When this is taken, what was told before has been done; in itself it means nothing.
	r.told <- event.EvtLocalReachabilityChanged{Reachability: -1}
	return r.auto.Close()
}

// toldHost is the host as AutoRelay sees it.
type toldHost struct {
	host.Host
	r *relayHolder
}

// EventBus returns the host's, with another source of reachability.
func (h toldHost) EventBus() event.Bus { return toldBus{h.Host.EventBus(), h.r} }

// IDService is what AutoRelay waits on before it looks at what a relay speaks.
func (h toldHost) IDService() identify.IDService {
	if s, ok := h.Host.(interface{ IDService() identify.IDService }); ok {
		return s.IDService()
	}
	return nil
}

type toldBus struct {
	event.Bus
	r *relayHolder
}

// Subscribe returns what was told, for reachability.
func (b toldBus) Subscribe(kind any, o ...event.SubscriptionOpt) (event.Subscription, error) {
	if _, ok := kind.(*event.EvtLocalReachabilityChanged); ok {
		return toldSub{b.r.told}, nil
	}
	return b.Bus.Subscribe(kind, o...)
}

type toldSub struct{ c chan any }

// Out returns where it comes out.
func (s toldSub) Out() <-chan any { return s.c }

// Name returns a name for the library's metrics.
func (toldSub) Name() string { return "lacuna" }

// Close does nothing: relayHolder.close does.
func (toldSub) Close() error { return nil }
