package p2p

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/lacuna-network/lacuna/attest"
)

// openWiden is how long the opening of a bulk stream waits for a path that carries it.
const openWiden = 12 * time.Second

// ErrProtocol means that a peer was reached but speaks no common version of a protocol.
var ErrProtocol = errors.New("no common protocol version")

// ErrMajor is an [ErrProtocol] of a peer that speaks another major version of the protocol, and not no version at all.
var ErrMajor = fmt.Errorf("%w", ErrProtocol)

// Protocol is the name, version and limits of one service. All fields must be set: a limit of zero would allow nothing.
// Sizes of frames are bounded by [MaxFrame]; a service that expects less checks for less.
type Protocol struct {
	Name       string        // such as "offer"
	Major      int           // from 1; peers with different majors do not understand each other
	Timeout    time.Duration // deadline of a stream from its opening; a service with long streams moves it on itself
	MaxIn      int           // inbound streams open at once, all peers together; peers of [Options.Favour] get a quarter more
	MaxPerPeer int           // inbound streams open at once from one peer
	PerMinute  int           // inbound streams a minute from one peer, and as many at once
	Bulk       bool          // carries more than signalling: never on a limited relay, see [Host.Widen]
}

// Validate reports a protocol that lacks a limit.
func (p Protocol) Validate() error {
	if p.Name == "" || strings.Contains(p.Name, "/") || p.Major < 1 {
		return fmt.Errorf("protocol %q major %d: want a name without slash and a major from 1", p.Name, p.Major)
	}
	if p.Timeout <= 0 || p.MaxIn < 1 || p.MaxPerPeer < 1 || p.PerMinute < 1 {
		return fmt.Errorf("protocol %s/%d: Timeout, MaxIn, MaxPerPeer and PerMinute must all be set", p.Name, p.Major)
	}
	return nil
}

func (p Protocol) id(network string) protocol.ID {
	return protocol.ID("/lacuna/" + network + "/" + p.Name + "/" + strconv.Itoa(p.Major))
}

// services counts the inbound streams of each protocol.
type services struct {
	favour func(attest.Key) bool // nil = nobody
	mu     sync.Mutex
	open   map[protocol.ID]*service
}

type service struct {
	total   int
	perPeer map[attest.Key]int
	rate    *Limiter
}

func (s *services) init(favour func(attest.Key) bool) {
	s.favour, s.open = favour, make(map[protocol.ID]*service)
}

// admit counts a stream in. It returns why not, or "". A crowd of strangers that takes all places must not shut out those
// who are known, so for them there are some more.
func (s *services) admit(id protocol.ID, p Protocol, key attest.Key) string {
	most := p.MaxIn
	if s.favour != nil && s.favour(key) {
		most += (p.MaxIn + 3) / 4
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.open[id]
	if v == nil {
		v = &service{perPeer: make(map[attest.Key]int), rate: NewLimiter(p.PerMinute, p.PerMinute)}
		s.open[id] = v
	}
	switch {
	case v.total >= most:
		return "busy"
	case v.perPeer[key] >= p.MaxPerPeer:
		return "peer_busy"
	case !v.rate.Allow(key, time.Now()):
		return "rate"
	}
	v.total++
	v.perPeer[key]++
	return ""
}

func (s *services) leave(id protocol.ID, key attest.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.open[id]
	v.total--
	if v.perPeer[key]--; v.perPeer[key] == 0 {
		delete(v.perPeer, key)
	}
}

// Handle serves a protocol: f is called for each inbound stream, in its own goroutine, and the stream is closed when f
// returns. Its context ends when the host closes or f returns. Streams over a limit are reset before f sees them. A
// panic in f is counted, logged and resets the stream. Handle panics if a limit of p is not set.
func (h *Host) Handle(p Protocol, f func(ctx context.Context, s *Stream)) {
	if err := p.Validate(); err != nil {
		panic("p2p: " + err.Error())
	}
	id := p.id(h.network)
	h.host.SetStreamHandler(id, func(s network.Stream) {
		if !h.begin() {
			_ = s.Reset()
			return
		}
		defer h.running.Done()
		key, err := KeyOf(s.Conn().RemotePeer())
		if err != nil {
			_ = s.Reset()
			h.metrics.refused.WithLabelValues(p.Name, "key").Inc()
			return
		}
		if p.Bulk && !h.pathOf(s.Conn()).Bulk() {
			_ = s.Reset()
			h.metrics.refused.WithLabelValues(p.Name, "limited").Inc()
			return
		}
		if reason := h.services.admit(id, p, key); reason != "" {
			_ = s.Reset()
			h.metrics.refused.WithLabelValues(p.Name, reason).Inc()
			return
		}
		defer h.services.leave(id, key)
		h.serve(p, key, s, f)
	})
}

func (h *Host) serve(p Protocol, key attest.Key, s network.Stream, f func(ctx context.Context, s *Stream)) {
	h.metrics.streams.WithLabelValues(p.Name, "in").Inc()
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			h.metrics.panics.WithLabelValues(p.Name).Inc()
			h.log.Error("protocol handler panicked", "protocol", p.Name, "peer", key, "err", v, "stack", string(debug.Stack()))
			_ = s.Reset()
			return
		}
		_ = s.Close()
	}()
	_ = s.SetDeadline(time.Now().Add(p.Timeout)) // every transport in use has deadlines
	f(ctx, &Stream{s: s, peer: key})
}

