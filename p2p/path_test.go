package p2p_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// bulk is a service that carries data.
func bulk() p2p.Protocol {
	p := echo()
	p.Name, p.Timeout, p.Bulk = "bulk", time.Hour, true
	return p
}

// hub adds a relay in the open.
func hub(w *p2ptest.Network, policy p2p.RelayPolicy, reg prometheus.Registerer) *p2p.Host {
	policy.Serve = true
	return w.Add(p2p.Options{Reach: market.ReachDirect, Relay: policy, Registerer: reg})
}

// homes adds hosts behind routers of their own, each with a place at the relay.
func homes(t *testing.T, w *p2ptest.Network, relay *p2p.Host, kinds ...p2ptest.NAT) []*p2p.Host {
	t.Helper()
	var out []*p2p.Host
	for _, kind := range kinds {
		h := w.AddBehind(kind, p2p.Options{Reach: market.ReachRelayed})
		h.Handle(echo(), serveEcho)
		h.Handle(bulk(), serveEcho)
		w.Connect(h, relay)
		out = append(out, h)
	}
	for _, h := range out {
		await(t, h, func(r p2p.Reach) bool { return slices.Contains(r.Relays, relay.Key()) })
	}
	return out
}

// await waits until the host's reachability is as wanted, for a minute at most.
func await(t *testing.T, h *p2p.Host, want func(p2p.Reach) bool) time.Duration {
	t.Helper()
	start := time.Now()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		changed := h.ReachChanged()
		r := h.Reach()
		if want(r) {
			return time.Since(start)
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("after a minute the reachability is %+v", r)
		}
	}
}

// over opens a stream, sends text and returns the answer.
func over(h *p2p.Host, to attest.Key, addrs []string, p p2p.Protocol) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := h.Open(ctx, to, addrs, p)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(message{"x"}); err != nil {
		return err
	}
	return s.Recv(&message{})
}

func TestSignallingRidesTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		relay := hub(w, p2p.RelayPolicy{}, nil)
		pair := homes(t, w, relay, p2ptest.Symmetric, p2ptest.Symmetric)
		a, b := pair[0], pair[1]
		if addrs := b.Addrs(); !slices.ContainsFunc(addrs, func(s string) bool { return strings.HasSuffix(s, "/p2p-circuit") }) {
			t.Fatalf("b tells %v, want an address through the relay", addrs)
		}
		start := time.Now()
		if err := over(a, b.Key(), b.Addrs(), echo()); err != nil {
			t.Fatal(err)
		}
		t.Logf("the first answer came after %v", time.Since(start))
		if p := a.Path(b.Key()); p != p2p.PathLimited || !a.Connected(b.Key()) {
			t.Errorf("path %v, want limited", p)
		}
		if d, err := a.MeasureRTT(t.Context(), b.Key()); err != nil || d < 100*time.Millisecond || d > 110*time.Millisecond {
			t.Errorf("round trip %v, %v, want that of four hops of 25 ms", d, err)
		}
		start = time.Now()
		if err := over(a, b.Key(), b.Addrs(), bulk()); !errors.Is(err, p2p.ErrLimited) {
			t.Errorf("bulk stream: %v, want ErrLimited", err)
		}
		if d := time.Since(start); d > 13*time.Second {
			t.Errorf("the refusal took %v", d)
		}
		if d, ok := a.RTT(b.Key()); !ok || d < 100*time.Millisecond {
			t.Errorf("RTT = %v, %v", d, ok)
		}
		a.Disconnect(b.Key())
		if _, ok := a.RTT(b.Key()); !ok {
			t.Error("the round trip is forgotten with the connection")
		}
	})
}

func TestBulkWaitsForThePunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		relay := hub(w, p2p.RelayPolicy{}, nil)
		pair := homes(t, w, relay, p2ptest.PortRestricted, p2ptest.PortRestricted)
		a, b := pair[0], pair[1]
		start := time.Now()
		if err := over(a, b.Key(), b.Addrs(), bulk()); err != nil {
			t.Fatal(err)
		}
		t.Logf("the first bulk answer came after %v", time.Since(start))
		if p, q := a.Path(b.Key()), b.Path(a.Key()); p != p2p.PathPunched || q != p2p.PathPunched {
			t.Errorf("paths %v and %v, want hole-punched", p, q)
		}
		if p, err := b.Widen(t.Context(), a.Key(), nil); p != p2p.PathPunched || err != nil {
			t.Errorf("Widen = %v, %v", p, err)
		}
		time.Sleep(time.Minute)
		for _, h := range pair {
			for _, p := range h.Peers() {
				if strings.Contains(p.Addr, "p2p-circuit") {
					t.Errorf("a minute later there is still the connection %s", p.Addr)
				}
			}
		}
		if n := len(a.Libp2p().Network().Conns()); n != 2 {
			t.Errorf("a has %d connections, want one to b and one to the relay", n)
		}
	})
}

func TestConnectionReversal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{})
		defer w.Close()
		relay := hub(w, p2p.RelayPolicy{}, nil)
		open := w.Add(p2p.Options{Reach: market.ReachDirect})
		home := homes(t, w, relay, p2ptest.Symmetric)[0]
		if err := over(open, home.Key(), home.Addrs(), bulk()); err != nil {
			t.Fatal(err)
		}
		if p := open.Path(home.Key()); p != p2p.PathPunched {
			t.Errorf("path %v, want hole-punched: the home has dialled back", p)
		}
	})
}
