package p2p

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	pbv2 "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/pb"
	relayv2 "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"
)

// RelayPolicy is what a directly reachable peer relays for those who are not. The zero value relays nothing.
type RelayPolicy struct {
	Serve      bool          // the owner lets this peer become a hub, see [Host.Hub]
	PerDay     uint64        // bytes relayed in 24 h, all circuits and both directions together; 0 = 1 GB, with Bulk 100 GB
	Bulk       bool          // let job data, logs and tunnels pass too
	BulkData   uint64        // bytes of one circuit in each direction, with Bulk; 0 = 10 GB
	BulkTime   time.Duration // life of one circuit, with Bulk; 0 = 24 h
	BulkPerSec uint64        // bytes a second, all circuits together, with Bulk; 0 = 10 MB
}

// What one relay carries. The library's own limits (2 min and 128 KiB a circuit, 16 circuits a peer, 8 reservations an
// address) cut a renter off who gets 40 answers, and a rack that shares an address.
const (
	signalData     = 1 << 20          // bytes of a circuit in each direction: a lease with all its messages is below 200 KiB
	signalTime     = 10 * time.Minute // of a circuit: longer than a lease takes to be made, shorter than a job
	relayTTL       = time.Hour        // of a reservation
	relaySlots     = 1024
	relayPerPeer   = 128 // circuits of one peer, which is a renter's crowd of answers
	relayPerIP     = 64  // reservations
	relayPerASN    = 1024
	relayBuffer    = 4 << 10 // bytes, two of them a circuit
	relayDay       = 1 << 30
	relayBulkDay   = 100 << 30
	relayBulkData  = 10 << 30
	relayBulkTime  = 24 * time.Hour
	relayBulkSpeed = 10 << 20
	relayBurst     = 256 << 10 // bytes that may pass at once; more than a buffer

	// bulkData and bulkTime are what a circuit must be allowed at least to count as one for bulk data.
	bulkData = 64 << 20
	bulkTime = 30 * time.Minute
)

// bulkRelayID is served by relays that let bulk data pass, so that others can prefer them. It carries nothing.
func bulkRelayID(network string) protocol.ID {
	return protocol.ID("/lacuna/" + network + "/relay-bulk/1")
}

// limit returns what one circuit may carry.
func (p RelayPolicy) limit() *relayv2.RelayLimit {
	if !p.Bulk {
		return &relayv2.RelayLimit{Data: signalData, Duration: signalTime}
	}
	return &relayv2.RelayLimit{
		Data:     int64(min(cmp.Or(p.BulkData, relayBulkData), 1<<62)),
		Duration: cmp.Or(p.BulkTime, relayBulkTime),
	}
}

// relayService relays while it is on, for whoever speaks the protocol.
type relayService struct {
	policy  RelayPolicy
	network string
	private bool // private addresses of this peer are told to those who reserve
	host    host.Host
	metrics *metrics
	ctx     context.Context
	speed   *rate.Limiter // nil = as fast as it goes
	mu      sync.Mutex
	relay   *relayv2.Relay // nil = off
	day     budget
	open    map[*relayed]bool // one stream of each circuit
}

func newRelayService(ctx context.Context, h host.Host, o *Options, m *metrics) *relayService {
	r := &relayService{
		policy: o.Relay, network: o.Network, private: o.LAN, host: h, metrics: m, ctx: ctx,
		day: budget{perDay: cmp.Or(o.Relay.PerDay, relayDay)}, open: make(map[*relayed]bool),
	}
	if o.Relay.Bulk {
		r.day.perDay = cmp.Or(o.Relay.PerDay, relayBulkDay)
		r.speed = rate.NewLimiter(rate.Limit(cmp.Or(o.Relay.BulkPerSec, relayBulkSpeed)), relayBurst)
	}
	return r
}

// set turns the service on or off. Circuits that are open stay open until they reach a limit.
func (r *relayService) set(on bool) error {
	if !r.policy.Serve {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case on && r.relay == nil && r.ctx.Err() == nil: // the host may be closing
		relay, err := r.start()
		if err != nil {
			return fmt.Errorf("start relay: %w", err)
		}
		r.relay = relay
	case !on && r.relay != nil:
		err := r.relay.Close()
		r.relay = nil
		r.host.RemoveStreamHandler(bulkRelayID(r.network))
		if err != nil {
			return fmt.Errorf("stop relay: %w", err)
		}
	}
	return nil
}

