// Package joblog keeps the output of one job in a file: stdout and stderr interleaved as they came, each byte with one
// offset in the combined log, so that a stream that broke can go on where it stopped.
//
// The provider appends what the job prints, the renter what the provider sends; both read from any offset and wait for
// more. A file is a sequence of records: stream (1 byte: 1 stdout, 2 stderr), length (4 bytes, big endian), data. A
// record that a crash cut off is dropped on opening.
//
// A [Log] is safe for concurrent use.
//
// History: 2026-11-30 version 1.
package joblog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
)

// MaxData is the largest piece that [Log.ReadFrom] returns, in bytes.
const MaxData = 16 << 10

const header = 5

// ErrGap means that data was to be appended beyond the end of the log.
var ErrGap = errors.New("log has a gap")

// Chunk is a piece of the log.
type Chunk struct {
	Stream int    `json:"stream"` // 1 stdout, 2 stderr
	Offset uint64 `json:"offset"` // of the first byte in the combined log
	Data   []byte `json:"data"`   // base64 in JSON
}

type record struct {
	stream byte
	offset uint64 // in the combined log
	pos    int64  // of the data in the file
	n      int
}

// Log is the output of one job. Use [Open].
type Log struct {
	path    string
	mu      sync.Mutex
	f       *os.File // nil after Close
	records []record
	size    uint64 // combined length of the data
	pos     int64  // end of the file
	changed chan struct{}
	closed  bool // nothing more will be appended
}

// Open opens or creates the log at path.
func Open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open job log: %w", err)
	}
	l := &Log{path: path, f: f, changed: make(chan struct{})}
	if err := l.load(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read job log %s: %w", path, err)
	}
	return l, nil
}

func (l *Log) load() error {
	info, err := l.f.Stat()
	if err != nil {
		return err
	}
	var h [header]byte
	for {
		if _, err := l.f.ReadAt(h[:], l.pos); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return err
		}
		n := int64(binary.BigEndian.Uint32(h[1:]))
		if (h[0] != 1 && h[0] != 2) || n == 0 || l.pos+header+n > info.Size() {
			break // cut off by a crash
		}
		l.add(h[0], int(n))
	}
	return l.f.Truncate(l.pos)
}

// add books a record that lies at the end of the file.
func (l *Log) add(stream byte, n int) {
	l.records = append(l.records, record{stream, l.size, l.pos + header, n})
	l.size += uint64(n)
	l.pos += header + int64(n)
}

// Append adds data of a stream (1 or 2) to the end.
func (l *Log) Append(stream int, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.append(stream, data)
}

// AppendAt adds data whose first byte has that offset. What is known already is skipped, so that a repeated piece
// changes nothing; beyond the end it returns [ErrGap].
func (l *Log) AppendAt(stream int, offset uint64, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset > l.size {
		return fmt.Errorf("%w: %d bytes known, data at %d", ErrGap, l.size, offset)
	}
	known := l.size - offset
	if known >= uint64(len(data)) {
		return nil
	}
	return l.append(stream, data[known:])
}

func (l *Log) append(stream int, data []byte) error {
	if l.f == nil {
		return errors.New("append to job log: it is closed")
	}
	if stream != 1 && stream != 2 {
		return fmt.Errorf("append to job log: stream %d, want 1 or 2", stream)
	}
	for len(data) > 0 {
		n := min(len(data), MaxData)
		b := make([]byte, header, header+n)
		b[0] = byte(stream)
		binary.BigEndian.PutUint32(b[1:], uint32(n))
		if _, err := l.f.WriteAt(append(b, data[:n]...), l.pos); err != nil {
			return fmt.Errorf("append to job log: %w", err)
		}
		l.add(byte(stream), n)
		data = data[n:]
	}
	l.wake()
	return nil
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Size returns how many bytes of output there are.
func (l *Log) Size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Finish says that nothing more will be appended; readers that follow come to an end.
func (l *Log) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.wake()
	}
}

// ReadFrom returns the piece that begins at offset, at most [MaxData] bytes of one stream, or an empty chunk at the
// end of the log. Then changed is closed when there is more to read, and finished says that there never will be.
func (l *Log) ReadFrom(offset uint64) (c Chunk, changed <-chan struct{}, finished bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset >= l.size {
		return Chunk{Offset: l.size}, l.changed, l.closed, nil
	}
	i := sort.Search(len(l.records), func(i int) bool { return l.records[i].offset > offset }) - 1
	r := l.records[i]
	skip := int(offset - r.offset)
	c = Chunk{Stream: int(r.stream), Offset: offset, Data: make([]byte, r.n-skip)}
	if err := l.read(c.Data, r.pos+int64(skip)); err != nil {
		return Chunk{}, nil, false, fmt.Errorf("read job log: %w", err)
	}
	return c, l.changed, false, nil
}

// read reads from the file, which a closed log opens for the time of the call.
func (l *Log) read(b []byte, pos int64) error {
	f := l.f
	if f == nil {
		var err error
		if f, err = os.Open(l.path); err != nil {
			return err
		}
		defer f.Close()
	}
	_, err := f.ReadAt(b, pos)
	return err
}

// Close says that nothing more will be appended and gives back the file; what is there can still be read. A second call
// does nothing.
func (l *Log) Close() error {
	l.Finish()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	return f.Close()
}
