package work_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// pair runs f with a renter's and a provider's host on a network in virtual time.
func pair(t *testing.T, f func(t *testing.T, n *p2ptest.Network, renter, provider *p2p.Host)) {
	synctest.Test(t, func(t *testing.T) {
		n := p2ptest.New(t, 2, p2ptest.Options{})
		defer n.Close()
		f(t, n, n.Host(0), n.Host(1))
	})
}

func TestJobOverTheNetwork(t *testing.T) {
	pair(t, func(t *testing.T, _ *p2ptest.Network, renter, provider *p2p.Host) {
		frames := goodFrames()
		ended := make(chan error, 1)
		work.Serve(provider, func(_ context.Context, s *work.Session) {
			if s.Peer() != renter.Key() {
				t.Errorf("Peer = %v, want the renter", s.Peer())
			}
			start, err := s.Recv()
			if err != nil {
				ended <- err
				return
			}
			if diff := cmp.Diff(frames["start"], start); diff != "" {
				t.Errorf("start (-sent +received):\n%s", diff)
			}
			for _, kind := range []string{"ready", "log", "checkpoint", "receipt"} {
				time.Sleep(7 * time.Second) // longer than silence may last
				if err := s.Send(frames[kind]); err != nil {
					t.Errorf("Send %s: %v", kind, err)
				}
			}
			if f, err := s.Recv(); err != nil || f.Voucher == nil {
				t.Errorf("Recv = %s, %v, want a voucher", f.Kind(), err)
			}
			if err := s.Send(frames["outcome"]); err != nil {
				t.Errorf("Send outcome: %v", err)
			}
			ended <- nil
		})
		s, err := work.Open(t.Context(), renter, provider.Key(), provider.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(frames["start"]); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for {
			f, err := s.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, f.Kind())
			if f.Receipt != nil {
				if err := s.Send(frames["voucher"]); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Close()
		if err := <-ended; err != nil {
			t.Errorf("provider: %v", err)
		}
		if diff := cmp.Diff([]string{"ready", "log", "checkpoint", "receipt", "outcome"}, kinds); diff != "" {
			t.Errorf("renter received (-want +got):\n%s", diff)
		}
	})
}

func TestBothSidesNoticeSilence(t *testing.T) {
	pair(t, func(t *testing.T, n *p2ptest.Network, renter, provider *p2p.Host) {
		silent := make(chan time.Time, 1)
		work.Serve(provider, func(_ context.Context, s *work.Session) {
			s.Recv()
			if _, err := s.Recv(); !errors.Is(err, work.ErrSilent) {
				t.Errorf("provider: Recv = %v, want ErrSilent", err)
			}
			silent <- time.Now()
		})
		s, err := work.Open(t.Context(), renter, provider.Key(), provider.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Abort()
		if err := s.Send(goodFrames()["start"]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		n.Mute(provider, true)
		began := time.Now()
		go drain(s)
		<-s.Done()
		if _, err := s.Recv(); !errors.Is(err, work.ErrSilent) {
			t.Errorf("renter: Recv = %v, want ErrSilent", err)
		}
		for side, d := range map[string]time.Duration{"renter": time.Since(began), "provider": (<-silent).Sub(began)} {
			if d < work.SilentAfter-work.PingEvery || d > work.SilentAfter+work.PingEvery {
				t.Errorf("%s noticed after %v, want about %v", side, d, work.SilentAfter)
			}
		}
		n.Mute(provider, false)
	})
}

func TestHostThatClosesEndsItsSessions(t *testing.T) {
	pair(t, func(t *testing.T, _ *p2ptest.Network, renter, provider *p2p.Host) {
		ended := make(chan error, 1)
		work.Serve(provider, func(ctx context.Context, s *work.Session) {
			_, err := drain(s)
			ended <- err
		})
		s, err := work.Open(t.Context(), renter, provider.Key(), provider.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Send(goodFrames()["start"]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := provider.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("provider's session did not end")
		}
		if _, err := s.Recv(); err == nil || errors.Is(err, work.ErrSilent) {
			t.Errorf("renter: Recv = %v, want an error at once", err)
		}
	})
}

func TestOpenToAPeerThatSellsNothing(t *testing.T) {
	pair(t, func(t *testing.T, n *p2ptest.Network, renter, provider *p2p.Host) {
		if _, err := work.Open(t.Context(), renter, provider.Key(), provider.Addrs()); !errors.Is(err, p2p.ErrProtocol) {
			t.Errorf("Open = %v, want ErrProtocol", err)
		}
		n.Mute(provider, true)
		renter.Disconnect(provider.Key())
		began := time.Now()
		if _, err := work.Open(t.Context(), renter, provider.Key(), provider.Addrs()); !errors.Is(err, p2p.ErrUnreachable) {
			t.Errorf("Open to a muted peer = %v, want ErrUnreachable", err)
		}
		if d := time.Since(began); d > work.Protocol.Timeout {
			t.Errorf("Open gave up after %v, want at most %v", d, work.Protocol.Timeout)
		}
		n.Mute(provider, false)
	})
}

func TestPanicInAHandlerEndsTheSession(t *testing.T) {
	pair(t, func(t *testing.T, _ *p2ptest.Network, renter, provider *p2p.Host) {
		work.Serve(provider, func(_ context.Context, s *work.Session) {
			s.Recv()
			panic("broken handler")
		})
		s, err := work.Open(t.Context(), renter, provider.Key(), provider.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Send(goodFrames()["start"]); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err == nil || err == io.EOF || errors.Is(err, work.ErrSilent) {
			t.Errorf("Recv = %v, want a reset", err)
		}
	})
}
