package blob_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/blob"
)

func TestMalformedHeaders(t *testing.T) {
	for name, h := range map[string]any{
		"unknown code":    map[int]uint64{1: 9, 2: 1},
		"no code":         map[int]uint64{2: 1},
		"enormous size":   map[int]uint64{1: 1, 2: 1 << 63},
		"unknown key":     map[int]uint64{1: 1, 2: 1, 3: 1},
		"another message": "hello",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.b.Handle(blob.Protocol, func(_ context.Context, s *p2p.Stream) { s.Send(h) })
				if err := w.fetch(t, w.b, attest.Digest{1}, 1<<63); !errors.Is(err, p2p.ErrFrame) {
					t.Errorf("Fetch = %v, want ErrFrame", err)
				}
			})
		})
	}
}

func TestServerCountsRequests(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	run(t, func(t *testing.T, w *world) {
		file, secret := content(5000), content(700)
		serve(t, w.b, blob.Options{
			Registerer: registry,
			Logger:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
			Allow:      func(k attest.Key, d attest.Digest) bool { return k == w.a.Key() && d != attest.Sum(secret) },
		}, file, secret)
		w.fetch(t, w.b, attest.Sum(file), 1e6)
		w.fetch(t, w.b, attest.Sum(secret), 1e6)
		w.fetch(t, w.b, attest.Sum([]byte("missing")), 1e6)
		d := attest.Sum(file)
		for _, input := range [][]byte{{2, 0xff, 0xff}, {0}, binary.AppendUvarint(nil, p2p.MaxFrame+1), {9, 1}} {
			s, err := w.a.Open(t.Context(), w.b.Key(), w.b.Addrs(), blob.Protocol)
			if err != nil {
				t.Fatal(err)
			}
			s.Write(input)
			s.CloseWrite()
			if n, err := s.Read(make([]byte, 1)); err == nil {
				t.Errorf("the server answered %x with %d bytes", input, n)
			}
			s.Reset()
		}
		// An offset past the end gets the header alone.
		s, err := w.a.Open(t.Context(), w.b.Key(), w.b.Addrs(), blob.Protocol)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(map[int]any{1: d[:], 2: uint64(1 << 39)}); err != nil {
			t.Fatal(err)
		}
		h := map[int]uint64{}
		if err := s.Recv(&h); err != nil || h[1] != 1 || h[2] != 5000 {
			t.Errorf("header = %v, %v", h, err)
		}
		if n, err := s.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read past the end = %d, %v, want io.EOF", n, err)
		}
		s.Reset()
		synctest.Wait()
		want := map[string]float64{
			"lacuna_blob_requests_total answered": 2, "lacuna_blob_requests_total not_allowed": 1,
			"lacuna_blob_requests_total not_found": 1, "lacuna_blob_requests_total malformed": 3,
			"lacuna_blob_requests_total broken": 1, "lacuna_blob_transferred_bytes_total out": 5000,
		}
		if diff := cmp.Diff(want, counted(t, registry)); diff != "" {
			t.Errorf("server's metrics (-want +got):\n%s", diff)
		}
		want = map[string]float64{"lacuna_blob_transferred_bytes_total in": 5000}
		if diff := cmp.Diff(want, counted(t, w.registry)); diff != "" {
			t.Errorf("fetcher's metrics (-want +got):\n%s", diff)
		}
		if log.Len() > 0 {
			t.Errorf("what a peer did was logged above debug:\n%s", &log)
		}
	})
}

// counted reads all counters, by "name label".
func counted(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return out
}

func TestProtocolLimits(t *testing.T) {
	if err := blob.Protocol.Validate(); err != nil {
		t.Error(err)
	}
}

func TestNewReportsWhatIsMissing(t *testing.T) {
	if _, err := blob.New(blob.Options{}); err == nil {
		t.Error("New without host and store = nil error")
	}
}
