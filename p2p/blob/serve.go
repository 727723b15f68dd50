package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// code says whether a file comes. 0 means not set.
type code uint8

const (
	codeOK code = iota + 1
	codeNotFound
	codeNotAllowed
)

type request struct {
	Digest attest.Digest `cbor:"1,keyasint"`
	Offset uint64        `cbor:"2,keyasint"` // where the bytes begin; at most the size
}

// Validate reports values that no request may have.
func (r request) Validate() error {
	if r.Digest.IsZero() || r.Offset > market.MaxInputBytes {
		return errors.New("request: no digest, or offset out of range")
	}
	return nil
}

type header struct {
	Code code   `cbor:"1,keyasint"`
	Size uint64 `cbor:"2,keyasint"` // of the whole file in bytes, 0 unless code is ok
}

// Validate reports values that no header may have.
func (h header) Validate() error {
	if h.Code < codeOK || h.Code > codeNotAllowed || h.Size > market.MaxInputBytes {
		return errors.New("header: unknown code, or size out of range")
	}
	return nil
}

// serve answers one request. An error ends the stream, so that the other side does not take the end of a broken
// transfer for the end of the file.
func (s *Service) serve(ctx context.Context, stream *p2p.Stream) {
	defer context.AfterFunc(ctx, stream.Reset)()
	var q request
	if err := stream.Recv(&q); err != nil {
		r := broken
		if errors.Is(err, p2p.ErrFrame) {
			r = malformed
		}
		s.drop(stream, r, err)
		return
	}
	if !s.o.Allow(stream.Peer(), q.Digest) {
		s.refuse(stream, codeNotAllowed, notAllowed)
		return
	}
	f, err := s.o.Store.Open(q.Digest)
	if errors.Is(err, ErrNotFound) {
		s.refuse(stream, codeNotFound, notFound)
		return
	}
	if err != nil {
		s.drop(stream, failed, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(int64(q.Offset), io.SeekStart)
	}
	if err != nil {
		s.drop(stream, failed, err)
		return
	}
	size := uint64(info.Size())
	if err := stream.Send(header{Code: codeOK, Size: size}); err != nil {
		s.drop(stream, broken, err)
		return
	}
	// Past the end there is nothing to send; the other side knows the size now.
	n, err := send(stream, io.LimitReader(f, max(0, int64(size)-int64(q.Offset))), func(n int) {
		if s.o.Sent != nil {
			s.o.Sent(stream.Peer(), q.Digest, uint64(n))
		}
	})
	s.metrics.bytes.WithLabelValues("out").Add(float64(n))
	if err != nil {
		s.drop(stream, broken, err)
		return
	}
	s.metrics.count(answered)
}

// refuse tells the peer why no file comes.
func (s *Service) refuse(stream *p2p.Stream, c code, r result) {
	if err := stream.Send(header{Code: c}); err != nil {
		s.drop(stream, broken, err)
		return
	}
	s.metrics.count(r)
}

// drop counts a request that gets no answer, or only part of one. What a peer does is for the developer, what the
// store cannot do is for the operator.
func (s *Service) drop(stream *p2p.Stream, r result, err error) {
	stream.Reset()
	s.metrics.count(r)
	level := slog.LevelDebug
	if r == failed {
		level = slog.LevelError
	}
	s.log.Log(context.Background(), level, "blob request dropped", "peer", stream.Peer(), "err", err)
}

// send copies r to w, with a deadline for each chunk, and tells the size of each.
func send(w stream, r io.Reader, sent func(int)) (uint64, error) {
	buf := make([]byte, chunk)
	total := uint64(0)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			// A deadline that cannot be set is a stream that is gone, which Write reports.
			_ = w.SetWriteDeadline(time.Now().Add(StallTimeout))
			if _, err := w.Write(buf[:n]); err != nil {
				return total, fmt.Errorf("send blob: %w", err)
			}
			total += uint64(n)
			sent(n)
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return total, nil
		default:
			return total, fmt.Errorf("read blob: %w", err)
		}
	}
}
