package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
)

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	if s.o.Gatherer == nil {
		return ErrNotAvailable
	}
	promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (s *Server) serveOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.openapi) // the client is gone if this fails
	return nil
}

func (s *Server) ready(*http.Request) (any, error) {
	if s.o.Backend.Ready != nil {
		if err := s.o.Backend.Ready(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
		}
	}
	return Health{"ready"}, nil
}

func (s *Server) reputation(r *http.Request) (any, error) {
	peer, err := attest.ParseKey(r.PathValue("peer"))
	if err != nil {
		return nil, usage("%v", err)
	}
	return s.o.Backend.Reputation(r.Context(), peer)
}

// AskFilter narrows what is looked for. Zero values do not.
type AskFilter struct {
	Class    string
	Model    string
	Place    market.Place
	MaxPrice market.MicroUSD // per device and hour
	Limit    int             // 1 to MaxAsks
}

// MaxAsks is the most asks that one request returns, and DefaultAsks how many come without a limit.
const (
	MaxAsks     = 1000
	DefaultAsks = 100
)

func (s *Server) asks(r *http.Request, next func(AskView) error) error {
	q := r.URL.Query()
	f := AskFilter{Class: q.Get("class"), Model: q.Get("model")}
	limit, err := number(r, "limit", DefaultAsks, MaxAsks)
	if err != nil {
		return err
	}
	if f.Limit = int(limit); f.Limit == 0 {
		return usage("limit=0: want 1 to %d", MaxAsks)
	}
	if p := q.Get("place"); p != "" {
		if f.Place, err = market.ParsePlace(p); err != nil {
			return usage("%v", err)
		}
	}
	if p := q.Get("max_price"); p != "" {
		if f.MaxPrice, err = market.ParsePrice(p); err != nil {
			return usage("max_price: %v", err)
		}
	}
	return s.o.Backend.Asks(r.Context(), f, next)
}

func (s *Server) submit(r *http.Request) (any, error) {
	req, err := read[SubmitRequest](r)
	if err != nil {
		return nil, err
	}
	return s.o.Backend.Submit(r.Context(), req.Spec, req.DryRun)
}

func (s *Server) fetch(r *http.Request) (any, error) {
	req, err := read[FetchRequest](r)
	if err != nil {
		return nil, err
	}
	files, err := s.o.Backend.Fetch(r.Context(), r.PathValue("ref"), req.To)
	if files == nil {
		files = []string{}
	}
	return Fetched{files}, err
}

func (s *Server) events(r *http.Request, next func(renter.Event) error) error {
	from, err := number(r, "from", 0, 1<<62)
	if err != nil {
		return err
	}
	follow, err := flag(r, "follow")
	if err != nil {
		return err
	}
	return s.o.Backend.Events(r.Context(), r.PathValue("ref"), from, follow, next)
}

func (s *Server) log(r *http.Request, next func(joblog.Chunk) error) error {
	offset, err := number(r, "offset", 0, 1<<62)
	if err != nil {
		return err
	}
	follow, err := flag(r, "follow")
	if err != nil {
		return err
	}
	return s.o.Backend.Log(r.Context(), r.PathValue("ref"), offset, follow, next)
}

func (s *Server) leases(r *http.Request) (any, error) {
	role := r.URL.Query().Get("role")
	if role != "" && role != "renter" && role != "provider" {
		return nil, usage("role=%.40q: want renter or provider", role)
	}
	return list(s.o.Backend.Leases(r.Context(), role))
}

func (s *Server) endLease(r *http.Request) (any, error) {
	req, err := read[EndRequest](r)
	if err != nil {
		return nil, err
	}
	if len(req.Reason) > 64 {
		return nil, usage("reason: at most 64 characters")
	}
	return s.o.Backend.EndLease(r.Context(), r.PathValue("ref"), req.Reason)
}

func (s *Server) receipts(r *http.Request) (any, error) {
	lease := r.URL.Query().Get("lease")
	if lease == "" {
		return nil, usage("lease: want the beginning of a lease's id")
	}
	return list(s.o.Backend.Receipts(r.Context(), lease))
}

func (s *Server) export(w http.ResponseWriter, r *http.Request) error {
	lease, job := r.URL.Query().Get("lease"), r.URL.Query().Get("job")
	switch {
	case s.o.Backend.Export == nil:
		return ErrNotAvailable
	case (lease == "") == (job == ""):
		return usage("want either lease or job")
	}
	b, err := s.o.Backend.Export(r.Context(), lease, job)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b) // the client is gone if this fails
	return nil
}

func (s *Server) join(r *http.Request) (any, error) {
	req, err := read[JoinRequest](r)
	if err != nil {
		return nil, err
	}
	targets := []string{}
	for _, t := range req.Targets {
		if t = strings.TrimSpace(t); t != "" {
			targets = append(targets, t)
		}
	}
	if len(targets) == 0 {
		return nil, usage("targets: want an invite, or an address that ends in /p2p/PEER")
	}
	j, err := s.o.Backend.Join(r.Context(), targets)
	if j.Joined == nil {
		j.Joined = []JoinedPeer{}
	}
	return j, err
}

func (s *Server) invite(r *http.Request) (any, error) {
	without, err := flag(r, "without_key")
	if err != nil {
		return nil, err
	}
	line, err := s.o.Backend.Invite(r.Context(), without)
	return InviteAnswer{line}, err
}

func (s *Server) down(r *http.Request) (any, error) {
	req, err := read[DownRequest](r)
	if err != nil {
		return nil, err
	}
	return Health{"stopping"}, s.o.Backend.Down(r.Context(), req.Drain)
}
