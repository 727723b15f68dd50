package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lacuna-network/lacuna/attest"
)

// MaxFrame is the largest frame on any stream, in bytes.
const MaxFrame = 64 << 10

// ErrFrame means that a peer sent a frame that is too large or does not decode. The stream should be reset.
var ErrFrame = errors.New("malformed frame")

// Stream is a byte stream to one peer under one protocol. Frames are a length (unsigned varint) and that many bytes of
// canonical CBOR. A Stream may be read by one goroutine and written by another at the same time.
type Stream struct {
	s    network.Stream
	peer attest.Key
	buf  []byte // reused by Recv
}

// Peer returns the key of the other side, as proved by the connection's handshake.
func (s *Stream) Peer() attest.Key { return s.peer }

// RemoteAddr returns the other end of the stream's connection as a multiaddr; through a relay, the relay's.
func (s *Stream) RemoteAddr() string { return s.s.Conn().RemoteMultiaddr().String() }

// Read reads raw bytes.
func (s *Stream) Read(p []byte) (int, error) { return s.s.Read(p) }

// Write writes raw bytes.
func (s *Stream) Write(p []byte) (int, error) { return s.s.Write(p) }

// SetDeadline bounds all reads and writes; the zero time lifts the bound.
func (s *Stream) SetDeadline(t time.Time) error { return s.s.SetDeadline(t) }

// SetReadDeadline bounds reads.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.s.SetReadDeadline(t) }

// SetWriteDeadline bounds writes.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.s.SetWriteDeadline(t) }

// CloseWrite tells the other side that nothing more will be written.
func (s *Stream) CloseWrite() error { return s.s.CloseWrite() }

// Close ends the stream in order.
func (s *Stream) Close() error { return s.s.Close() }

// Reset ends the stream at once; the other side sees an error.
func (s *Stream) Reset() { _ = s.s.Reset() }

// Send writes v as one frame.
func (s *Stream) Send(v any) error {
	b, err := EncodeFrame(v)
	if err != nil {
		return err
	}
	if _, err := s.s.Write(b); err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	return nil
}

// Recv reads one frame into v, a pointer to a zero value. It returns [io.EOF] if the other side closed the stream
// between frames, and an error that wraps [ErrFrame] if what came is no valid frame.
func (s *Stream) Recv(v any) error { return s.RecvMax(v, MaxFrame) }

// RecvMax is [Stream.Recv] for a frame of at most limit bytes, for services whose messages are small: nothing is kept
// ready for what a peer merely announces.
func (s *Stream) RecvMax(v any, limit int) error {
	n, err := readLength(s.s)
	if err != nil {
		return err
	}
	if n > limit {
		return fmt.Errorf("%w: length %d, at most %d", ErrFrame, n, limit)
	}
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	if _, err := io.ReadFull(s.s, s.buf[:n]); err != nil {
		if errors.Is(err, io.EOF) { // the frame began, so this is no orderly end
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("receive frame: %w", err)
	}
	if err := attest.Unmarshal(s.buf[:n], v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// EncodeFrame returns v as one frame with its length.
func EncodeFrame(v any) ([]byte, error) {
	b, err := attest.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFrame {
		return nil, fmt.Errorf("frame of %d bytes, at most %d", len(b), MaxFrame)
	}
	return append(binary.AppendUvarint(make([]byte, 0, len(b)+3), uint64(len(b))), b...), nil
}

// readLength reads the varint byte by byte, since the bytes after it belong to the frame.
func readLength(r io.Reader) (int, error) {
	var one [1]byte
	n := uint64(0)
	for shift := 0; ; shift += 7 {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			if shift > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		n |= uint64(one[0]&0x7f) << shift
		if one[0] < 0x80 {
			break
		}
		if shift >= 14 {
			return 0, fmt.Errorf("%w: length longer than three bytes", ErrFrame)
		}
	}
	if n == 0 || n > MaxFrame {
		return 0, fmt.Errorf("%w: length %d, want 1 to %d", ErrFrame, n, MaxFrame)
	}
	return int(n), nil
}
