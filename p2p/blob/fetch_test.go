package blob_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// world is a peer that fetches and two that serve, on a network in virtual time.
type world struct {
	net      *p2ptest.Network
	a, b, c  *p2p.Host
	store    *blob.Store // a's
	dir      string      // a's
	fetcher  *blob.Service
	registry *prometheus.Registry // a's
}

func run(t *testing.T, f func(t *testing.T, w *world)) {
	store, dir := openStore(t)
	synctest.Test(t, func(t *testing.T) {
		n := p2ptest.New(t, 3, p2ptest.Options{})
		defer n.Close()
		w := &world{net: n, a: n.Host(0), b: n.Host(1), c: n.Host(2), store: store, dir: dir, registry: prometheus.NewPedanticRegistry()}
		var err error
		w.fetcher, err = blob.New(blob.Options{Host: w.a, Store: store, Registerer: w.registry})
		if err != nil {
			t.Fatal(err)
		}
		defer w.fetcher.Close()
		f(t, w)
	})
}

// serve serves files from h to everybody.
func serve(t *testing.T, h *p2p.Host, o blob.Options, files ...[]byte) {
	t.Helper()
	o.Host = h
	o.Store, _ = openStore(t)
	if o.Allow == nil {
		o.Allow = func(attest.Key, attest.Digest) bool { return true }
	}
	for _, b := range files {
		if _, _, err := o.Store.Put(t.Context(), bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := blob.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
}

// script serves whatever it is told to, once: it says size, sends data from the offset that was asked for, and ends
// the stream. It returns the offsets that were asked for.
func script(t *testing.T, h *p2p.Host, size int, data []byte, end func(*p2p.Stream)) func() []uint64 {
	var mu sync.Mutex
	var offsets []uint64
	h.Handle(blob.Protocol, func(_ context.Context, s *p2p.Stream) {
		q := map[int]any{}
		if err := s.Recv(&q); err != nil {
			t.Errorf("script: %v", err)
		}
		offset, ok := q[2].(uint64)
		if !ok {
			t.Errorf("script: request %v", q)
		}
		mu.Lock()
		offsets = append(offsets, offset)
		mu.Unlock()
		if err := s.Send(map[int]uint64{1: 1, 2: uint64(size)}); err != nil {
			t.Errorf("script: %v", err)
		}
		if offset < uint64(len(data)) {
			s.Write(data[offset:]) // the other side may be content before the end
		}
		end(s)
	})
	return func() []uint64 {
		mu.Lock()
		defer mu.Unlock()
		return append([]uint64{}, offsets...)
	}
}

func closed(*p2p.Stream) {}

func (w *world) fetch(t *testing.T, from *p2p.Host, d attest.Digest, limit uint64) error {
	t.Helper()
	return w.fetcher.Fetch(t.Context(), from.Key(), from.Addrs(), d, limit, nil)
}

// partSize returns the size of what is here of d in part, -1 for none.
func (w *world) partSize(d attest.Digest) int64 {
	info, err := os.Stat(filepath.Join(w.dir, "part", d.Hex()+".part"))
	if err != nil {
		return -1
	}
	return info.Size()
}

func TestFetch(t *testing.T) {
	for _, n := range []int{0, 1, 1_000_000} {
		run(t, func(t *testing.T, w *world) {
			want := content(n)
			d := attest.Sum(want)
			serve(t, w.b, blob.Options{}, want)
			var last [2]uint64
			err := w.fetcher.Fetch(t.Context(), w.b.Key(), w.b.Addrs(), d, uint64(n), func(done, total uint64) {
				if done < last[0] || done > total {
					t.Errorf("progress went from %d to %d of %d", last[0], done, total)
				}
				last = [2]uint64{done, total}
			})
			if err != nil {
				t.Fatal(err)
			}
			check(t, w.store, d, want)
			if want := [2]uint64{uint64(n), uint64(n)}; last != want {
				t.Errorf("last progress = %v, want %v", last, want)
			}
			if got := files(t, w.dir); len(got) != 1 {
				t.Errorf("the folder holds %v, want the file alone", got)
			}
			w.net.Mute(w.b, true) // what is there is not fetched again
			if err := w.fetch(t, w.b, d, 0); err != nil {
				t.Errorf("Fetch of a file that is there = %v", err)
			}
			w.net.Mute(w.b, false)
		})
	}
}

func TestFetchResumes(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := content(500_000)
		d := attest.Sum(want)
		script(t, w.b, len(want), want[:200_000], closed)
		if err := w.fetch(t, w.b, d, 1e6); !errors.Is(err, blob.ErrCut) {
			t.Fatalf("Fetch of half a file = %v, want ErrCut", err)
		}
		if n := w.partSize(d); n != 200_000 {
			t.Fatalf("part of %d bytes, want 200000", n)
		}
		if _, ok := w.store.Has(d); ok {
			t.Error("half a file is in the store")
		}
		asked := script(t, w.c, len(want), want, closed) // another peer
		first := uint64(0)
		err := w.fetcher.Fetch(t.Context(), w.c.Key(), w.c.Addrs(), d, 1e6, func(done, _ uint64) {
			if first == 0 {
				first = done
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]uint64{200_000}, asked()); diff != "" || first != 200_000 {
			t.Errorf("resumed with progress %d, offsets (-want +got):\n%s", first, diff)
		}
		check(t, w.store, d, want)
		if n := w.partSize(d); n != -1 {
			t.Errorf("a part of %d bytes is left", n)
		}
	})
}

func TestResetKeepsThePart(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := content(500_000)
		d := attest.Sum(want)
		script(t, w.b, len(want), want[:200_000], func(s *p2p.Stream) {
			time.Sleep(time.Second) // QUIC may throw away what is not delivered before the reset
			s.Reset()
		})
		if err := w.fetch(t, w.b, d, 1e6); !errors.Is(err, blob.ErrCut) {
			t.Errorf("Fetch that is reset = %v, want ErrCut", err)
		}
		if n := w.partSize(d); n != 200_000 {
			t.Errorf("part of %d bytes, want 200000", n)
		}
	})
}

