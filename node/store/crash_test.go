package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/node/store"
)

// childDir in the environment turns the test binary into a process that writes receipts into that folder until it is
// killed. With childLimit it stops writing after so many and waits for its end with nothing under way.
const (
	childDir   = "STORE_TEST_CHILD_DIR"
	childLimit = "STORE_TEST_CHILD_LIMIT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeUntilKilled(dir, os.Getenv(childLimit)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var crashLease = attest.Digest{0xee}

// crashReceipt returns the receipt that follows tail.
func crashReceipt(tail receipt.Tail) (attest.Envelope, receipt.Tail, error) {
	seq := tail.Seq + 1
	r := receipt.Receipt{Version: 1, Lease: crashLease, Seq: seq, Prev: tail.ID, T0: int64(seq) * 1000, T1: int64(seq+1) * 1000,
		MonoMS: tail.Last.MonoMS + 1000, State: receipt.Running, Units: gpu.Usage{gpu.BillableDeviceMS: 1000},
		Cum: gpu.Usage{gpu.BillableDeviceMS: seq * 1000}}
	if seq == 1 {
		r.MonoMS = 1000
	}
	payload, err := attest.Marshal(r)
	if err != nil {
		return attest.Envelope{}, tail, err
	}
	e := attest.Envelope{Domain: receipt.Domain, Payload: payload, Signer: attest.Key{1}}
	// A stored signature is dense bytes; it is not verified here.
	for i := range e.Sig {
		e.Sig[i] = byte(seq) + byte(i) | 1
	}
	tail, err = tail.Accept(r, e.ID())
	return e, tail, err
}

// readChain returns the tail of the chain in s after checking every link.
func readChain(s *store.Store) (receipt.Tail, error) {
	tail := receipt.Tail{Lease: crashLease}
	all, err := s.Receipts(crashLease)
	if err != nil {
		return tail, err
	}
	for _, e := range all {
		r, err := attest.Decode[receipt.Receipt](e)
		if err != nil {
			return tail, err
		}
		if tail, err = tail.Accept(r, e.ID()); err != nil {
			return tail, err
		}
	}
	return tail, nil
}

// writeUntilKilled continues the chain and prints each number once it is durable.
func writeUntilKilled(dir, limit string) error {
	s, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		return err
	}
	tail, err := readChain(s)
	if err != nil {
		return err
	}
	for {
		var e attest.Envelope
		if e, tail, err = crashReceipt(tail); err != nil {
			return err
		}
		if err := s.AppendReceipt(crashLease, tail.Seq, e); err != nil {
			return err
		}
		if _, err := fmt.Println(tail.Seq); err != nil {
			return err
		}
		if fmt.Sprint(tail.Seq) == limit {
			_, err := io.Copy(io.Discard, os.Stdin) // the parent never closes it
			return err
		}
	}
}

// writeAndKill runs a child on dir, kills it once it has acknowledged n more receipts, and returns the last number
// that it acknowledged. With a limit the child writes no more than that number, else it is killed amid a write.
func writeAndKill(t *testing.T, dir string, n int, limit string) (acked uint64) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context()) // ends the child with SIGKILL
	defer kill()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childDir+"="+dir, childLimit+"="+limit)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for i := 1; ; i++ {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(line, &acked); err != nil {
			t.Fatalf("child says %q", line)
		}
		if i == n {
			kill()
		}
	}
	if err := cmd.Wait(); err == nil || stderr.Len() > 0 {
		t.Fatalf("child ended with %v: %s", err, &stderr)
	}
	return acked
}

// reopen opens dir as it is and returns the store, the end of its chain and what was logged.
func reopen(t *testing.T, dir string) (*store.Store, receipt.Tail, string) {
	t.Helper()
	var log logLines
	s := open(t, store.Options{Dir: dir, Logger: log.logger()})
	tail, err := readChain(s)
	if err != nil {
		t.Fatalf("chain: %v", err)
	}
	return s, tail, log.String()
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 10 {
		acked := writeAndKill(t, dir, 40+37*round, "")
		s, tail, log := reopen(t, dir)
		if tail.Seq < acked {
			t.Fatalf("round %d: %d receipts after the kill, %d were acknowledged", round, tail.Seq, acked)
		}
		if log != "" || len(s.Lost()) > 0 {
			t.Errorf("round %d: a start after a kill is not silent: %s", round, log)
		}
		if r, err := s.Check(t.Context()); err != nil || r.Err() != nil {
			t.Errorf("round %d: Check = %v, %v", round, r.Err(), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// newestLog returns the newest file with that suffix and how much of it is used.
func newestLog(t *testing.T, dir, ext string) (file string, used int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+ext))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", ext, dir, err)
	}
	file = slices.Max(files)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, int64(len(bytes.TrimRight(b, "\x00")))
}

func edit(t *testing.T, file string, f func(*os.File) error) {
	t.Helper()
	h, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(h), h.Close()); err != nil {
		t.Fatal(err)
	}
}