// Unhandle ends the service of a protocol for new streams.
func (h *Host) Unhandle(p Protocol) { h.host.RemoveStreamHandler(p.id(h.network)) }

// Open opens a stream to the peer and dials it if needed, under addrs or the addresses known already. The stream's
// deadline is p.Timeout from when there is a path, or ctx's if that comes first; ctx itself bounds only the opening. A
// bulk protocol waits 12 s for a path that carries it, see [Host.Widen]. The error wraps [ErrUnreachable],
// [ErrProtocol] or [ErrLimited]. A peer may still refuse afterwards: only a frame from it shows that it has taken the
// stream.
func (h *Host) Open(ctx context.Context, key attest.Key, addrs []string, p Protocol) (*Stream, error) {
	if p.Bulk && !h.Path(key).Bulk() {
		paving, cancel := context.WithTimeout(ctx, openWiden)
		_, err := h.Widen(paving, key, addrs)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", p.Name, err)
		}
	}
	deadline := time.Now().Add(p.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	dial, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := h.Connect(dial, key, addrs); err != nil {
		return nil, fmt.Errorf("open %s: %w", p.Name, err)
	}
	s, err := h.openOn(dial, PeerID(key), p)
	if errors.Is(err, ErrLimited) {
		return nil, fmt.Errorf("open %s: %w", p.Name, err)
	}
	if err != nil {
		spoken, unknown := h.host.Peerstore().SupportsProtocols(PeerID(key), p.id(h.network))
		if unknown == nil && len(spoken) == 0 && dial.Err() == nil && h.Connected(key) {
			return nil, fmt.Errorf("open %s: %w", p.Name, h.explain(key, p))
		}
		return nil, fmt.Errorf("open %s: %w: %w", p.Name, ErrUnreachable, err)
	}
	_ = s.SetDeadline(deadline) // every transport in use has deadlines
	h.metrics.streams.WithLabelValues(p.Name, "out").Inc()
	return &Stream{s: s, peer: key}, nil
}

// explain says who is too old, from the protocols that the peer has told on connecting.
func (h *Host) explain(key attest.Key, p Protocol) error {
	prefix := "/lacuna/" + h.network + "/" + p.Name + "/"
	var majors []int
	known, err := h.host.Peerstore().GetProtocols(PeerID(key))
	if err != nil {
		known = nil // then nothing is known of it, which is what the last case says
	}
	for _, id := range known {
		if rest, ok := strings.CutPrefix(string(id), prefix); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				majors = append(majors, n)
			}
		}
	}
	if len(majors) == 0 {
		return fmt.Errorf("%w: %s does not serve %s on network %s", ErrProtocol, key.Short(), p.Name, h.network)
	}
	newest := slices.Max(majors)
	if newest < p.Major {
		return fmt.Errorf("%w: %s speaks %s/%d and is too old, this peer speaks %d", ErrMajor, key.Short(), p.Name, newest, p.Major)
	}
	return fmt.Errorf("%w: %s speaks %s/%d, this peer speaks %d and is too old", ErrMajor, key.Short(), p.Name, newest, p.Major)
}
