package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// Fetch gets the file with that digest from a peer, known under addrs or connected already, into the store. A file that
// is there is not fetched; one that another call fetches is waited for. Progress, if not nil, is called from time to
// time, on the caller's goroutine, with the bytes that are here and the size of the whole file.
//
// Errors wrap [p2p.ErrUnreachable], [p2p.ErrProtocol], [ErrNotFound], [ErrNotAllowed], [ErrTooLarge] if the file has
// more than limit bytes, [ErrStalled] or [ErrCut]; after these two the part that came is kept and the next Fetch goes on
// there, from whatever peer. A [*DigestError] means that the peer sent other bytes; they are removed.
func (s *Service) Fetch(ctx context.Context, peer attest.Key, addrs []string, d attest.Digest, limit uint64, progress func(done, total uint64)) error {
	if progress == nil {
		progress = func(done, total uint64) {}
	}
	leave, err := s.flights.enter(ctx, d)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", d, err)
	}
	defer leave()
	if size, ok := s.o.Store.Has(d); ok {
		progress(size, size)
		return nil
	}
	resumed, err := s.fetch(ctx, peer, addrs, d, limit, progress)
	if wrong := (*DigestError)(nil); resumed && errors.As(err, &wrong) {
		// The wrong bytes may have come from another peer before. They are gone; whoever sends wrong ones now is at fault.
		_, err = s.fetch(ctx, peer, addrs, d, limit, progress)
	}
	if err != nil {
		return fmt.Errorf("fetch %s from %s: %w", d, peer.Short(), err)
	}
	return nil
}

// fetch makes one attempt; resumed reports whether it began with a part that was there.
func (s *Service) fetch(ctx context.Context, peer attest.Key, addrs []string, d attest.Digest, limit uint64, progress func(done, total uint64)) (resumed bool, err error) {
	p, err := s.o.Store.openPart(ctx, d, limit)
	if err != nil {
		return false, err
	}
	defer func() {
		_ = p.file.Close()
		if err != nil && p.size == 0 {
			_ = os.Remove(p.file.Name()) // nothing came; should it stay, the next Fetch finds it empty
		}
	}()
	resumed = p.size > 0
	stream, err := s.o.Host.Open(ctx, peer, addrs, Protocol)
	if err != nil {
		return resumed, err
	}
	defer stream.Reset() // after Close it does nothing
	// Reset frees a wait when ctx ends.
	defer context.AfterFunc(ctx, stream.Reset)()
	size, err := ask(stream, d, p.size)
	if err == nil {
		err = s.receive(stream, p, size, limit, progress)
	}
	switch {
	case err == nil:
		_ = stream.Close()
		return resumed, s.o.Store.finish(p, d)
	case ctx.Err() != nil:
		return resumed, ctx.Err()
	}
	return resumed, err
}

// ask sends the request and returns the size of the whole file.
func ask(stream *p2p.Stream, d attest.Digest, offset uint64) (uint64, error) {
	if err := stream.Send(request{Digest: d, Offset: offset}); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCut, err)
	}
	_ = stream.CloseWrite() // fails where the peer has sent all and left already; what it sent decides
	var h header
	switch err := stream.Recv(&h); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, ErrStalled
	case errors.Is(err, p2p.ErrFrame):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrCut, err)
	}
	switch h.Code {
	case codeNotFound:
		return 0, ErrNotFound
	case codeNotAllowed:
		return 0, ErrNotAllowed
	}
	return h.Size, nil
}

// receive appends to p what is missing of a file of that size.
func (s *Service) receive(r stream, p *part, size, limit uint64, progress func(done, total uint64)) error {
	if size > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	if size < p.size {
		// The part is longer than the file: one of the two peers lied. finish finds the digest wrong and removes it.
		return nil
	}
	progress(p.size, size)
	buf := make([]byte, chunk)
	for p.size < size {
		_ = r.SetReadDeadline(time.Now().Add(StallTimeout))
		n, err := r.Read(buf[:min(chunk, size-p.size)])
		if n > 0 {
			s.metrics.bytes.WithLabelValues("in").Add(float64(n))
			if err := p.append(buf[:n]); err != nil {
				return err
			}
			progress(p.size, size)
		}
		switch {
		case err == nil || p.size == size:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%w after %d of %d bytes", ErrStalled, p.size, size)
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w after %d of %d bytes", ErrCut, p.size, size)
		default:
			return fmt.Errorf("%w after %d of %d bytes: %w", ErrCut, p.size, size, err)
		}
	}
	return nil
}

// part is a file that is here up to size, and the hash of that.
type part struct {
	file *os.File
	hash hash.Hash
	size uint64
}

// openPart opens what is here of d and reads it through. A part of more than limit bytes is emptied.
func (s *Store) openPart(ctx context.Context, d attest.Digest, limit uint64) (*part, error) {
	f, err := os.OpenFile(s.part(d), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open part: %w", err)
	}
	p := &part{file: f, hash: sha256.New()}
	p.size, err = copyChunks(ctx, p.hash, f)
	if err == nil && p.size > limit {
		p.hash.Reset()
		p.size = 0
		err = f.Truncate(0)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open part: %w", err)
	}
	return p, nil
}

func (p *part) append(b []byte) error {
	if _, err := p.file.Write(b); err != nil {
		return fmt.Errorf("write part: %w", err)
	}
	p.hash.Write(b)
	p.size += uint64(len(b))
	return nil
}

// finish makes a part the file with digest d, or removes it if it has another digest.
func (s *Store) finish(p *part, d attest.Digest) error {
	if got := sum(p.hash); got != d {
		if err := os.Remove(p.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove part: %w", err)
		}
		return &DigestError{Want: d, Got: got}
	}
	if err := s.commit(p.file, p.file.Name(), d); err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	return nil
}