// What a crash, a bad disk or a careless tool may leave of the newest log. The store opens by itself; acknowledged
// receipts are there or named.
func TestDamagedLog(t *testing.T) {
	zeros := make([]byte, 4096)
	tests := []struct {
		name     string
		ext      string
		loses    bool
		manyLost bool
		edit     func(f *os.File, used int64) error
	}{
		{"zeros at the end", ".mem", false, false, func(f *os.File, _ int64) error {
			_, err := f.Seek(0, io.SeekEnd)
			return errors.Join(err, func() error { _, err := f.Write(zeros); return err }())
		}},
		{"zeros after the used part", ".mem", false, false, func(f *os.File, used int64) error {
			// The last four bytes are a checksum that may itself end in zeros.
			return errors.Join(f.Truncate(used+4), func() error { _, err := f.WriteAt(zeros, used+4); return err }())
		}},
		{"last 100 bytes cut", ".mem", true, false, func(f *os.File, used int64) error { return f.Truncate(used - 100) }},
		{"last 100 bytes zero", ".mem", true, false, func(f *os.File, used int64) error {
			_, err := f.WriteAt(zeros[:100], used-100)
			return err
		}},
		{"a byte in the middle flipped", ".mem", true, true, func(f *os.File, used int64) error {
			b := make([]byte, 1)
			if _, err := f.ReadAt(b, used/2); err != nil {
				return err
			}
			b[0] ^= 1
			_, err := f.WriteAt(b, used/2)
			return err
		}},
		{"value log: zeros at the end", ".vlog", false, false, func(f *os.File, _ int64) error {
			_, err := f.Seek(0, io.SeekEnd)
			return errors.Join(err, func() error { _, err := f.Write(zeros); return err }())
		}},
		{"value log: cut", ".vlog", false, false, func(f *os.File, used int64) error { return f.Truncate(used / 2) }},
		{"value log: empty", ".vlog", false, false, func(f *os.File, _ int64) error { return f.Truncate(0) }},
		{"log: empty", ".mem", true, true, func(f *os.File, _ int64) error { return f.Truncate(0) }},
		{"log: within its head", ".mem", true, true, func(f *os.File, _ int64) error { return f.Truncate(7) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			acked := writeAndKill(t, dir, 60, "60")
			file, used := newestLog(t, dir, tt.ext)
			edit(t, file, func(f *os.File) error { return tt.edit(f, used) })
			s, tail, log := reopen(t, dir)
			lost := lostReceipts(t, s)
			checkLosses(t, s, tail, acked, lost, log)
			if n := len(lost); tt.loses != (n > 0) || !tt.manyLost && n > 1 {
				t.Errorf("%d receipts lost, want some: %v, many: %v", n, tt.loses, tt.manyLost)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s, again, log := reopen(t, dir)
			if log != "" || again.Seq != tail.Seq {
				t.Errorf("second start is not clean: %d, %s", again.Seq, log)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// lostReceipts returns the numbers of the receipts that s names as lost.
func lostReceipts(t *testing.T, s *store.Store) []uint64 {
	t.Helper()
	var seqs []uint64
	for _, ref := range s.Lost() {
		seq, ok := ref.Seq()
		if lease, _ := ref.Lease(); ref.Kind != store.KindReceipt || !ok || lease != crashLease {
			t.Errorf("lost: %s, want receipts of the lease only", ref)
		}
		seqs = append(seqs, seq)
	}
	return seqs
}

// checkLosses holds that each acknowledged receipt is in the chain or named, in the log and by Check.
func checkLosses(t *testing.T, s *store.Store, tail receipt.Tail, acked uint64, lost []uint64, log string) {
	t.Helper()
	for seq := tail.Seq + 1; seq <= acked; seq++ {
		if !slices.Contains(lost, seq) {
			t.Errorf("receipt %d was acknowledged, is gone and is not named", seq)
		}
		if !strings.Contains(log, fmt.Sprintf("receipt %d of lease", seq)) {
			t.Errorf("log does not name receipt %d: %s", seq, log)
		}
	}
	for _, seq := range lost {
		if seq <= tail.Seq {
			t.Errorf("receipt %d is named as lost and is there", seq)
		}
	}
	r, err := s.Check(t.Context())
	if err != nil || (r.Err() != nil) != (len(lost) > 0) {
		t.Errorf("Check = %v, %v with %d lost", r.Err(), err, len(lost))
	}
	if len(lost) > 0 {
		if err := s.AppendReceipt(crashLease, lost[0], envelope("another", 1)); !errors.Is(err, store.ErrConflict) {
			t.Errorf("another receipt %d = %v, want ErrConflict", lost[0], err)
		}
	}
}
