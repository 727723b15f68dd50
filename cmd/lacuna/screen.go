package main

import (
	"fmt"
	"io"
	"sync"
)

// screen shares the terminal between the job's output, lines about its course, and one progress line below them. It
// is safe for concurrent use.
type screen struct {
	stdout, stderr io.Writer
	live           bool // stderr is a terminal that shows a progress line
	quiet          bool // no lines about the course
	paint          func(code, s string) string

	mu       sync.Mutex
	progress string
	shown    bool
	midLine  bool // the job's last output did not end its line
}

// line prints a line about the job's course.
func (s *screen) line(format string, args ...any) {
	if s.quiet {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	if s.live && s.midLine {
		fmt.Fprintln(s.stderr)
		s.midLine = false
	}
	fmt.Fprintf(s.stderr, format+"\n", args...)
	s.draw()
}

// write passes on output of the job: 1 is its stdout, 2 its stderr.
func (s *screen) write(stream int, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	w := s.stdout
	if stream == 2 {
		w = s.stderr
	}
	_, err := w.Write(b)
	s.midLine = b[len(b)-1] != '\n'
	s.draw()
	return err
}

// status replaces the progress line; "" removes it.
func (s *screen) status(text string) {
	if !s.live || s.quiet {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.progress = text
	s.draw()
}

func (s *screen) clear() {
	if s.shown {
		fmt.Fprint(s.stderr, "\r\x1b[K")
		s.shown = false
	}
}

// draw shows the progress line, but never behind an unfinished line of the job, which it would overwrite.
func (s *screen) draw() {
	if s.progress != "" && !s.midLine {
		fmt.Fprint(s.stderr, s.paint(dim, s.progress))
		s.shown = true
	}
}
