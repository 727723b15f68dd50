package work_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// pipe is one end of a stream in memory without any buffer, so that a Write waits for the other side's read.
type pipe struct {
	net.Conn
	r *bufio.Reader
}

func (p *pipe) Peer() attest.Key { return attest.Key{1} }
func (p *pipe) Close() error     { return p.Conn.Close() }
func (p *pipe) Reset()           { _ = p.Conn.Close() }

func (p *pipe) Recv(v any) error {
	n, err := binary.ReadUvarint(p.r)
	if err != nil {
		return err
	}
	if n > p2p.MaxFrame {
		return p2p.ErrFrame
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(p.r, b); err != nil {
		return fmt.Errorf("receive frame: %w", err) // as p2p.Stream does; only a bare io.EOF is the end
	}
	if err := attest.Unmarshal(b, v); err != nil {
		return errors.Join(p2p.ErrFrame, err)
	}
	return nil
}

func newPipe() (*pipe, *pipe) {
	a, b := net.Pipe()
	return &pipe{a, bufio.NewReader(a)}, &pipe{b, bufio.NewReader(b)}
}

// sessions returns two sides that end with the test.
func sessions(t *testing.T) (*work.Session, *work.Session) {
	t.Helper()
	a, b := newPipe()
	sa, sb := work.NewSession(t.Context(), a), work.NewSession(t.Context(), b)
	t.Cleanup(func() { sa.Abort(); sb.Abort() })
	return sa, sb
}

func logFrame(offset uint64, data string) work.Frame {
	return work.Frame{Log: &work.Log{Stream: work.Stdout, Offset: offset, Data: []byte(data)}}
}

// drain reads s to its first error and returns what came before.
func drain(s *work.Session) (frames []work.Frame, err error) {
	for {
		f, err := s.Recv()
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func TestHeartbeatKeepsAQuietSessionAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sessions(t)
		go drain(a)
		go func() {
			time.Sleep(time.Hour)
			if err := a.Send(logFrame(7, "late")); err != nil {
				t.Errorf("Send after an hour: %v", err)
			}
		}()
		f, err := b.Recv()
		if err != nil {
			t.Fatalf("Recv after an hour without frames: %v", err)
		}
		if diff := cmp.Diff(logFrame(7, "late"), f); diff != "" {
			t.Errorf("frame (-sent +received):\n%s", diff)
		}
	})
}

func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newPipe()
		go io.Copy(io.Discard, other) // reads and says nothing
		s := work.NewSession(t.Context(), a)
		defer s.Abort()
		began := time.Now()
		if _, err := s.Recv(); !errors.Is(err, work.ErrSilent) {
			t.Fatalf("Recv from a silent peer = %v, want ErrSilent", err)
		}
		if d := time.Since(began); d != work.SilentAfter {
			t.Errorf("silence noticed after %v, want %v", d, work.SilentAfter)
		}
		if err := s.Send(logFrame(0, "x")); !errors.Is(err, work.ErrSilent) {
			t.Errorf("Send on the ended session = %v, want ErrSilent", err)
		}
		if _, err := s.Recv(); !errors.Is(err, work.ErrSilent) {
			t.Errorf("Recv on the ended session = %v, want ErrSilent", err)
		}
	})
}

func TestReceiverBusyForLongIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newPipe()
		go io.Copy(io.Discard, other)
		s := work.NewSession(t.Context(), a)
		defer s.Abort()
		time.Sleep(4 * work.SilentAfter) // the caller does something else
		go func() {
			b, err := p2p.EncodeFrame(logFrame(0, "x"))
			if err != nil {
				t.Error(err)
			}
			other.Write(b)
		}()
		if _, err := s.Recv(); err != nil {
			t.Errorf("Recv after a long pause of the caller = %v, want the frame that waits", err)
		}
	})
}

func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newPipe()
		s := work.NewSession(t.Context(), a)
		defer s.Abort()
		began := time.Now()
		if err := s.Send(logFrame(0, "x")); !errors.Is(err, work.ErrStalled) {
			t.Fatalf("Send to a peer that does not read = %v, want ErrStalled", err)
		}
		if d := time.Since(began); d != work.WriteTimeout {
			t.Errorf("Send gave up after %v, want %v", d, work.WriteTimeout)
		}
		<-s.Done()
		if _, err := other.Conn.Read(make([]byte, 1)); err == nil {
			t.Error("the stream is open after the session ended")
		}
	})
}

func TestSlowReaderSendsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sessions(t)
		// a never calls Recv; b sends nothing of its own but its heartbeat, which stalls after WriteTimeout. Until then
		// b hears a's heartbeat.
		began := time.Now()
		_, err := b.Recv()
		if !errors.Is(err, work.ErrStalled) {
			t.Fatalf("Recv = %v, want ErrStalled", err)
		}
		if d := time.Since(began); d != work.PingEvery+work.WriteTimeout {
			t.Errorf("ended after %v, want %v", d, work.PingEvery+work.WriteTimeout)
		}
		_ = a
	})
}

func TestContextEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newPipe()
		ctx, cancel := context.WithCancel(t.Context())
		s := work.NewSession(ctx, a)
		errs := make(chan error, 2)
		go func() { errs <- s.Send(logFrame(0, "x")) }() // nobody reads
		go func() { _, err := s.Recv(); errs <- err }()  // nobody writes
		synctest.Wait()
		began := time.Now()
		cancel()
		for range 2 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("after the context ended: %v, want context.Canceled", err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
		s.Close()
	})
}

func TestCloseAndAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sessions(t)
		go func() {
			for i := range uint64(3) {
				if err := a.Send(logFrame(i, "x")); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
			a.Close()
			a.Close()
		}()
		frames, err := drain(b)
		if err != io.EOF || len(frames) != 3 {
			t.Errorf("other side received %d frames and %v, want 3 and io.EOF", len(frames), err)
		}
		if err := a.Send(logFrame(0, "x")); !errors.Is(err, work.ErrClosed) {
			t.Errorf("Send after Close = %v, want ErrClosed", err)
		}
		c, _ := sessions(t)
		errs := make(chan error)
		go func() { _, err := c.Recv(); errs <- err }()
		synctest.Wait()
		c.Abort()
		if err := <-errs; !errors.Is(err, work.ErrClosed) {
			t.Errorf("Recv during Abort = %v, want ErrClosed", err)
		}
	})
}

func TestBrokenInput(t *testing.T) {
	good, err := p2p.EncodeFrame(logFrame(0, "0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		input []byte
		want  error
	}{
		{"cut inside a frame", good[:len(good)-3], io.ErrUnexpectedEOF},
		{"cut after the length", good[:1], io.ErrUnexpectedEOF},
		{"no CBOR", []byte{3, 0xff, 0xff, 0xff}, p2p.ErrFrame},
		{"empty map", []byte{1, 0xa0}, p2p.ErrFrame},
		{"unknown key", []byte{4, 0xa1, 0x18, 0x63, 0xa0}, p2p.ErrFrame},
		{"too long", binary.AppendUvarint(nil, p2p.MaxFrame+1), p2p.ErrFrame},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, other := newPipe()
				s := work.NewSession(t.Context(), a)
				defer s.Abort()
				go func() {
					other.Write(tt.input)
					other.Close()
				}()
				_, err := s.Recv()
				if !errors.Is(err, tt.want) || errors.Is(err, io.EOF) {
					t.Errorf("Recv = %v, want %v", err, tt.want)
				}
				<-s.Done()
			})
		})
	}
}

func TestSendRefusesBadFramesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sessions(t)
		go drain(b)
		for name, f := range badFrames() {
			if err := a.Send(f); err == nil {
				t.Errorf("Send of %s = nil", name)
			}
		}
		if err := a.Send(logFrame(0, "x")); err != nil {
			t.Errorf("Send after refused frames: %v", err)
		}
	})
}

func TestConcurrentSendsDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sessions(t)
		const senders, each = 8, 50
		var wg sync.WaitGroup
		for i := range senders {
			wg.Go(func() {
				for n := range each {
					data := bytes.Repeat([]byte{byte('a' + i)}, 100+n)
					if err := a.Send(work.Frame{Log: &work.Log{Stream: work.Stderr, Offset: uint64(n), Data: data}}); err != nil {
						t.Errorf("Send: %v", err)
					}
				}
			})
		}
		go func() { wg.Wait(); a.Close() }()
		frames, err := drain(b)
		if err != io.EOF || len(frames) != senders*each {
			t.Fatalf("received %d frames and %v, want %d and io.EOF", len(frames), err, senders*each)
		}
		next := map[byte]uint64{}
		for _, f := range frames {
			c := f.Log.Data[0]
			if f.Log.Offset != next[c] || len(f.Log.Data) != 100+int(f.Log.Offset) || bytes.Count(f.Log.Data, f.Log.Data[:1]) != len(f.Log.Data) {
				t.Fatalf("sender %c: frame %d of %d bytes, want frame %d whole", c, f.Log.Offset, len(f.Log.Data), next[c])
			}
			next[c]++
		}
	})
}
