package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/autonatv2"
	"github.com/libp2p/go-libp2p/p2p/protocol/autonatv2/pb"
	"github.com/libp2p/go-msgio/pbio"
	ma "github.com/multiformats/go-multiaddr"
)

// Limits of dial-backs. The first two are the protocol's.
const (
	requestTimeout   = 15 * time.Second // the other dials for 10 s at most
	backTimeout      = 5 * time.Second
	maxRequestFrame  = 8 << 10 // bytes of a message
	maxBackFrame     = 1 << 10 // bytes of the message on the way back
	maxDialData      = 100_000 // bytes that the other may want before it dials an address that is not the one it sees
	dialDataPart     = 4 << 10 // bytes of one message of these
	servedPerMinute  = 60      // of all peers
	servedPerPeer    = 12      // a minute
	servedWithData   = 12      // a minute, with data to be sent first
	servedAtOncePeer = 2       // of one peer

	// perServer is one at a time and peer: two dial-backs of one server share a connection, so that the address that works
	// would prove the other one too.
	perServer = 1
)

// errNoAnswer means that an own address was neither found to work nor found to fail.
var errNoAnswer = errors.New("no verdict about the address")

// dialBacks has others dial an own address, by AutoNAT v2. The library's client is not used: it waits two minutes
// between two requests to one peer and wants two successes, so that in a network of one hub a verdict takes minutes; it
// comes back after an hour only; and it does not say who found what. Its server is used as it is.
type dialBacks struct {
	host    host.Host
	mu      sync.Mutex
	waiting map[uint64]chan bool // by nonce; gets whether the dial-back came in the right way
}

// serveAutoNAT serves such requests of others, from new ports and under a new identity, and takes the dial-backs to
// the host's own. The result ends with Close.
func serveAutoNAT(h host.Host, o *Options) (*dialBacks, *autonatv2.AutoNAT, error) {
	// A peer that has dialled little yet must not conclude that UDP or IPv6 is blocked, or it refuses to help.
	options := append(o.transports(), libp2p.DisableMetrics(), libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.ResourceManager(&network.NullResourceManager{}), // the server's rate bounds it
		libp2p.UDPBlackHoleSuccessCounter(nil), libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.SwarmOpts(swarm.WithDialRanker(swarm.NoDelayDialRanker)))
	dialer, err := libp2p.New(options...)
	if err != nil {
		return nil, nil, fmt.Errorf("make dialer: %w", err)
	}
	settings := []autonatv2.AutoNATOption{autonatv2.WithServerRateLimit(servedPerMinute, servedPerPeer, servedWithData, servedAtOncePeer)}
	if o.LAN {
		settings = append(settings, autonatv2.AllowPrivateAddrs)
	}
	server, err := autonatv2.New(dialer, settings...)
	if err == nil {
		err = server.Start(h)
	}
	if err != nil {
		_ = dialer.Close()
		return nil, nil, err
	}
	d := &dialBacks{host: h, waiting: make(map[uint64]chan bool)}
	h.SetStreamHandler(autonatv2.DialBackProtocol, d.take) // in place of the library's client
	return d, server, nil
}

// request has a peer dial one own address and reports whether it could. The error wraps [errNoAnswer] where nothing is
// known: the peer refuses, is busy, cannot dial such addresses, or lies.
func (d *dialBacks) request(ctx context.Context, server peer.ID, addr ma.Multiaddr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := d.host.NewStream(network.WithNoDial(ctx, "autonat"), server, autonatv2.DialProtocol)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer func() { _ = s.Reset() }() // all has been read by then
	_ = s.SetDeadline(time.Now().Add(requestTimeout))
	nonce, back := d.expect()
	defer d.forget(nonce)
	answer, err := exchange(s, addr, nonce)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	if answer.GetStatus() != pb.DialResponse_OK || answer.GetAddrIdx() != 0 {
		return false, fmt.Errorf("%w: it answered %s", errNoAnswer, answer.GetStatus())
	}
	switch answer.GetDialStatus() {
	case pb.DialStatus_E_DIAL_ERROR:
		return false, nil
	case pb.DialStatus_OK, pb.DialStatus_E_DIAL_BACK_ERROR: // whatever it says, the nonce is the proof
		timer := time.NewTimer(backTimeout)
		defer timer.Stop()
		select {
		case kind := <-back:
			if kind == isUDP(addr) {
				return true, nil
			}
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return false, fmt.Errorf("%w: it claims to have dialled, and nobody came", errNoAnswer)
}

// exchange sends the request, and the data that the other may want first, and returns the answer.
func exchange(s network.Stream, addr ma.Multiaddr, nonce uint64) (*pb.DialResponse, error) {
	w, r := pbio.NewDelimitedWriter(s), pbio.NewDelimitedReader(s, maxRequestFrame)
	msg := pb.Message{Msg: &pb.Message_DialRequest{DialRequest: &pb.DialRequest{Addrs: [][]byte{addr.Bytes()}, Nonce: nonce}}}
	if err := w.WriteMsg(&msg); err != nil {
		return nil, err
	}
	if err := r.ReadMsg(&msg); err != nil {
		return nil, err
	}
	if want := msg.GetDialDataRequest(); want != nil {
		if want.GetAddrIdx() != 0 || want.GetNumBytes() > maxDialData {
			return nil, fmt.Errorf("it wants %d bytes, at most %d", want.GetNumBytes(), maxDialData)
		}
		part := &pb.Message{Msg: &pb.Message_DialDataResponse{DialDataResponse: &pb.DialDataResponse{Data: make([]byte, dialDataPart)}}}
		for sent := uint64(0); sent < want.GetNumBytes(); sent += dialDataPart {
			if err := w.WriteMsg(part); err != nil {
				return nil, err
			}
		}
		if err := r.ReadMsg(&msg); err != nil {
			return nil, err
		}
	}
	answer := msg.GetDialResponse()
	if answer == nil {
		return nil, errors.New("it answers something else")
	}
	return answer, nil
}

func (d *dialBacks) expect() (uint64, chan bool) {
	nonce, back := rand.Uint64(), make(chan bool, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[nonce] = back
	return nonce, back
}

func (d *dialBacks) forget(nonce uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, nonce)
}

// take takes the nonce. It must come on a connection that the other has opened straight to this peer: over the
// one that this peer has opened, it would prove nothing.
func (d *dialBacks) take(s network.Stream) {
	defer func() { _ = s.Close() }()
	_ = s.SetDeadline(time.Now().Add(backTimeout))
	var msg pb.DialBack
	if err := pbio.NewDelimitedReader(s, maxBackFrame).ReadMsg(&msg); err != nil {
		_ = s.Reset()
		return
	}
	d.mu.Lock()
	back := d.waiting[msg.GetNonce()]
	d.mu.Unlock()
	if c := s.Conn(); back == nil || c.Stat().Direction != network.DirInbound || circuit(c.RemoteMultiaddr()) {
		_ = s.Reset()
		return
	}
	select {
	case back <- isUDP(s.Conn().LocalMultiaddr()):
	default:
	}
	_ = pbio.NewDelimitedWriter(s).WriteMsg(&pb.DialBackResponse{}) // a courtesy; the other needs no content
}

// isUDP reports an address of UDP; the others are TCP's.
func isUDP(m ma.Multiaddr) bool {
	_, err := m.ValueForProtocol(ma.P_UDP)
	return err == nil
}
