package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
)

// ErrNotRunning means that no peer answers on the socket.
var ErrNotRunning = errors.New("no daemon is running")

// healthWait bounds how long [Dial] waits for a peer that accepts but does not answer.
const healthWait = 5 * time.Second

// maxLine is the longest line of a stream: a job event carries a whole job.
const maxLine = 16 << 20

// Client talks to one peer. Use [Dial]. Its methods return errors as [*Error], or wrap [ErrNotRunning] when the peer is
// gone. None has a deadline of its own but the context's.
type Client struct {
	socket string
	http   *http.Client
}

// Dial returns a client for the peer on that socket, once it has answered. If none does, the error wraps
// [ErrNotRunning].
func Dial(socket string) (*Client, error) {
	c := NewClient(socket)
	ctx, cancel := context.WithTimeout(context.Background(), healthWait)
	defer cancel()
	if err := c.Healthy(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// NewClient returns a client without asking whether anyone answers.
func NewClient(socket string) *Client {
	var d net.Dialer
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
		DisableCompression: true,
	}}}
}

// Close drops the connections that wait for another request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Socket returns the path of the socket.
func (c *Client) Socket() string { return c.socket }

// Healthy returns nil if the peer answers.
func (c *Client) Healthy(ctx context.Context) error {
	_, err := call[Health](ctx, c, http.MethodGet, "/healthz", nil)
	return err
}

// Ready returns nil if the peer serves.
func (c *Client) Ready(ctx context.Context) error {
	_, err := call[Health](ctx, c, http.MethodGet, "/readyz", nil)
	return err
}

// Metrics returns the counters in Prometheus text.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.bytes(ctx, "/metrics") }

// OpenAPI returns the document of all routes.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) { return c.bytes(ctx, "/openapi.json") }

// Status returns the peer at a glance.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Refresh has others dial the peer again, at most once a minute, and returns it at a glance.
func (c *Client) Refresh(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/v1/status?refresh=true", nil)
}

// Devices returns the peer's devices.
func (c *Client) Devices(ctx context.Context) ([]DeviceView, error) {
	return call[[]DeviceView](ctx, c, http.MethodGet, "/v1/devices", nil)
}

// Asks calls found for each ask as it is found. A zero Limit is [DefaultAsks].
func (c *Client) Asks(ctx context.Context, f AskFilter, found func(AskView) error) error {
	q := url.Values{}
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	set("class", f.Class)
	set("model", f.Model)
	if f.Place != (market.Place{}) {
		set("place", f.Place.String())
	}
	if f.MaxPrice > 0 {
		set("max_price", f.MaxPrice.PerHour())
	}
	if f.Limit > 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	return stream(ctx, c, withQuery("/v1/asks", q), found)
}

// Submit runs a job and returns at once; with dryRun nobody wins its auction.
func (c *Client) Submit(ctx context.Context, spec market.Spec, dryRun bool) (renter.Job, error) {
	if spec.Tier == 0 {
		spec.Tier = market.Silver // the one value whose zero has no form in JSON; it is the default anyway
	}
	return call[renter.Job](ctx, c, http.MethodPost, "/v1/jobs", SubmitRequest{spec, dryRun})
}

// Jobs returns all jobs.
func (c *Client) Jobs(ctx context.Context) ([]renter.Job, error) {
	return call[[]renter.Job](ctx, c, http.MethodGet, "/v1/jobs", nil)
}

// Job returns one job, by id, beginning of an id, or name.
func (c *Client) Job(ctx context.Context, ref string) (renter.Job, error) {
	return call[renter.Job](ctx, c, http.MethodGet, under("/v1/jobs", ref, ""), nil)
}

// Stop asks a job to end.
func (c *Client) Stop(ctx context.Context, ref string) (renter.Job, error) {
	return call[renter.Job](ctx, c, http.MethodPost, under("/v1/jobs", ref, "/stop"), nil)
}

// Wait returns the job when it is over.
func (c *Client) Wait(ctx context.Context, ref string) (renter.Job, error) {
	return call[renter.Job](ctx, c, http.MethodGet, under("/v1/jobs", ref, "/wait"), nil)
}

// Fetch writes a job's outputs again, at the spec's places or below to, and returns the files.
func (c *Client) Fetch(ctx context.Context, ref, to string) ([]string, error) {
	f, err := call[Fetched](ctx, c, http.MethodPost, under("/v1/jobs", ref, "/fetch"), FetchRequest{to})
	return f.Files, err
}

// Events calls next for each event after number from; with follow until the job is over.
func (c *Client) Events(ctx context.Context, ref string, from uint64, follow bool, next func(renter.Event) error) error {
	q := url.Values{"from": {strconv.FormatUint(from, 10)}, "follow": {strconv.FormatBool(follow)}}
	return stream(ctx, c, withQuery(under("/v1/jobs", ref, "/events"), q), next)
}

// Log calls next for each piece of a job's output from offset on; with follow until the job is over.
func (c *Client) Log(ctx context.Context, ref string, offset uint64, follow bool, next func(joblog.Chunk) error) error {
	q := url.Values{"offset": {strconv.FormatUint(offset, 10)}, "follow": {strconv.FormatBool(follow)}}
	return stream(ctx, c, withQuery(under("/v1/jobs", ref, "/log"), q), next)
}

// Auctions returns the auctions of a job.
func (c *Client) Auctions(ctx context.Context, ref string) ([]AuctionView, error) {
	return call[[]AuctionView](ctx, c, http.MethodGet, under("/v1/jobs", ref, "/auctions"), nil)
}

