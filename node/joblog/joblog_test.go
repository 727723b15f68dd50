package joblog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lacuna-network/lacuna/node/joblog"
)

func open(t *testing.T, path string) *joblog.Log {
	t.Helper()
	l, err := joblog.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// read returns all that follows offset, with a marker at each change of stream.
func read(t *testing.T, l *joblog.Log, offset uint64) string {
	t.Helper()
	var b bytes.Buffer
	stream := 0
	for {
		c, _, _, err := l.ReadFrom(offset)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Data) == 0 {
			return b.String()
		}
		if c.Offset != offset {
			t.Fatalf("ReadFrom(%d) begins at %d", offset, c.Offset)
		}
		if c.Stream != stream {
			stream = c.Stream
			b.WriteString(map[int]string{1: "|1:", 2: "|2:"}[stream])
		}
		b.Write(c.Data)
		offset += uint64(len(c.Data))
	}
}

func TestLogKeepsOrderAndStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path)
	for _, p := range []struct {
		stream int
		text   string
	}{{1, "hello "}, {1, "world"}, {2, "oops"}, {1, "!"}} {
		if err := l.Append(p.stream, []byte(p.text)); err != nil {
			t.Fatal(err)
		}
	}
	const want = "|1:hello world|2:oops|1:!"
	if got := read(t, l, 0); got != want {
		t.Errorf("read = %q, want %q", got, want)
	}
	if got := read(t, l, 3); got != "|1:lo world|2:oops|1:!" {
		t.Errorf("read from 3 = %q", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, l, 0); got != want {
		t.Errorf("after closing = %q, want %q", got, want)
	}
	if err := l.Append(1, []byte("late")); err == nil {
		t.Error("a closed log takes more")
	}
	if got := read(t, open(t, path), 0); got != want {
		t.Errorf("after reopening = %q, want %q", got, want)
	}
}

func TestCutRecordKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path)
	if err := errors.Join(l.Append(1, []byte("kept")), l.Append(1, []byte("cut off")), l.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	l = open(t, path)
	if err := l.Append(2, []byte("more")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, l, 0); got != "|1:keptcut |2:more" {
		t.Errorf("read = %q", got)
	}
	if err := errors.Join(l.Close(), os.Truncate(path, info.Size()-3+3)); err != nil { // the second header, cut off
		t.Fatal(err)
	}
	if got := read(t, open(t, path), 0); got != "|1:keptcut " {
		t.Errorf("read = %q", got)
	}
}

// TestSmallPieces writes a log byte by byte, as a job may: in one stream, and in turns. It must cost little and read as
// it was written.
func TestSmallPieces(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stream func(i int) int
		most   int64 // bytes of file
	}{
		{"one stream", func(int) int { return 1 }, 51_000},
		{"in turns", func(i int) int { return 1 + i%2 }, 300_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			l := open(t, path)
			want := make([]byte, 50_000)
			for i := range want {
				want[i] = byte(i * 7)
				if err := l.Append(tt.stream(i), want[i:i+1]); err != nil {
					t.Fatal(err)
				}
			}
			if info, err := os.Stat(path); err != nil || info.Size() > tt.most {
				t.Errorf("the file has %v bytes, want at most %d", info, tt.most)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			for name, l := range map[string]*joblog.Log{"closed": l, "opened again": open(t, path)} {
				var got []byte
				for {
					c, _, _, err := l.ReadFrom(uint64(len(got)))
					if err != nil {
						t.Fatal(err)
					}
					if len(c.Data) == 0 {
						break
					}
					if c.Stream != tt.stream(len(got)) {
						t.Fatalf("%s: byte %d is of stream %d", name, len(got), c.Stream)
					}
					got = append(got, c.Data...)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes, not those that were written", name, len(got))
				}
			}
		})
	}
}

func TestAppendAt(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"))
	if err := errors.Join(l.AppendAt(1, 0, []byte("abc")), l.AppendAt(1, 0, []byte("abc")), l.AppendAt(1, 2, []byte("cde"))); err != nil {
		t.Fatal(err)
	}
	if got := read(t, l, 0); got != "|1:abcde" {
		t.Errorf("read = %q", got)
	}
	if err := l.AppendAt(1, 6, []byte("x")); !errors.Is(err, joblog.ErrGap) {
		t.Errorf("AppendAt beyond the end = %v, want ErrGap", err)
	}
}

func TestFollow(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"))
	_, changed, finished, err := l.ReadFrom(0)
	if err != nil || finished {
		t.Fatalf("ReadFrom = finished %v, %v", finished, err)
	}
	if err := l.Append(1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-changed // closed by the append
	if _, changed, _, err = l.ReadFrom(1); err != nil {
		t.Fatal(err)
	}
	l.Finish()
	<-changed
	if _, _, finished, _ = l.ReadFrom(1); !finished {
		t.Error("ReadFrom at the end of a finished log does not say so")
	}
}