func TestWrongBytes(t *testing.T) {
	want := content(300_000)
	d := attest.Sum(want)
	flipped := bytes.Clone(want)
	flipped[1000] ^= 1
	longer := append(bytes.Clone(want), "more"...)
	for _, tt := range []struct {
		name string
		size int
		data []byte
		got  []byte // what the digest in the error is of; nil = the fetch succeeds
	}{
		{"a byte flipped", len(flipped), flipped, flipped},
		{"declared too long", len(longer), longer, longer},
		{"declared too short", 1000, want, want[:1000]},
		{"declared empty", 0, want, []byte{}},
		{"more than declared", len(want), longer, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				script(t, w.b, tt.size, tt.data, closed)
				err := w.fetch(t, w.b, d, 1e6)
				if tt.got == nil {
					if err != nil {
						t.Errorf("Fetch = %v, want the bytes that were declared", err)
					}
					check(t, w.store, d, want)
					return
				}
				var wrong *blob.DigestError
				if !errors.As(err, &wrong) || wrong.Want != d || wrong.Got != attest.Sum(tt.got) {
					t.Errorf("Fetch = %v, want a DigestError with %s", err, attest.Sum(tt.got))
				} else if !strings.Contains(err.Error(), d.String()) || !strings.Contains(err.Error(), wrong.Got.String()) {
					t.Errorf("error %q does not name both digests", err)
				}
				if got := files(t, w.dir); len(got) != 0 {
					t.Errorf("the folder holds %v, want nothing", got)
				}
			})
		})
	}
}

