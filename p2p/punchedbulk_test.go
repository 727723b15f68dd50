package p2p_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// bulkTimes is how long bulk data took between two hosts that are 40 ms apart, on links of 100 Mbit/s.
type bulkTimes struct {
	path   p2p.Path
	opened time.Duration // from the wish for a stream to the stream, the hole punch included
	ours   time.Duration // the data over such a stream, on average
	raw    time.Duration // the same over a bare stream of the library, on the same connection, in turns
}

const (
	punchedBytes = 8 << 20
	punchedTurns = 4
)

// sink is a bulk protocol whose server reads all and then sends one byte.
func sink() p2p.Protocol {
	p := bulk()
	p.Name = "sink"
	return p
}

const rawSink = "/test/sink/1"

// swallow is the other side of pour.
func swallow(s io.ReadWriteCloser) {
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{s})
	_, _ = s.Write([]byte{1})
	_ = s.Close()
}

// pour sends the data and waits until the other side has all of it.
func pour(t *testing.T, s interface {
	io.ReadWriter
	CloseWrite() error
}) time.Duration {
	t.Helper()
	start := time.Now()
	_, err := s.Write(make([]byte, punchedBytes))
	if err == nil {
		err = s.CloseWrite()
	}
	if err == nil {
		_, err = io.ReadFull(s, make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// measureBulk sends bulk data between two hosts in the open, or behind routers of that kind.
func measureBulk(t *testing.T, behind bool, kind p2ptest.NAT) (r bulkTimes) {
	synctest.Test(t, func(t *testing.T) {
		w := p2ptest.New(t, 0, p2ptest.Options{Latency: 20 * time.Millisecond})
		defer w.Close()
		relay := hub(w, p2p.RelayPolicy{}, nil)
		var from, to *p2p.Host
		if behind {
			pair := homes(t, w, relay, kind, kind)
			from, to = pair[0], pair[1]
		} else {
			from, to = w.Add(p2p.Options{Reach: market.ReachDirect}), w.Add(p2p.Options{Reach: market.ReachDirect})
		}
		to.Handle(sink(), func(_ context.Context, s *p2p.Stream) { swallow(s) })
		to.Libp2p().SetStreamHandler(rawSink, func(s network.Stream) { swallow(s) })
		start := time.Now()
		open := func() *p2p.Stream {
			s, err := from.Open(t.Context(), to.Key(), to.Addrs(), sink())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first := open()
		r.opened, r.path = time.Since(start), from.Path(to.Key())
		pour(t, first) // the congestion window grows
		for range punchedTurns {
			r.ours += pour(t, open()) / punchedTurns
			raw, err := from.Libp2p().NewStream(t.Context(), p2p.PeerID(to.Key()), rawSink)
			if err != nil {
				t.Fatal(err)
			}
			r.raw += pour(t, raw) / punchedTurns
		}
	})
	return r
}

// TestPunchedBulk holds what BenchmarkPunchedBulk measures.
func TestPunchedBulk(t *testing.T) {
	direct, punched := measureBulk(t, false, 0), measureBulk(t, true, p2ptest.PortRestricted)
	t.Logf("direct %+v, punched %+v", direct, punched)
	if direct.path != p2p.PathDirect || punched.path != p2p.PathPunched {
		t.Fatalf("paths %v and %v, want direct and hole-punched", direct.path, punched.path)
	}
	if r := direct.ours.Seconds() / punched.ours.Seconds(); r < 0.9 || r > 1.1 {
		t.Errorf("%v over a punched connection, %v over a direct one", punched.ours, direct.ours)
	}
	for _, m := range []bulkTimes{direct, punched} {
		if r := m.raw.Seconds() / m.ours.Seconds(); r < 0.9 {
			t.Errorf("%v: %v, and %v over a bare stream", m.path, m.ours, m.raw)
		}
	}
}

// BenchmarkPunchedBulk is the speed of bulk data over a punched connection beside that over a direct one and over a bare
// stream of the library, in virtual time. It is not repeated: virtual time does not depend on the machine.
func BenchmarkPunchedBulk(b *testing.B) {
	var direct, punched bulkTimes
	if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "bulk", F: func(t *testing.T) {
		direct, punched = measureBulk(t, false, 0), measureBulk(t, true, p2ptest.PortRestricted)
	}}}) {
		b.Fatal("no data came over")
	}
	b.Run("routers", func(b *testing.B) {
		for range b.N { // measured above
		}
		b.ReportMetric(0, "ns/op") // what the machine takes says nothing
		b.ReportMetric(direct.ours.Seconds()/punched.ours.Seconds(), "punched/direct")
		b.ReportMetric(punched.raw.Seconds()/punched.ours.Seconds(), "punched/raw")
		b.ReportMetric(direct.raw.Seconds()/direct.ours.Seconds(), "direct/raw")
		b.ReportMetric(float64(punched.opened.Milliseconds()), "punch-ms")
		b.ReportMetric(punchedBytes/1e6/punched.ours.Seconds(), "MB/s")
	})
}
