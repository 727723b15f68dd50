package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// mux returns the handler of the table. What is not in it gets an error of the same form.
func (s *Server) mux() http.Handler {
	mux := http.NewServeMux()
	methods := []string{}
	for _, rt := range s.routes {
		if !slices.Contains(methods, rt.method) {
			methods = append(methods, rt.method)
		}
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			if err := rt.checkQuery(r.URL); err != nil {
				s.fail(w, r, err)
				return
			}
			if err := rt.serve(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	const rest = "/"
	mux.HandleFunc(rest, func(w http.ResponseWriter, r *http.Request) {
		for _, m := range methods {
			other := r.Clone(r.Context())
			other.Method = m
			if _, pattern := mux.Handler(other); pattern != rest {
				w.Header().Add("Allow", m)
			}
		}
		if len(w.Header().Values("Allow")) > 0 {
			s.fail(w, r, fmt.Errorf("%w: %s %s", errMethod, r.Method, r.URL.Path))
			return
		}
		s.fail(w, r, fmt.Errorf("%w: %s", errNoRoute, r.URL.Path))
	})
	return mux
}

// checkQuery refuses parameters that the route does not have, since a misspelt filter that filters nothing misleads.
func (rt route) checkQuery(u *url.URL) error {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return usage("the query does not parse")
	}
	for name, v := range values {
		if !slices.Contains(rt.query, name) {
			return usage("unknown parameter %q", name)
		}
		if len(v) > 1 {
			return usage("parameter %q stands there twice", name)
		}
	}
	return nil
}

// list makes a nil list an empty one, as JSON shows it.
func list[T any](l []T, err error) (any, error) {
	if l == nil {
		l = []T{}
	}
	return l, err
}

// json answers with one document. Without a backend it answers that.
func (s *Server) json(f func(*http.Request) (any, error), there bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !there {
			return ErrNotAvailable
		}
		if err := takeBody(w, r); err != nil {
			return err
		}
		v, err := f(r)
		if err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n')) // the client is gone if this fails
		return nil
	}
}

// lines answers with a document per line and flushes each.
func lines[T any](s *Server, f func(r *http.Request, next func(T) error) error, there bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !there {
			return ErrNotAvailable
		}
		begun := false
		out := http.NewResponseController(w)
		line := func(v any) error {
			b, err := json.Marshal(v)
			if err != nil {
				return fmt.Errorf("encode line: %w", err)
			}
			if !begun {
				w.Header().Set("Content-Type", "application/x-ndjson")
				begun = true
			}
			if _, err := w.Write(append(b, '\n')); err != nil {
				return fmt.Errorf("send line: %w", err)
			}
			return out.Flush()
		}
		err := f(r, func(v T) error { return line(v) })
		if err != nil && begun {
			_ = line(errorBody{s.toError(err)}) // the client is gone if this fails
			return nil
		}
		if err == nil && !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		return err
	}
}

// takeBody reads the body into memory, within [maxBody] and [bodyWait].
func takeBody(w http.ResponseWriter, r *http.Request) error {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyWait))       // not every listener has deadlines
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }() // or a long answer would end when it passes
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return usage("the body cannot be read: %v", err)
	}
	if len(b) > maxBody {
		return fmt.Errorf("%w: at most %d bytes", errTooLarge, maxBody)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// read decodes the body strictly. An empty one is a zero value.
func read[T any](r *http.Request) (T, error) {
	var v T
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); errors.Is(err, io.EOF) {
		return v, nil
	} else if err != nil {
		return v, usage("%v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, usage("more than one document")
	}
	return v, nil
}

func number(r *http.Request, name string, def, most uint64) (uint64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		return 0, usage("%s=%.40q: want a whole number of at most %d", name, s, most)
	}
	return n, nil
}

func flag(r *http.Request, name string) (bool, error) {
	switch s := r.URL.Query().Get(name); s {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, usage("%s=%.40q: want true or false", name, s)
	}
}