// TestPartOfALiar holds that wrong bytes from one peer do not spoil the file from another.
func TestPartOfALiar(t *testing.T) {
	want := content(300_000)
	d := attest.Sum(want)
	for _, tt := range []struct {
		name string
		part []byte
		asks []uint64
	}{
		{"wrong", make([]byte, 100_000), []uint64{100_000, 0}},
		{"longer than the file", make([]byte, 400_000), []uint64{400_000, 0}},
		{"whole, but wrong", make([]byte, 300_000), []uint64{300_000, 0}},
		{"whole and right", want, []uint64{300_000}},
		{"longer than the limit", make([]byte, 600_000), []uint64{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				if err := os.WriteFile(filepath.Join(w.dir, "part", d.Hex()+".part"), tt.part, 0o600); err != nil {
					t.Fatal(err)
				}
				asked := script(t, w.b, len(want), want, closed)
				if err := w.fetch(t, w.b, d, 500_000); err != nil {
					t.Fatal(err)
				}
				check(t, w.store, d, want)
				if diff := cmp.Diff(tt.asks, asked()); diff != "" {
					t.Errorf("offsets asked for (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestFetchThatIsRefused(t *testing.T) {
	secret := content(1000)
	allowed := func(_ attest.Key, d attest.Digest) bool { return d != attest.Sum(secret) }
	for _, tt := range []struct {
		name  string
		d     attest.Digest
		limit uint64
		want  error
	}{
		{"not found", attest.Sum([]byte("missing")), 1e6, blob.ErrNotFound},
		{"not allowed", attest.Sum(secret), 1e6, blob.ErrNotAllowed},
		{"too large", attest.Sum(content(2000)), 1999, blob.ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				serve(t, w.b, blob.Options{Allow: allowed}, secret, content(2000))
				if err := w.fetch(t, w.b, tt.d, tt.limit); !errors.Is(err, tt.want) {
					t.Errorf("Fetch = %v, want %v", err, tt.want)
				}
				if got := files(t, w.dir); len(got) != 0 {
					t.Errorf("the folder holds %v, want nothing", got)
				}
			})
		})
	}
	t.Run("no service", func(t *testing.T) {
		run(t, func(t *testing.T, w *world) {
			if err := w.fetch(t, w.b, attest.Sum(secret), 1e6); !errors.Is(err, p2p.ErrProtocol) {
				t.Errorf("Fetch from a peer that serves nothing = %v, want ErrProtocol", err)
			}
		})
	})
}

func TestStalledServer(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := content(100_000)
		d := attest.Sum(want)
		hang := make(chan struct{})
		script(t, w.b, len(want), want[:40_000], func(*p2p.Stream) { <-hang })
		began := time.Now()
		if err := w.fetch(t, w.b, d, 1e6); !errors.Is(err, blob.ErrStalled) {
			t.Errorf("Fetch = %v, want ErrStalled", err)
		}
		if took := time.Since(began); took < blob.StallTimeout || took > blob.StallTimeout+time.Second {
			t.Errorf("Fetch gave up after %v, want %v", took, blob.StallTimeout)
		}
		if n := w.partSize(d); n != 40_000 {
			t.Errorf("part of %d bytes, want 40000", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		err := w.fetcher.Fetch(ctx, w.b.Key(), nil, d, 1e6, nil)
		if !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("Fetch = %v after %v, want it to end with its context", err, time.Since(began))
		}
		close(hang)
	})
}

// TestSlowServer holds that a slow transfer is not a stalled one.
func TestSlowServer(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := content(60)
		script(t, w.b, len(want), nil, func(s *p2p.Stream) {
			for i := range want {
				time.Sleep(blob.StallTimeout - time.Second)
				s.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := s.Write(want[i : i+1]); err != nil {
					t.Errorf("Write: %v", err)
				}
			}
		})
		if err := w.fetch(t, w.b, attest.Sum(want), 1e6); err != nil {
			t.Error(err)
		}
		check(t, w.store, attest.Sum(want), want)
	})
}

func TestConcurrentFetches(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want, other := content(400_000), content(399_999)
		d := attest.Sum(want)
		serve(t, w.c, blob.Options{}, other)
		asked := script(t, w.b, len(want), want, closed)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if err := w.fetch(t, w.b, d, 1e6); err != nil {
					t.Errorf("fetch %d: %v", i, err)
				}
			})
			wg.Go(func() {
				if err := w.fetch(t, w.c, attest.Sum(other), 1e6); err != nil {
					t.Errorf("fetch %d of the other file: %v", i, err)
				}
			})
		}
		wg.Wait()
		check(t, w.store, d, want)
		check(t, w.store, attest.Sum(other), other)
		if n := len(asked()); n != 1 {
			t.Errorf("the file was asked for %d times, want once", n)
		}
	})
}

// TestWaitingFetchGoesOn holds that a fetch which waited for another one takes over when that fails, and that one which
// gives up waiting leaves the other alone.
func TestWaitingFetchGoesOn(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := content(100_000)
		d := attest.Sum(want)
		hang := make(chan struct{})
		script(t, w.b, len(want), want[:50_000], func(*p2p.Stream) { <-hang })
		serve(t, w.c, blob.Options{}, want)
		stalled := make(chan error, 1)
		go func() { stalled <- w.fetch(t, w.b, d, 1e6) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.fetcher.Fetch(ctx, w.c.Key(), w.c.Addrs(), d, 1e6, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Fetch that gives up waiting = %v, want its context's error", err)
		}
		if err := w.fetch(t, w.c, d, 1e6); err != nil {
			t.Errorf("Fetch that waited = %v", err)
		}
		if err := <-stalled; !errors.Is(err, blob.ErrStalled) {
			t.Errorf("the first Fetch = %v, want ErrStalled", err)
		}
		check(t, w.store, d, want)
		close(hang)
	})
}

func TestUnreachable(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.net.Mute(w.b, true)
		if err := w.fetch(t, w.b, attest.Digest{1}, 1); !errors.Is(err, p2p.ErrUnreachable) {
			t.Errorf("Fetch = %v, want ErrUnreachable", err)
		}
		if got := files(t, w.dir); len(got) != 0 {
			t.Errorf("the folder holds %v, want nothing", got)
		}
		w.net.Mute(w.b, false)
	})
}
