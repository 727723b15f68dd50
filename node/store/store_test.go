package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/store"
)

// open opens a store and closes it when the test ends.
func open(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return s
}

func openDir(t testing.TB, dir string) *store.Store {
	t.Helper()
	return open(t, store.Options{Dir: dir})
}

func meta(key, value string) store.Record {
	return store.Record{Kind: store.KindMeta, Key: []byte(key), Value: []byte(value)}
}

func keys(t *testing.T, scan func(store.Kind, []byte, func(k, v []byte) error) error, prefix string) []string {
	t.Helper()
	var got []string
	err := scan(store.KindMeta, []byte(prefix), func(k, v []byte) error {
		got = append(got, string(k)+"="+string(v))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPutGetScanDelete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := openDir(t, dir)
	if err := s.Put(meta("b", "2"), meta("a", "1"), meta("ab", "3"), meta("c", "")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(store.Record{Kind: store.KindJob, Key: []byte("a"), Value: []byte("other kind")}); err != nil {
		t.Fatal(err)
	}
	check := func(s *store.Store) {
		t.Helper()
		if got, err := s.Get(store.KindMeta, []byte("a")); string(got) != "1" || err != nil {
			t.Errorf("Get(a) = %q, %v, want 1", got, err)
		}
		if got, err := s.Get(store.KindMeta, []byte("c")); len(got) != 0 || err != nil {
			t.Errorf("Get(c) = %q, %v, want an empty value", got, err)
		}
		if _, err := s.Get(store.KindMeta, []byte("x")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Get(x) = %v, want ErrNotFound", err)
		}
		if d := cmp.Diff([]string{"a=1", "ab=3", "b=2", "c="}, keys(t, s.Scan, "")); d != "" {
			t.Errorf("Scan: %s", d)
		}
		if d := cmp.Diff([]string{"ab=3", "a=1"}, keys(t, s.ScanReverse, "a")); d != "" {
			t.Errorf("ScanReverse(a): %s", d)
		}
		if k, v, err := s.Last(store.KindMeta, []byte("a")); string(k) != "ab" || string(v) != "3" || err != nil {
			t.Errorf("Last(a) = %q, %q, %v", k, v, err)
		}
		if _, _, err := s.Last(store.KindMeta, []byte("x")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Last(x) = %v, want ErrNotFound", err)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir)
	check(s)
	if err := s.Delete(store.KindMeta, []byte("a"), []byte("never was")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(store.KindMeta, []byte("a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after Delete = %v, want ErrNotFound", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v, want mode 0700", info.Mode(), err)
	}
}

func TestCallbackMayUseStore(t *testing.T) {
	s := openDir(t, t.TempDir())
	if err := s.Put(meta("a", "1"), meta("b", "2")); err != nil {
		t.Fatal(err)
	}
	err := s.Scan(store.KindMeta, nil, func(k, v []byte) error {
		return s.Put(meta("copy of "+string(k), string(v)))
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a=1", "b=2", "copy of a=1", "copy of b=2"}
	if d := cmp.Diff(want, keys(t, s.Scan, "")); d != "" {
		t.Error(d)
	}
}

func TestRefusedRecords(t *testing.T) {
	s := openDir(t, t.TempDir())
	many := make([]store.Record, 0, 5000)
	for i := range cap(many) {
		many = append(many, meta(fmt.Sprint(i), ""))
	}
	big := make([]byte, store.MaxValue)
	tests := []struct {
		name string
		recs []store.Record
		want error // nil: any error
	}{
		{"no key", []store.Record{{Kind: store.KindMeta}}, nil},
		{"no kind", []store.Record{{Key: []byte("k")}}, nil},
		{"own kind", []store.Record{{Kind: 1, Key: []byte("version")}}, nil},
		{"unknown kind", []store.Record{{Kind: 200, Key: []byte("k")}}, nil},
		{"negative TTL", []store.Record{{Kind: store.KindMeta, Key: []byte("k"), TTL: -1}}, nil},
		{"long key", []store.Record{meta(strings.Repeat("k", store.MaxKey+1), "")}, store.ErrTooBig},
		{"long value", []store.Record{meta("k", string(make([]byte, store.MaxValue+1)))}, store.ErrTooBig},
		{"long batch", []store.Record{meta("k", string(big)), meta("l", string(big)), meta("m", string(big))}, store.ErrTooBig},
		{"many records", many, store.ErrTooBig},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := s.Put(tt.recs...)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Put = %v, want %v", err, tt.want)
			}
			if errors.Is(err, store.ErrBroken) {
				t.Errorf("Put = %v: refused too late", err)
			}
		})
	}
	if err := s.Put(many[:4096]...); err != nil {
		t.Errorf("Put of 4096 records = %v", err)
	}
	if err := s.Put(meta("k", string(big))); err != nil {
		t.Errorf("Put of the largest value = %v", err)
	}
	if got, err := s.Get(store.KindMeta, []byte("k")); err != nil || !bytes.Equal(got, big) {
		t.Errorf("Get of the largest value: %d bytes, %v", len(got), err)
	}
}

func TestConcurrentPuts(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				key := fmt.Sprintf("%02d/%02d", g, i)
				put := s.Put
				if i%3 == 0 {
					put = s.PutLazy
				}
				if err := put(meta(key, key)); err != nil {
					t.Errorf("Put(%s) = %v", key, err)
				}
				if got, err := s.Get(store.KindMeta, []byte(key)); string(got) != key {
					t.Errorf("Get(%s) = %q, %v", key, got, err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, openDir(t, dir).Scan, ""); len(got) != 16*20 {
		t.Errorf("%d records after reopening, want %d", len(got), 16*20)
	}
}

func TestLazyIsWrittenAtClose(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	if err := s.PutLazy(meta("a", "1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a=1"}, keys(t, openDir(t, dir).Scan, "")); d != "" {
		t.Error(d)
	}
}

func TestClosed(t *testing.T) {
	s := openDir(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close = %v", err)
	}
	_, getErr := s.Get(store.KindMeta, []byte("a"))
	_, checkErr := s.Check(t.Context())
	for name, err := range map[string]error{
		"Put": s.Put(meta("a", "1")), "PutLazy": s.PutLazy(meta("a", "1")), "Get": getErr, "Check": checkErr,
		"Scan": s.Scan(store.KindMeta, nil, func(k, v []byte) error { return nil }),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", name, err)
		}
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	start := time.Now()
	_, err := store.Open(store.Options{Dir: dir})
	if !errors.Is(err, store.ErrInUse) {
		t.Fatalf("second Open = %v, want ErrInUse", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("refusal took %v", took)
	}
	for _, want := range []string{dir, fmt.Sprint(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if err := s.Put(meta("a", "1")); err != nil {
		t.Errorf("first store is disturbed: %v", err)
	}
}

func TestNoSpace(t *testing.T) {
	var mu sync.Mutex
	free := uint64(1 << 30)
	set := func(n uint64) { mu.Lock(); free = n; mu.Unlock() }
	dir := t.TempDir()
	o := store.Options{Dir: dir, MinFreeBytes: 100 << 20, FreeBytes: func(string) (uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		return free, nil
	}}
	s := open(t, o)
	if err := s.Put(meta("a", "1"), meta("b", "2")); err != nil {
		t.Fatal(err)
	}
	set(100<<20 - 1)
	if err := s.Put(meta("c", "3")); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("Put = %v, want ErrNoSpace", err)
	}
	if err := s.Delete(store.KindMeta, []byte("b")); err != nil {
		t.Errorf("Delete = %v, want room to be made", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o) // a store without room for writes can be read
	set(25<<20 - 1)
	if err := s.Delete(store.KindMeta, []byte("a")); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("Delete with nothing left = %v, want ErrNoSpace", err)
	}
	if d := cmp.Diff([]string{"a=1"}, keys(t, s.Scan, "")); d != "" {
		t.Error(d)
	}
	set(1 << 30)
	if err := s.Put(meta("c", "3")); err != nil {
		t.Errorf("Put with room again = %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	set(0)
	if _, err := store.Open(o); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("Open of a full disk = %v, want ErrNoSpace", err)
	}
}

func TestBrokenStoreStaysBroken(t *testing.T) {
	s, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.BreakAcks(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Put(meta("a", "1")); !errors.Is(err, store.ErrBroken) {
			t.Errorf("Put = %v, want ErrBroken", err)
		}
	}
	if err := s.Close(); err == nil {
		t.Error("Close = nil, want the fault")
	}
}

func TestExpiry(t *testing.T) {
	s := openDir(t, t.TempDir())
	gone := store.Record{Kind: store.KindMeta, Key: []byte("a"), TTL: time.Nanosecond} // in whole seconds: at once
	if err := s.Put(gone, store.Record{Kind: store.KindMeta, Key: []byte("b"), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"b="}, keys(t, s.Scan, "")); d != "" {
		t.Error(d)
	}
}

func TestSchema(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	var ran []int
	step := func(n int) func() error { return func() error { ran = append(ran, n); return nil } }
	fail := errors.New("no")
	if err := s.Migrate(3, step(1), func() error { return fail }); !errors.Is(err, fail) {
		t.Errorf("Migrate = %v, want the step's error", err)
	}
	if err := s.Migrate(3, step(1), step(2)); err != nil {
		t.Error(err)
	}
	if err := s.Migrate(3, step(1), step(2)); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]int{1, 2}, ran); d != "" {
		t.Errorf("each step runs once: %s", d)
	}
	if err := s.Migrate(5, step(1)); err == nil {
		t.Error("Migrate without a way = nil")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(store.Options{Dir: dir}); !errors.Is(err, store.ErrNewer) {
		t.Errorf("Open of layout 3 = %v, want ErrNewer", err)
	}
}

func TestRun(t *testing.T) {
	s := openDir(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if err := s.PutLazy(meta("a", "1")); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil when ctx ends", err)
	}
}

// logLines collects what is logged at Info and above.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
