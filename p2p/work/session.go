package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

var (
	// ErrSilent means that the other side sent nothing for [SilentAfter]. It may be gone, or only the path to it.
	ErrSilent = errors.New("other side is silent")
	// ErrStalled means that a frame could not be sent within [WriteTimeout]: the other side does not read.
	ErrStalled = errors.New("other side does not read")
	// ErrClosed means that the session was ended on this side.
	ErrClosed = errors.New("session is closed")
)

// Stream is what a [Session] needs of a stream; [p2p.Stream] fulfils it. Recv and Write may be called at the same time.
type Stream interface {
	Peer() attest.Key
	Recv(v any) error
	Write(p []byte) (int, error)
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	Close() error
	Reset()
}

// Session is one side of a work stream. It sends heartbeats by itself until it ends, which happens by [Session.Close],
// [Session.Abort], the end of its context, or the first error of Send or Recv; an ended session stays ended.
type Session struct {
	stream Stream
	ctx    context.Context // ends with the session; its cause says why
	end    context.CancelCauseFunc
	beat   chan struct{} // closed when the heartbeat's goroutine is gone
	write  chan struct{} // holds one token while a frame is written; unlike a mutex it can be waited for with ctx
	once   sync.Once     // the stream is closed or reset once
	begun  time.Time
	heard  atomic.Int64 // ns from begun until the last frame came in
}

// NewSession returns a session over s and starts its heartbeat. The session ends with ctx; the caller must end it with
// [Session.Close] or [Session.Abort] in any case.
func NewSession(ctx context.Context, s Stream) *Session {
	ctx, end := context.WithCancelCause(ctx)
	w := &Session{stream: s, ctx: ctx, end: end, beat: make(chan struct{}), write: make(chan struct{}, 1), begun: time.Now()}
	// A Send or Recv that waits returns when the stream is reset; after Close this does nothing.
	context.AfterFunc(ctx, w.reset)
	go w.heartbeat()
	return w
}

// Peer returns the key of the other side, as proved by the connection's handshake.
func (s *Session) Peer() attest.Key { return s.stream.Peer() }

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Heard returns when the last frame came in, heartbeats with the rest; before the first one, when the session began. It
// moves on only while somebody calls Recv.
func (s *Session) Heard() time.Time { return s.begun.Add(time.Duration(s.heard.Load())) }

// Send writes one frame. It waits for frames that are being sent, and for the other side to read, at most
// [WriteTimeout] per frame. A frame that Validate refuses, or that is too large, is not sent and leaves the session
// as it is. Any other error ends the session: it wraps [ErrStalled], or is why the session had ended before.
func (s *Session) Send(f Frame) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("send %s: %w", f.Kind(), err)
	}
	b, err := p2p.EncodeFrame(f)
	if err != nil {
		return fmt.Errorf("send %s: %w", f.Kind(), err)
	}
	select {
	case s.write <- struct{}{}:
		defer func() { <-s.write }()
	case <-s.ctx.Done():
	}
	if s.ctx.Err() != nil {
		return fmt.Errorf("send %s: %w", f.Kind(), context.Cause(s.ctx))
	}
	// A deadline that cannot be set is a stream that is gone, which Write reports.
	_ = s.stream.SetWriteDeadline(time.Now().Add(WriteTimeout))
	if _, err := s.stream.Write(b); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ErrStalled
		}
		return fmt.Errorf("send %s: %w", f.Kind(), s.fail(err))
	}
	return nil
}

// Recv returns the next frame that is no ping. Any error ends the session, but for [io.EOF], which means that the
// other side has closed the stream in order: what this side still sends is lost, and all it sent before was read or
// will be. Other errors wrap [ErrSilent], [p2p.ErrFrame] for a frame that does not decode, or are why the session had
// ended before.
func (s *Session) Recv() (Frame, error) {
	for {
		if s.ctx.Err() != nil {
			return Frame{}, context.Cause(s.ctx)
		}
		_ = s.stream.SetReadDeadline(time.Now().Add(SilentAfter))
		var f Frame
		switch err := s.stream.Recv(&f); {
		case err == io.EOF: // between frames; wrapped it would be a stream cut short
			return Frame{}, io.EOF
		case errors.Is(err, os.ErrDeadlineExceeded):
			return Frame{}, s.fail(ErrSilent)
		case errors.Is(err, io.EOF): // inside a frame; callers must not take it for the end
			return Frame{}, s.fail(fmt.Errorf("receive: %w", io.ErrUnexpectedEOF))
		case err != nil:
			return Frame{}, s.fail(fmt.Errorf("receive: %w", err))
		}
		s.heard.Store(int64(time.Since(s.begun)))
		if f.Ping == nil {
			return f, nil
		}
	}
}

// Close ends the session in order: a frame that is being sent is sent, and the other side reads everything and then
// [io.EOF]. It waits for the heartbeat's goroutine and may be called more than once.
func (s *Session) Close() {
	select {
	case s.write <- struct{}{}:
		s.once.Do(func() { _ = s.stream.Close() })
		s.end(ErrClosed)
		<-s.write
	case <-s.ctx.Done():
	}
	<-s.beat
}

// Abort ends the session at once; the other side sees an error and may miss what was sent last. A Send or Recv that
// waits returns. It waits for the heartbeat's goroutine and may be called more than once.
func (s *Session) Abort() {
	_ = s.fail(ErrClosed)
	<-s.beat
}

// fail ends the session and returns why it ended, which is err if it had not ended before.
func (s *Session) fail(err error) error {
	s.end(err)
	s.reset()
	return context.Cause(s.ctx)
}

func (s *Session) reset() { s.once.Do(s.stream.Reset) }

// heartbeat sends pings until the session ends.
func (s *Session) heartbeat() {
	defer close(s.beat)
	tick := time.NewTicker(PingEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			// A failed Send has ended the session.
			_ = s.Send(Frame{Ping: &Ping{}})
		}
	}
}
