package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/store"
)

func receiptKey(lease attest.Digest, seq byte) []byte {
	return append(lease[:], 0, 0, 0, 0, 0, 0, 0, seq)
}

func TestFlippedByteIsNamedAtRead(t *testing.T) {
	lease := attest.Digest{0xab}
	for _, at := range []int{0, 1, 4, 5, 8, 9, 40} { // version, length, checksum, payload
		s := openDir(t, t.TempDir())
		for seq := uint64(1); seq <= 3; seq++ {
			if err := s.AppendReceipt(lease, seq, envelope("receipt", 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.FlipByte(store.KindReceipt, receiptKey(lease, 2), at); err != nil {
			t.Fatal(err)
		}
		_, getErr := s.Get(store.KindReceipt, receiptKey(lease, 2))
		_, allErr := s.Receipts(lease)
		for name, err := range map[string]error{
			"Get": getErr, "Receipts": allErr,
			"AppendReceipt": s.AppendReceipt(lease, 2, envelope("receipt", 1)),
		} {
			var c *store.CorruptError
			if !errors.As(err, &c) || c.Kind != store.KindReceipt || !bytes.Equal(c.Key, receiptKey(lease, 2)) {
				t.Errorf("byte %d: %s = %v, want a CorruptError of receipt 2", at, name, err)
			} else if want := "receipt 2 of lease " + lease.Hex(); !strings.Contains(err.Error(), want) {
				t.Errorf("byte %d: %s = %q, want it to say %q", at, name, err, want)
			}
		}
		r, err := s.Check(t.Context())
		if err != nil || len(r.Damaged) != 1 || r.Damaged[0].Kind != store.KindReceipt || r.Err() == nil {
			t.Errorf("byte %d: Check = %+v, %v", at, r, err)
		}
		if want := 3; r.Records != want { // two receipts, the schema
			t.Errorf("byte %d: %d sound records, want %d", at, r.Records, want)
		}
	}
}

// A damaged lease hides none of those behind it.
func TestLeasesGoOnAfterDamage(t *testing.T) {
	s := openDir(t, t.TempDir())
	ids := []attest.Digest{{1}, {2}, {3}}
	for _, id := range ids {
		if err := s.SaveLease(id, id[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.FlipByte(store.KindLease, ids[1][:], 9); err != nil {
		t.Fatal(err)
	}
	var seen []attest.Digest
	err := s.Leases(func(id attest.Digest, value []byte, damage error) error {
		seen = append(seen, id)
		var c *store.CorruptError
		if bad := id == ids[1]; errors.As(damage, &c) != bad || bad == (len(value) == 1) {
			t.Errorf("lease %s: value %x, %v", id.Short(), value, damage)
		}
		return nil
	})
	if d := cmp.Diff(ids, seen); err != nil || d != "" {
		t.Errorf("Leases: %v, (-want +got):\n%s", err, d)
	}
	stop := errors.New("stop")
	if err := s.Leases(func(attest.Digest, []byte, error) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Leases = %v, want the caller's error", err)
	}
}

// tables returns a closed store with one receipt and its only table file.
func tables(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	s := openDir(t, dir)
	for seq := uint64(1); seq <= 20; seq++ {
		if err := s.AppendReceipt(attest.Digest{0xab}, seq, envelope("needle", byte(seq))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(files) != 1 {
		t.Fatalf("tables: %v, %v, want one", files, err)
	}
	return dir, files[0]
}

func TestFlippedByteInTableIsNamedAtStart(t *testing.T) {
	dir, file := tables(t)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("needle"))
	if at < 0 {
		t.Fatal("payload not found in the table")
	}
	b[at] ^= 0x20
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var log logLines
	s := open(t, store.Options{Dir: dir, Logger: log.logger()})
	damaged := s.Damaged()
	if len(damaged) != 1 || damaged[0].Kind != store.KindReceipt {
		t.Fatalf("Damaged = %v, want one receipt", damaged)
	}
	want := store.Ref{Kind: store.KindReceipt, Key: damaged[0].Key}.String()
	if !strings.Contains(log.String(), want) {
		t.Errorf("log does not name %q: %s", want, &log)
	}
	if _, err := s.Get(store.KindReceipt, damaged[0].Key); err == nil {
		t.Error("Get of the damaged receipt = nil")
	}
	if _, err := s.Receipts(attest.Digest{0xab}); err == nil {
		t.Error("Receipts = nil: damage skipped")
	}
}

// Any one byte of a table may flip: the store either refuses to open, or names damage, or all records are right.
func TestAnyFlippedByteInTableIsFound(t *testing.T) {
	dir, file := tables(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 0; at < len(whole); at += len(whole)/25 + 1 {
		copied := t.TempDir()
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Join(dir, e.Name()) == file {
				b[at] ^= 0x10
			}
			if err := os.WriteFile(filepath.Join(copied, e.Name()), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := store.Open(store.Options{Dir: copied})
		if err != nil {
			found++
			continue
		}
		got, err := s.Receipts(attest.Digest{0xab})
		switch {
		case len(s.Damaged()) > 0 || err != nil:
			found++
		case len(got) != 20:
			t.Errorf("byte %d: %d receipts and no word of damage", at, len(got))
		}
		if err := s.Close(); err != nil {
			t.Errorf("byte %d: Close = %v", at, err)
		}
	}
	if found < 20 {
		t.Errorf("damage found %d times of 25", found)
	}
}

func TestLostRecordIsNamedAndItsNumberGuarded(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	lease := attest.Digest{0xcd}
	for seq := uint64(1); seq <= 3; seq++ {
		if err := s.AppendReceipt(lease, seq, envelope("receipt", byte(seq))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveMeta("kept", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveMeta("dropped", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(store.KindMeta, []byte("dropped")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(store.KindReceipt, receiptKey(lease, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := []store.Ref{{Kind: store.KindReceipt, Key: receiptKey(lease, 3)}}
	for round, wantLog := range []bool{true, false} {
		var log logLines
		s = open(t, store.Options{Dir: dir, Logger: log.logger()})
		if d := cmp.Diff(want, s.Lost()); d != "" {
			t.Fatalf("round %d: Lost: %s", round, d)
		}
		if got := strings.Contains(log.String(), "receipt 3 of lease "+lease.Hex()); got != wantLog {
			t.Errorf("round %d: loss logged: %v, want %v: %s", round, got, wantLog, &log)
		}
		r, err := s.Check(t.Context())
		if err != nil || r.Err() == nil || !strings.Contains(r.Err().Error(), "receipt 3 of lease") {
			t.Errorf("round %d: Check = %v, %v", round, r.Err(), err)
		}
		if err := s.AppendReceipt(lease, 3, envelope("another", 3)); !errors.Is(err, store.ErrConflict) {
			t.Errorf("round %d: another receipt 3 = %v, want ErrConflict", round, err)
		}
		if round == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.AppendReceipt(lease, 3, envelope("receipt", 3)); err != nil {
		t.Errorf("the lost receipt itself = %v", err)
	}
	if got := s.Lost(); len(got) != 0 {
		t.Errorf("Lost = %v after it came back", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir)
	if r, err := s.Check(t.Context()); err != nil || r.Err() != nil {
		t.Errorf("Check = %v, %v, want nothing", r.Err(), err)
	}
}

func TestManyWritesAreNoLoss(t *testing.T) {
	dir := t.TempDir()
	for range 3 { // past the end of the notes, across starts
		s := openDir(t, dir)
		var b store.Batch
		for i := range store.AckSlots + 40 {
			b.SaveMeta(string(rune('a'+i)), []byte("v"))
		}
		if err := s.Commit(&b); err != nil {
			t.Fatal(err)
		}
		b = store.Batch{}
		b.SaveMeta("x", nil)
		b.Delete(store.KindMeta, []byte("x"))
		b.Delete(store.KindMeta, []byte("y"))
		b.SaveMeta("y", nil)
		if err := s.Commit(&b); err != nil {
			t.Fatal(err)
		}
		if got := s.Lost(); len(got) != 0 {
			t.Fatalf("Lost = %v", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := openDir(t, dir).Lost(); len(got) != 0 {
		t.Errorf("Lost = %v", got)
	}
}

func TestRefNames(t *testing.T) {
	d := attest.Digest{0xab}
	k := attest.Key{1}
	for _, tt := range []struct {
		name string
		ref  store.Ref
		want string
	}{
		{"receipt", store.Ref{Kind: store.KindReceipt, Key: receiptKey(d, 7)}, "receipt 7 of lease " + d.Hex()},
		{"lease", store.Ref{Kind: store.KindLease, Key: d[:]}, "lease " + d.Hex()},
		{"outcome", store.Ref{Kind: store.KindOutcome, Key: append(d[:], k[:]...)}, "outcome of lease " + d.Hex() + " by " + k.String()},
		{"text", store.Ref{Kind: store.KindMeta, Key: []byte("anchor")}, `meta "anchor"`},
		{"bytes", store.Ref{Kind: store.KindMeta, Key: []byte{0, 1}}, "meta 0001"},
		{"short receipt", store.Ref{Kind: store.KindReceipt, Key: []byte("x")}, `receipt "x"`},
		{"unknown", store.Ref{Kind: 99, Key: []byte("x")}, `kind(99) "x"`},
		{"nothing", store.Ref{}, "a record that can not be named"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.ref.String(); got != tt.want {
				t.Errorf("String() = %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x0bk"), store.Seal([]byte("\x0bk"), []byte("payload")))
	f.Add([]byte("\x0bk"), []byte{})
	f.Fuzz(func(t *testing.T, full, b []byte) {
		payload, corrupt := store.DecodeFrame(full, b)
		if !corrupt && !bytes.Equal(store.Seal(full, payload), b) {
			t.Errorf("frame %x is accepted and is not the frame of its payload", b)
		}
	})
}

func FuzzAcks(f *testing.F) {
	f.Add(make([]byte, 3*store.AckSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, slot := range store.ReencodeAcks(b) {
			if len(slot) != store.AckSize {
				t.Errorf("slot of %d bytes", len(slot))
			}
		}
	})
}