func (r *relayService) start() (*relayv2.Relay, error) {
	options := []relayv2.Option{
		relayv2.WithResources(relayv2.Resources{
			Limit: r.policy.limit(), ReservationTTL: relayTTL, MaxReservations: relaySlots, MaxCircuits: relayPerPeer,
			BufferSize: relayBuffer, MaxReservationsPerIP: relayPerIP, MaxReservationsPerASN: relayPerASN,
		}),
		relayv2.WithACL(r), relayv2.WithMetricsTracer(r),
	}
	if r.private {
		options = append(options, relayv2.WithReservationAddressFilter(func(m ma.Multiaddr) bool { return !circuit(m) }))
	}
	relay, err := relayv2.New(relayHost{r.host, r}, options...)
	if err != nil {
		return nil, err
	}
	if r.policy.Bulk {
		r.host.SetStreamHandler(bulkRelayID(r.network), func(s network.Stream) { _ = s.Reset() })
	}
	return relay, nil
}

// AllowReserve lets everybody reserve while there is something left of the day.
func (r *relayService) AllowReserve(peer.ID, ma.Multiaddr) bool { return r.left() }

// AllowConnect lets everybody connect while there is something left of the day.
func (r *relayService) AllowConnect(peer.ID, ma.Multiaddr, peer.ID) bool { return r.left() }

func (r *relayService) left() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.day.left(time.Now()) > 0
}

// BytesTransferred counts. It is called by the goroutine that carries them, after each buffer, so waiting here is what
// holds that circuit to the speed.
func (r *relayService) BytesTransferred(n int) {
	r.metrics.relayBytes.Add(float64(n))
	r.mu.Lock()
	now := time.Now()
	r.day.spend(now, uint64(n))
	var over []*relayed
	if r.day.left(now) == 0 {
		for s := range r.open {
			over = append(over, s)
		}
	}
	r.mu.Unlock()
	for _, s := range over {
		r.metrics.relayRefused.WithLabelValues("day_spent").Inc()
		_ = s.Reset()
	}
	if r.speed != nil {
		_ = r.speed.WaitN(r.ctx, min(n, relayBurst)) // fails when the host closes, and then nothing matters
	}
}

// RelayStatus is of no interest.
func (r *relayService) RelayStatus(bool) {}

// ConnectionOpened counts a circuit in.
func (r *relayService) ConnectionOpened() { r.metrics.relayCircuits.Inc() }

// ConnectionClosed counts a circuit out.
func (r *relayService) ConnectionClosed(time.Duration) { r.metrics.relayCircuits.Dec() }

// ConnectionRequestHandled counts refusals.
func (r *relayService) ConnectionRequestHandled(s pbv2.Status) { r.count("circuit_", s) }

// ReservationAllowed counts a place in, unless it is the same again.
func (r *relayService) ReservationAllowed(again bool) {
	if !again {
		r.metrics.relayPlaces.Inc()
	}
}

// ReservationClosed counts places out.
func (r *relayService) ReservationClosed(n int) { r.metrics.relayPlaces.Sub(float64(n)) }

// ReservationRequestHandled counts refusals.
func (r *relayService) ReservationRequestHandled(s pbv2.Status) {
	r.metrics.relayAsked.Inc()
	r.count("reservation_", s)
}

func (r *relayService) count(what string, s pbv2.Status) {
	if s != pbv2.Status_OK {
		r.metrics.relayRefused.WithLabelValues(what + statusWord(s)).Inc()
	}
}

// statusWord returns why a relay refused.
func statusWord(s pbv2.Status) string {
	switch s {
	case pbv2.Status_RESERVATION_REFUSED, pbv2.Status_RESOURCE_LIMIT_EXCEEDED:
		return "full"
	case pbv2.Status_PERMISSION_DENIED:
		return "denied"
	case pbv2.Status_CONNECTION_FAILED, pbv2.Status_NO_RESERVATION:
		return "gone"
	}
	return "malformed"
}

// relayHost is the host as the relay sees it: the streams it opens can be ended when the day is spent.
type relayHost struct {
	host.Host
	r *relayService
}

// NewStream opens the far half of a circuit.
func (h relayHost) NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error) {
	s, err := h.Host.NewStream(ctx, p, ids...)
	if err != nil {
		return nil, err
	}
	t := &relayed{Stream: s, r: h.r}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.r.open[t] = true
	return t, nil
}

// relayed is the far half of a circuit.
type relayed struct {
	network.Stream
	r *relayService
}

func (s *relayed) forget() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	delete(s.r.open, s)
}

// Close ends the circuit in order.
func (s *relayed) Close() error {
	s.forget()
	return s.Stream.Close()
}

// Reset ends the circuit at once.
func (s *relayed) Reset() error {
	s.forget()
	return s.Stream.Reset()
}
