package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Error is what went wrong with a request, as it is sent.
type Error struct {
	Code    string         `json:"code"`              // lower_snake, stable
	Message string         `json:"message"`           // what was tried and what went wrong
	Hint    string         `json:"hint,omitempty"`    // what to do next
	Details map[string]any `json:"details,omitempty"` // for programs
	Status  int            `json:"-"`                 // of HTTP; 0 = the error came in the middle of a stream
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Code gives an error of the backend its status and word.
type Code struct {
	Err    error // matched with errors.Is
	Status int   // of HTTP, 400 to 599
	Code   string
	Hint   string
}

// What a [Backend] may return besides errors of its own, wrapped. Any other error is status 500, code "failed".
var (
	ErrNotFound     = errors.New("not found")                          // 404 not_found
	ErrAmbiguous    = errors.New("more than one fits")                 // 409 ambiguous
	ErrUsage        = errors.New("not valid")                          // 400 usage
	ErrConflict     = errors.New("not possible now")                   // 409 conflict
	ErrNotAvailable = errors.New("this peer does not do that")         // 501 not_available
	ErrNotReady     = errors.New("the peer is still starting")         // 503 not_ready
	errNoRoute      = errors.New("there is no such route")             // 404 no_route
	errMethod       = errors.New("the route has no such method")       // 405 method
	errTooLarge     = errors.New("the request is larger than allowed") // 413 too_large
)

// codes are the package's own.
var codes = []Code{
	{ErrNotFound, http.StatusNotFound, "not_found", ""},
	{ErrAmbiguous, http.StatusConflict, "ambiguous", "give more of the id"},
	{ErrUsage, http.StatusBadRequest, "usage", ""},
	{ErrConflict, http.StatusConflict, "conflict", ""},
	{ErrNotAvailable, http.StatusNotImplemented, "not_available", ""},
	{ErrNotReady, http.StatusServiceUnavailable, "not_ready", "try again in a moment"},
	{errNoRoute, http.StatusNotFound, "no_route", "see /openapi.json"},
	{errMethod, http.StatusMethodNotAllowed, "method", "see /openapi.json"},
	{errTooLarge, http.StatusRequestEntityTooLarge, "too_large", ""},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout", ""},
	{context.Canceled, http.StatusServiceUnavailable, "stopping", "the peer is going down"},
}

// toError returns how err is sent.
func (s *Server) toError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		out := *e
		if out.Status < 400 || out.Status > 599 {
			out.Status = http.StatusInternalServerError
		}
		return &out
	}
	for _, list := range [][]Code{s.o.Codes, codes} {
		for _, c := range list {
			if errors.Is(err, c.Err) {
				return &Error{Code: c.Code, Message: err.Error(), Hint: c.Hint, Status: c.Status}
			}
		}
	}
	return &Error{Code: "failed", Message: err.Error(), Status: http.StatusInternalServerError}
}

type errorBody struct {
	Error *Error `json:"error"`
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		s.o.Logger.Debug("request ended early", "path", r.URL.Path)
	}
	e := s.toError(err)
	if e.Status == http.StatusInternalServerError {
		s.o.Logger.Warn("request failed", "path", r.URL.Path, "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(errorBody{e}) // the client is gone if this fails
}

// usage returns an error for a request that is not well formed.
func usage(format string, args ...any) error {
	return fmt.Errorf("request is %w: %s", ErrUsage, fmt.Sprintf(format, args...))
}
