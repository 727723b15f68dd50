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

// Limits of asking others to dial back. The first two are the protocol's.
const (
	askTimeout   = 15 * time.Second // the other dials for 10 s at most
	backTimeout  = 5 * time.Second
	maxAskFrame  = 8 << 10 // bytes of a message
	maxBackFrame = 1 << 10 // bytes of the message on the way back
	maxDialData  = 100_000 // bytes that the other may want before it dials an address that is not the one it sees
	dialDataPart = 4 << 10 // bytes of one message of these
	asksAMinute  = 60      // served, of all peers
	asksPerPeer  = 12      // served, of one peer
	asksWithData = 12      // served, with data to be sent first
	asksAtOnce   = 2       // served, of one peer

	// asking is one at a time and peer: two dial-backs of one server share a connection, so that the address that works
	// would prove the other one too.
	asking = 1
)

// errNoAnswer means that an own address was neither found to work nor found to fail.
var errNoAnswer = errors.New("no verdict about the address")

// asker asks others to dial an own address, by AutoNAT v2. The library's client is not used: it waits two minutes
// between two questions to one peer and wants two successes, so that in a network of one hub a verdict takes minutes; it
// asks again after an hour only; and it does not say who found what. Its server is used as it is.
type asker struct {
	host    host.Host
	mu      sync.Mutex
	waiting map[uint64]chan bool // by nonce; gets whether the dial-back came in the right way
}

// serveAutoNAT answers such questions of others, from new ports and under a new identity, and takes the dial-backs to
// the host's own. The result ends with Close.
func serveAutoNAT(h host.Host, o *Options) (*asker, *autonatv2.AutoNAT, error) {
	// A peer that has dialled little yet must not conclude that UDP or IPv6 is blocked, or it refuses to help.
	options := append(o.transports(), libp2p.DisableMetrics(), libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.ResourceManager(&network.NullResourceManager{}), // the server's rate bounds it
		libp2p.UDPBlackHoleSuccessCounter(nil), libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.SwarmOpts(swarm.WithDialRanker(swarm.NoDelayDialRanker)))
	dialer, err := libp2p.New(options...)
	if err != nil {
		return nil, nil, fmt.Errorf("make dialer: %w", err)
	}
	settings := []autonatv2.AutoNATOption{autonatv2.WithServerRateLimit(asksAMinute, asksPerPeer, asksWithData, asksAtOnce)}
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
	a := &asker{host: h, waiting: make(map[uint64]chan bool)}
	h.SetStreamHandler(autonatv2.DialBackProtocol, a.dialedBack) // in place of the library's client
	return a, server, nil
}

// ask asks a peer to dial one own address and reports whether it could. The error wraps [errNoAnswer] where nothing is
// known: the peer refuses, is busy, cannot dial such addresses, or lies.
func (a *asker) ask(ctx context.Context, server peer.ID, addr ma.Multiaddr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := a.host.NewStream(network.WithNoDial(ctx, "autonat"), server, autonatv2.DialProtocol)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer func() { _ = s.Reset() }() // all has been read by then
	_ = s.SetDeadline(time.Now().Add(askTimeout))
	nonce, back := a.expect()
	defer a.forget(nonce)
	answer, err := question(s, addr, nonce)
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

// question sends the request, and the data that the other may want first, and returns the answer.
func question(s network.Stream, addr ma.Multiaddr, nonce uint64) (*pb.DialResponse, error) {
	w, r := pbio.NewDelimitedWriter(s), pbio.NewDelimitedReader(s, maxAskFrame)
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

func (a *asker) expect() (uint64, chan bool) {
	nonce, back := rand.Uint64(), make(chan bool, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[nonce] = back
	return nonce, back
}

func (a *asker) forget(nonce uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, nonce)
}

// dialedBack takes the nonce. It must come on a connection that the other has opened straight to this peer: over the
// one that this peer has opened, it would prove nothing.
func (a *asker) dialedBack(s network.Stream) {
	defer func() { _ = s.Close() }()
	_ = s.SetDeadline(time.Now().Add(backTimeout))
	var msg pb.DialBack
	if err := pbio.NewDelimitedReader(s, maxBackFrame).ReadMsg(&msg); err != nil {
		_ = s.Reset()
		return
	}
	a.mu.Lock()
	back := a.waiting[msg.GetNonce()]
	a.mu.Unlock()
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
