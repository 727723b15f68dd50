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
	"testing/iotest"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p/blob"
)

func openStore(t testing.TB) (*blob.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := blob.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// content returns n bytes that differ all along.
func content(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// check holds that the store has exactly these bytes under d.
func check(t testing.TB, s *blob.Store, d attest.Digest, want []byte) {
	t.Helper()
	if size, ok := s.Has(d); !ok || size != uint64(len(want)) {
		t.Errorf("Has = %d, %v, want %d, true", size, ok, len(want))
	}
	got, err := os.ReadFile(s.Path(d))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has %d bytes, %v, want the %d that were stored", len(got), err, len(want))
	}
	if err := s.Verify(t.Context(), d); err != nil {
		t.Errorf("Verify = %v", err)
	}
}

// files returns the regular files below dir, relative to it.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPut(t *testing.T) {
	for _, n := range []int{0, 1, 256 << 10, 600_000} {
		s, dir := openStore(t)
		want := content(n)
		for range 2 { // the second time it is there already
			d, size, err := s.Put(t.Context(), bytes.NewReader(want))
			if err != nil || d != attest.Sum(want) || size != uint64(n) {
				t.Fatalf("Put of %d bytes = %v, %d, %v", n, d, size, err)
			}
			check(t, s, d, want)
		}
		h := attest.Sum(want).Hex()
		if got := files(t, dir); len(got) != 1 || got[0] != filepath.Join(h[:2], h[2:4], h) {
			t.Errorf("the folder holds %v, want the file alone", got)
		}
	}
}

func TestPutThatFailsLeavesNothing(t *testing.T) {
	s, dir := openStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Put(ctx, bytes.NewReader(content(9))); !errors.Is(err, context.Canceled) {
		t.Errorf("Put with an ended context = %v", err)
	}
	broken := errors.New("broken reader")
	if _, _, err := s.Put(t.Context(), iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("Put of a broken reader = %v", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("the folder holds %v, want nothing", got)
	}
}

func TestPutFileAndTakeFile(t *testing.T) {
	s, _ := openStore(t)
	dir := t.TempDir()
	want := content(300_000)
	d := attest.Sum(want)
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, n, err := s.PutFile(t.Context(), path); err != nil || got != d || n != uint64(len(want)) {
		t.Fatalf("PutFile = %v, %d, %v", got, n, err)
	}
	if err := os.WriteFile(path, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(t, s, d, want) // a change of the original does not reach the store

	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(d); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, n, err := s.TakeFile(t.Context(), path); err != nil || got != d || n != uint64(len(want)) {
			t.Fatalf("TakeFile = %v, %d, %v", got, n, err)
		}
		check(t, s, d, want)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(t, s, d, want) // nor does its end
}

func TestPutFileWritesOnlyWhatIsMissing(t *testing.T) {
	s, _ := openStore(t)
	want := content(300_000)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	put := func() os.FileInfo {
		d, n, err := s.PutFile(t.Context(), path)
		if err != nil || d != attest.Sum(want) || n != uint64(len(want)) {
			t.Fatalf("PutFile = %v, %d, %v", d, n, err)
		}
		check(t, s, d, want)
		info, err := os.Stat(s.Path(d))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := put()
	if !os.SameFile(first, put()) {
		t.Error("the same bytes were written again")
	}
	stored := s.Path(attest.Sum(want))
	for name, damage := range map[string][]byte{"another byte": append(content(299_999), 1), "cut off": content(10)} {
		if err := errors.Join(os.Remove(stored), os.WriteFile(stored, damage, 0o600)); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		put() // mends it
	}
}

func TestOnlyRegularFilesAreStored(t *testing.T) {
	s, dir := openStore(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(outside, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, outside, filepath.Join(outside, "missing")} {
		if _, _, err := s.PutFile(t.Context(), path); err == nil {
			t.Errorf("PutFile(%s) = nil error", filepath.Base(path))
		}
		if _, _, err := s.TakeFile(t.Context(), path); err == nil {
			t.Errorf("TakeFile(%s) = nil error", filepath.Base(path))
		}
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("the folder holds %v, want nothing", got)
	}
}

func TestMissingFile(t *testing.T) {
	s, _ := openStore(t)
	d := attest.Sum([]byte("missing"))
	if _, ok := s.Has(d); ok {
		t.Error("Has = true")
	}
	if _, err := s.Open(d); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Open = %v, want ErrNotFound", err)
	}
	if err := s.Verify(t.Context(), d); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Verify = %v, want ErrNotFound", err)
	}
	if err := s.Remove(d); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

func TestVerifyNamesBothDigests(t *testing.T) {
	s, _ := openStore(t)
	d, _, err := s.Put(t.Context(), strings.NewReader("good"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.Path(d), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(d), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = s.Verify(t.Context(), d)
	var wrong *blob.DigestError
	if !errors.As(err, &wrong) || wrong.Want != d || wrong.Got != attest.Sum([]byte("evil")) {
		t.Fatalf("Verify = %v, want a DigestError", err)
	}
	for _, x := range []attest.Digest{wrong.Want, wrong.Got} {
		if !strings.Contains(err.Error(), x.String()) {
			t.Errorf("error %q does not name %s", err, x)
		}
	}
}

func TestOpenStoreSweeps(t *testing.T) {
	s, dir := openStore(t)
	d, _, err := s.Put(t.Context(), strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tmp/put-1", "part/x.part"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = blob.OpenStore(dir); err != nil {
		t.Fatal(err)
	}
	check(t, s, d, []byte("whole"))
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("the folder holds %v, want the whole file and the part", got)
	}
}

func TestConcurrentPuts(t *testing.T) {
	s, dir := openStore(t)
	want := content(100_000)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, _, err = s.Put(t.Context(), bytes.NewReader(want))
			} else {
				_, _, err = s.TakeFile(t.Context(), path)
			}
			if err != nil {
				t.Errorf("put %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	check(t, s, attest.Sum(want), want)
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %v, want the file alone", got)
	}
}