// Leases returns the leases in which the peer has that role, "" for both.
func (c *Client) Leases(ctx context.Context, role string) ([]LeaseView, error) {
	q := url.Values{}
	if role != "" {
		q.Set("role", role)
	}
	return call[[]LeaseView](ctx, c, http.MethodGet, withQuery("/v1/leases", q), nil)
}

// Lease returns one lease, by the beginning of its id.
func (c *Client) Lease(ctx context.Context, ref string) (LeaseView, error) {
	return call[LeaseView](ctx, c, http.MethodGet, under("/v1/leases", ref, ""), nil)
}

// EndLease ends a lease.
func (c *Client) EndLease(ctx context.Context, ref, reason string) (LeaseView, error) {
	return call[LeaseView](ctx, c, http.MethodPost, under("/v1/leases", ref, "/end"), EndRequest{reason})
}

// Receipts returns the receipts of a lease.
func (c *Client) Receipts(ctx context.Context, lease string) ([]ReceiptView, error) {
	return call[[]ReceiptView](ctx, c, http.MethodGet, withQuery("/v1/receipts", url.Values{"lease": {lease}}), nil)
}

// ExportLease returns the receipt file of one lease.
func (c *Client) ExportLease(ctx context.Context, lease string) ([]byte, error) {
	return c.bytes(ctx, withQuery("/v1/receipts/export", url.Values{"lease": {lease}}))
}

// ExportJob returns the receipt file of all leases of a job.
func (c *Client) ExportJob(ctx context.Context, job string) ([]byte, error) {
	return c.bytes(ctx, withQuery("/v1/receipts/export", url.Values{"job": {job}}))
}

// Reputations returns the scores of all peers that this one has experience of.
func (c *Client) Reputations(ctx context.Context) ([]ReputationView, error) {
	return call[[]ReputationView](ctx, c, http.MethodGet, "/v1/reputation", nil)
}

// Reputation returns one peer's score.
func (c *Client) Reputation(ctx context.Context, peer attest.Key) (ReputationView, error) {
	return call[ReputationView](ctx, c, http.MethodGet, under("/v1/reputation", peer.String(), ""), nil)
}

// Join connects the peer to a network through invites or addresses.
func (c *Client) Join(ctx context.Context, targets []string) (Joined, error) {
	return call[Joined](ctx, c, http.MethodPost, "/v1/join", JoinRequest{targets})
}

// Invite returns one line that another machine can paste. For a private network it holds the key.
func (c *Client) Invite(ctx context.Context) (string, error) {
	i, err := call[InviteAnswer](ctx, c, http.MethodGet, "/v1/invite", nil)
	return i.Invite, err
}

// InviteWithoutKey is [Client.Invite] without the key of a private network, which then comes another way.
func (c *Client) InviteWithoutKey(ctx context.Context) (string, error) {
	i, err := call[InviteAnswer](ctx, c, http.MethodGet, "/v1/invite?without_key=true", nil)
	return i.Invite, err
}

// Config returns every setting in force.
func (c *Client) Config(ctx context.Context) ([]config.Entry, error) {
	return call[[]config.Entry](ctx, c, http.MethodGet, "/v1/config", nil)
}

// Down stops the peer, with drain after its leases have ended. It returns when that has begun.
func (c *Client) Down(ctx context.Context, drain bool) error {
	_, err := call[Health](ctx, c, http.MethodPost, "/v1/down", DownRequest{drain})
	return err
}

func under(base, ref, rest string) string { return base + "/" + url.PathEscape(ref) + rest }

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// do sends a request and returns the answer if it is no error.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lacuna"+path, r)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.gone(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	var e errorBody
	if err != nil || json.Unmarshal(b, &e) != nil || e.Error == nil {
		return nil, &Error{Code: "failed", Message: "the daemon answers with status " + resp.Status, Status: resp.StatusCode}
	}
	e.Error.Status = resp.StatusCode
	return nil, e.Error
}

// gone tells a peer that is not there from a request that was given up.
func (c *Client) gone(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("connect to the daemon: socket %s belongs to another user: %w", c.socket, err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w: nobody answers on %s", ErrNotRunning, c.socket)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: it stopped while it was asked (%s)", ErrNotRunning, c.socket)
	}
	return fmt.Errorf("ask the daemon: %w", err)
}

func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var v T
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || ctx.Err() != nil {
			return v, c.gone(ctx, err)
		}
		return v, fmt.Errorf("read answer: %w", err)
	}
	return v, nil
}

func (c *Client) bytes(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.gone(ctx, err)
	}
	return b, nil
}

// stream calls next for each line until the peer ends the answer. An error of next ends it too and is returned.
func stream[T any](ctx context.Context, c *Client, path string, next func(T) error) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		b := lines.Bytes()
		if bytes.HasPrefix(b, []byte(`{"error":`)) {
			var e errorBody
			if json.Unmarshal(b, &e) == nil && e.Error != nil {
				return e.Error
			}
		}
		var v T
		if err := json.Unmarshal(b, &v); err != nil {
			if lines.Err() == nil && !lines.Scan() && lines.Err() != nil {
				return c.gone(ctx, lines.Err()) // the line was cut off
			}
			return fmt.Errorf("read line: %w", err)
		}
		if err := next(v); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return c.gone(ctx, err)
	}
	return nil
}
