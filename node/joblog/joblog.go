// Package joblog keeps the output of one job in a file: stdout and stderr interleaved as they came, each byte with one
// offset in the combined log, so that a stream that broke can go on where it stopped.
//
// The provider appends what the job prints, the renter what the provider sends; both read from any offset and wait for
// more. A file is a sequence of records: stream (1 byte: 1 stdout, 2 stderr), length (4 bytes, big endian), data. The
// last record grows while the same stream goes on, its length first; of one that a crash cut off, opening keeps what is
// there. Memory holds a mark for each 64 KiB of file, however small the pieces are that a job writes.
//
// A [Log] is safe for concurrent use.
//
// History: 2026-11-30 version 1.
package joblog

import (
	"cmp"
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

// record is a piece of one stream.
type record struct {
	stream byte
	n      int
}

// mark is where a record begins.
type mark struct {
	offset uint64 // of its first byte in the combined log
	pos    int64  // of its header in the file
}

// markEvery is the distance between marks in the file, in bytes.
const markEvery = 64 << 10

// Log is the output of one job. Use [Open].
type Log struct {
	path    string
	mu      sync.Mutex
	f       *os.File // nil after Close
	marks   []mark
	seen    mark   // the record that was read last
	last    record // the last record, which may grow
	lastAt  mark
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
		r := record{h[0], int(binary.BigEndian.Uint32(h[1:]))}
		n := min(int64(r.n), info.Size()-l.pos-header)
		if (r.stream != 1 && r.stream != 2) || n == 0 {
			break // cut off by a crash
		}
		if n < int64(r.n) {
			r.n = int(n)
			if err := l.writeHeader(r, l.pos); err != nil {
				return err
			}
		}
		l.add(r)
	}
	return l.f.Truncate(l.pos)
}

func (l *Log) writeHeader(r record, pos int64) error {
	h := [header]byte{r.stream}
	binary.BigEndian.PutUint32(h[1:], uint32(r.n))
	_, err := l.f.WriteAt(h[:], pos)
	return err
}

// add books a record that lies at the end of the file.
func (l *Log) add(r record) {
	l.last, l.lastAt = r, mark{l.size, l.pos}
	if len(l.marks) == 0 || l.pos-l.marks[len(l.marks)-1].pos >= markEvery {
		l.marks = append(l.marks, l.lastAt)
	}
	l.size += uint64(r.n)
	l.pos += header + int64(r.n)
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
		var err error
		n := min(len(data), MaxData)
		if l.last.stream == byte(stream) && l.last.n < MaxData {
			n = min(len(data), MaxData-l.last.n)
			err = l.grow(data[:n])
		} else {
			err = l.begin(record{byte(stream), n}, data[:n])
		}
		if err != nil {
			return fmt.Errorf("append to job log: %w", err)
		}
		data = data[n:]
	}
	l.wake()
	return nil
}

// begin writes a new record.
func (l *Log) begin(r record, data []byte) error {
	b := make([]byte, header, header+len(data))
	b[0] = r.stream
	binary.BigEndian.PutUint32(b[1:], uint32(r.n))
	if _, err := l.f.WriteAt(append(b, data...), l.pos); err != nil {
		return err
	}
	l.add(r)
	return nil
}

// grow adds to the last record.
func (l *Log) grow(data []byte) error {
	longer := record{l.last.stream, l.last.n + len(data)}
	if err := l.writeHeader(longer, l.lastAt.pos); err != nil {
		return err
	}
	if _, err := l.f.WriteAt(data, l.pos); err != nil {
		return errors.Join(err, l.writeHeader(l.last, l.lastAt.pos)) // as on a full disk: what was said before stays true
	}
	l.last = longer
	l.size += uint64(len(data))
	l.pos += int64(len(data))
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
	f := l.f
	if f == nil { // a closed log opens its file for the time of the call
		if f, err = os.Open(l.path); err != nil {
			return Chunk{}, nil, false, fmt.Errorf("read job log: %w", err)
		}
		defer f.Close()
	}
	r, at, err := l.find(f, offset)
	if err == nil {
		skip := int(offset - at.offset)
		c = Chunk{Stream: int(r.stream), Offset: offset, Data: make([]byte, r.n-skip)}
		_, err = f.ReadAt(c.Data, at.pos+header+int64(skip))
	}
	if err != nil {
		return Chunk{}, nil, false, fmt.Errorf("read job log: %w", err)
	}
	return c, l.changed, false, nil
}

// find returns the record that holds the byte at offset, which is in the log.
func (l *Log) find(f *os.File, offset uint64) (record, mark, error) {
	at := l.marks[sort.Search(len(l.marks), func(i int) bool { return l.marks[i].offset > offset })-1]
	if l.seen.offset <= offset && l.seen.pos > at.pos {
		at = l.seen // readers go on where they were
	}
	var buf [4 << 10]byte
	from, have := at.pos, 0
	for {
		if at.pos+header > from+int64(have) {
			n, err := f.ReadAt(buf[:], at.pos)
			if n < header {
				return record{}, at, cmp.Or(err, io.ErrUnexpectedEOF)
			}
			from, have = at.pos, n
		}
		h := buf[at.pos-from:]
		r := record{h[0], int(binary.BigEndian.Uint32(h[1:]))}
		if offset < at.offset+uint64(r.n) {
			l.seen = at
			return r, at, nil
		}
		if r.n == 0 {
			return record{}, at, errors.New("a record of no bytes")
		}
		at.offset += uint64(r.n)
		at.pos += header + int64(r.n)
	}
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
