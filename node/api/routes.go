package api

import (
	"net/http"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
)

// form is how a route answers.
type form int

const (
	formJSON  form = iota + 1 // one document
	formLines                 // one document per line, as they come
	formText                  // plain text
	formBytes                 // a file
)

// route is one thing a client can ask for.
type route struct {
	method, path string // {ref} and {peer} stand for one segment
	id           string // operationId
	summary      string
	query        []string // names of parameters, all optional
	body         any      // a zero value of what is sent, nil = nothing
	result       any      // a zero value of what is answered; of one line for formLines
	form         form
	serve        func(w http.ResponseWriter, r *http.Request) error
}

// Bodies of requests and small answers.
type (
	// SubmitRequest asks for a job, or with DryRun who would take it.
	SubmitRequest struct {
		Spec   market.Spec `json:"spec"`
		DryRun bool        `json:"dry_run,omitempty"`
	}
	// FetchRequest asks for the outputs again: at the spec's places, or below To.
	FetchRequest struct {
		To string `json:"to"`
	}
	// Fetched are the files that were written.
	Fetched struct {
		Files []string `json:"files"`
	}
	// EndRequest ends a lease; the reason is shown to the other side.
	EndRequest struct {
		Reason string `json:"reason"`
	}
	// JoinRequest names invites, or multiaddrs with /p2p/PEER.
	JoinRequest struct {
		Targets []string `json:"targets"`
	}
	// InviteAnswer is one line that another machine can paste.
	InviteAnswer struct {
		Invite string `json:"invite"`
	}
	// DownRequest stops the peer, with Drain after its leases have ended.
	DownRequest struct {
		Drain bool `json:"drain"`
	}
	// Health says that the peer answers, and, at /readyz, that it serves.
	Health struct {
		Status string `json:"status"` // "ok", "ready" or "stopping"
	}
)

func (s *Server) status(r *http.Request) (any, error) {
	if s.o.Backend.Refresh != nil && r.URL.Query().Get("refresh") == "true" {
		s.o.Backend.Refresh(r.Context())
	}
	return s.o.Backend.Status(r.Context())
}

// table returns the routes.
func (s *Server) table() []route {
	b := &s.o.Backend
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{get, "/healthz", "health", "The peer answers.", nil, nil, Health{}, formJSON,
			s.json(func(*http.Request) (any, error) { return Health{"ok"}, nil }, true)},
		{get, "/readyz", "ready", "The peer serves, or why not yet.", nil, nil, Health{}, formJSON, s.json(s.ready, true)},
		{get, "/metrics", "metrics", "Counters in Prometheus text.", nil, nil, "", formText, s.metrics},
		{get, "/openapi.json", "openapi", "This document.", nil, nil, map[string]any{}, formJSON, s.serveOpenAPI},

		{get, "/v1/status", "status", "The peer at a glance; with refresh=true, after others have dialled it again.", []string{"refresh"}, nil, Status{}, formJSON,
			s.json(s.status, b.Status != nil)},
		{get, "/v1/devices", "devices", "Devices and what each does.", nil, nil, []DeviceView{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return list(b.Devices(r.Context())) }, b.Devices != nil)},
		{get, "/v1/asks", "asks", "What is for sale, as it is found.", []string{"class", "model", "place", "limit", "max_price"}, nil, AskView{}, formLines,
			lines(s, s.asks, b.Asks != nil)},

		{post, "/v1/jobs", "submit", "Runs a job; returns at once.", nil, SubmitRequest{}, renter.Job{}, formJSON, s.json(s.submit, b.Submit != nil)},
		{get, "/v1/jobs", "jobs", "All jobs.", nil, nil, []renter.Job{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return list(b.Jobs(r.Context())) }, b.Jobs != nil)},
		{get, "/v1/jobs/{ref}", "job", "One job, by id, beginning of an id, or name.", nil, nil, renter.Job{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return b.Job(r.Context(), r.PathValue("ref")) }, b.Job != nil)},
		{post, "/v1/jobs/{ref}/stop", "stop", "Asks a job to end.", nil, nil, renter.Job{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return b.Stop(r.Context(), r.PathValue("ref")) }, b.Stop != nil)},
		{post, "/v1/jobs/{ref}/fetch", "fetch", "Writes the outputs again.", nil, FetchRequest{}, Fetched{}, formJSON, s.json(s.fetch, b.Fetch != nil)},
		{get, "/v1/jobs/{ref}/wait", "wait", "The job, when it is over.", nil, nil, renter.Job{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return b.Wait(r.Context(), r.PathValue("ref")) }, b.Wait != nil)},
		{get, "/v1/jobs/{ref}/events", "events", "What happened to a job.", []string{"from", "follow"}, nil, renter.Event{}, formLines,
			lines(s, s.events, b.Events != nil)},
		{get, "/v1/jobs/{ref}/log", "log", "What a job printed.", []string{"offset", "follow"}, nil, joblog.Chunk{}, formLines,
			lines(s, s.log, b.Log != nil)},
		{get, "/v1/jobs/{ref}/auctions", "auctions", "The auctions of a job, each computed again.", nil, nil, []AuctionView{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return list(b.Auctions(r.Context(), r.PathValue("ref"))) }, b.Auctions != nil)},

		{get, "/v1/leases", "leases", "Leases of this peer.", []string{"role"}, nil, []LeaseView{}, formJSON, s.json(s.leases, b.Leases != nil)},
		{get, "/v1/leases/{ref}", "lease", "One lease, by the beginning of its id.", nil, nil, LeaseView{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return b.Lease(r.Context(), r.PathValue("ref")) }, b.Lease != nil)},
		{post, "/v1/leases/{ref}/end", "end_lease", "Ends a lease.", nil, EndRequest{}, LeaseView{}, formJSON, s.json(s.endLease, b.EndLease != nil)},

		{get, "/v1/receipts", "receipts", "The receipts of a lease.", []string{"lease"}, nil, []ReceiptView{}, formJSON, s.json(s.receipts, b.Receipts != nil)},
		{get, "/v1/receipts/export", "export", "A receipt file of a lease or a job.", []string{"lease", "job"}, nil, []byte{}, formBytes, s.export},

		{get, "/v1/reputation", "reputations", "Every peer that this one has experience of.", nil, nil, []ReputationView{}, formJSON,
			s.json(func(r *http.Request) (any, error) { return list(b.Reputations(r.Context())) }, b.Reputations != nil)},
		{get, "/v1/reputation/{peer}", "reputation", "A peer's score and every term behind it.", nil, nil, ReputationView{}, formJSON, s.json(s.reputation, b.Reputation != nil)},

		{post, "/v1/join", "join", "Connects to a network.", nil, JoinRequest{}, Joined{}, formJSON, s.json(s.join, b.Join != nil)},
		{get, "/v1/invite", "invite", "An invite to the network.", []string{"without_key"}, nil, InviteAnswer{}, formJSON, s.json(s.invite, b.Invite != nil)},
		{get, "/v1/config", "config", "Every setting in force, and where it comes from.", nil, nil, []config.Entry{}, formJSON,
			s.json(func(*http.Request) (any, error) { return list(b.Config(), nil) }, b.Config != nil)},
		{post, "/v1/down", "down", "Stops the peer.", nil, DownRequest{}, Health{}, formJSON, s.json(s.down, b.Down != nil)},
	}
}
