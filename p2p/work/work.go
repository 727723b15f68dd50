// Package work carries one leased job over one stream: control, log, receipts one way and vouchers the other.
//
// [Open] dials the provider and gives a [Session]; [Serve] hands the provider a Session for each stream that comes in.
// What travels is a [Frame], one of
//
//	1 start       renter    takes up the lease, or takes it up again after a break; always first
//	2 ready       provider  the process runs
//	3 log         provider  output of the job
//	4 receipt     provider  envelope
//	5 voucher     renter    envelope
//	6 checkpoint  provider  files that the renter should fetch
//	7 ack         renter    log and checkpoints that the renter has stored
//	8 cancel      either    asks the other side to end the job
//	9 outcome     either    envelope
//	10 ping       both      each second
//	11 result     provider  how the process ended and what it left
//
// each a length (unsigned varint) and one CBOR map of at most 64 KiB with one entry. Every frame that changes state is
// idempotent: it carries a number or is named by its digest, and both sides may send it again after a break.
//
// The package moves frames and notices silence. It verifies no signature, keeps no state of the lease, and does not
// dial again: node/renter and node/provider do, and are its callers. [Session.Send] may be called from many goroutines,
// [Session.Recv] from one at a time.
//
// # Flow
//
// Frames go out in order, one at a time. A reader that does not call Recv fills the stream's window; then the other
// side's Send waits, at most [WriteTimeout], and its heartbeat waits behind it. That is harmless for the slow reader,
// since what was sent before waits for it in the buffer and Recv measures silence only while it waits itself. It is
// final for the sender: after WriteTimeout its session ends with [ErrStalled]. So a slow reader never holds up the
// other side for longer than that, and its own heartbeat, which a goroutine of the Session sends, does not depend on
// its reading. Whoever does slow things per frame does them on another goroutine.
//
// History: 2026-11-30 version 1.
package work

import (
	"context"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

const (
	// PingEvery is the time between two heartbeats.
	PingEvery = time.Second
	// SilentAfter is how long [Session.Recv] waits for any frame. It is five heartbeats: a lost packet costs a resend of
	// one round trip, and up to 1 s of it with back-off, which is not yet silence.
	SilentAfter = 5 * time.Second
	// WriteTimeout is how long one frame may take to leave. It is twice SilentAfter, so that a side whose peer vanished
	// hears the silence first and reports that.
	WriteTimeout = 2 * SilentAfter
	// MaxLogData is the most that one log frame carries, in bytes. At 32 kbit/s it takes 4 s, less than SilentAfter, so
	// that a log does not make a slow link look silent.
	MaxLogData = 16 << 10
)

// Protocol is a work stream. Its timeout bounds the opening alone: a session moves the deadlines on with each frame.
// A peer may run several leases at once, and opens a stream anew after each break.
var Protocol = p2p.Protocol{Name: "work", Major: 1, Timeout: 10 * time.Second, MaxIn: 256, MaxPerPeer: 32, PerMinute: 120, Bulk: true}

// Serve registers f for every work stream that a renter opens. The session ends, and its stream is closed, when f
// returns or when ctx ends, which is when the host closes.
func Serve(h *p2p.Host, f func(ctx context.Context, s *Session)) {
	h.Handle(Protocol, func(ctx context.Context, stream *p2p.Stream) {
		s := NewSession(ctx, stream)
		// The deferred Abort is for a panic in f, which the host catches; after Close it does nothing.
		defer s.Abort()
		f(ctx, s)
		s.Close()
	})
}

// Open dials the provider, at addrs too if there is no connection yet, and returns a session that the caller must end
// with [Session.Close] or [Session.Abort]. ctx bounds the dial and the session: when it ends, so does the session.
// Errors are those of [p2p.Host.Open]. A provider that does not serve work may show only at the first Recv.
func Open(ctx context.Context, h *p2p.Host, provider attest.Key, addrs []string) (*Session, error) {
	stream, err := h.Open(ctx, provider, addrs, Protocol)
	if err != nil {
		return nil, err
	}
	return NewSession(ctx, stream), nil
}
