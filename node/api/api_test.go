package api_test

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
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/renter"
)

var errOwn = errors.New("the dog ate it")

// fake returns a backend that answers every route and says through got what it was called with.
func fake(got func(string)) api.Backend {
	job := func(ref string) renter.Job {
		return renter.Job{ID: "0123456789ab", Name: ref, State: renter.JobRunning, Spec: market.Spec{Module: "m", Tier: market.Silver}}
	}
	say := func(format string, args ...any) { got(fmt.Sprintf(format, args...)) }
	return api.Backend{
		Status: func(context.Context) (api.Status, error) {
			return api.Status{Peer: attest.Key{7}, Network: "test-a", PID: 42, Addrs: []string{}, Peers: []api.PeerView{}, Drops: map[string]uint64{}}, nil
		},
		Down:    func(_ context.Context, drain bool) error { say("down %v", drain); return nil },
		Devices: func(context.Context) ([]api.DeviceView, error) { return nil, nil },
		Asks: func(_ context.Context, f api.AskFilter, found func(api.AskView) error) error {
			say("asks %+v", f)
			for i := range 3 {
				if err := found(api.AskView{Peer: attest.Key{byte(i + 1)}}); err != nil {
					return err
				}
			}
			return nil
		},
		Submit: func(_ context.Context, s market.Spec, dry bool) (renter.Job, error) {
			say("submit %s %v %v", s.Module, s.Tier, dry)
			if s.Module == "" {
				return renter.Job{}, errOwn
			}
			return job("new"), nil
		},
		Jobs: func(context.Context) ([]renter.Job, error) { return []renter.Job{job("a")}, nil },
		Job: func(_ context.Context, ref string) (renter.Job, error) {
			switch ref {
			case "none":
				return renter.Job{}, fmt.Errorf("job none: %w", api.ErrNotFound)
			case "own":
				return renter.Job{}, fmt.Errorf("job own: %w", errOwn)
			case "rich":
				return renter.Job{}, &api.Error{Code: "rich", Message: "m", Hint: "h", Status: 418, Details: map[string]any{"n": 1.0}}
			case "odd":
				return renter.Job{}, errors.New("odd")
			}
			return job(ref), nil
		},
		Stop: func(_ context.Context, ref string) (renter.Job, error) { say("stop %s", ref); return job(ref), nil },
		Wait: func(_ context.Context, ref string) (renter.Job, error) { return job(ref), nil },
		Fetch: func(_ context.Context, ref, to string) ([]string, error) {
			say("fetch %s %s", ref, to)
			return []string{"f"}, nil
		},
		Events: func(_ context.Context, ref string, from uint64, follow bool, next func(renter.Event) error) error {
			say("events %s %d %v", ref, from, follow)
			if ref == "none" {
				return api.ErrNotFound
			}
			if err := next(renter.Event{Seq: from + 1, Kind: renter.EvSilence, Note: "n"}); err != nil {
				return err
			}
			if ref == "breaks" {
				return errOwn
			}
			return nil
		},
		Log: func(_ context.Context, ref string, offset uint64, follow bool, next func(joblog.Chunk) error) error {
			return next(joblog.Chunk{Stream: 2, Offset: offset, Data: []byte("hi\n\x00")})
		},
		Auctions: func(context.Context, string) ([]api.AuctionView, error) {
			return []api.AuctionView{{DryRun: true}}, nil
		},
		Leases: func(_ context.Context, role string) ([]api.LeaseView, error) { say("leases %s", role); return nil, nil },
		Lease:  func(_ context.Context, ref string) (api.LeaseView, error) { return api.LeaseView{Job: ref}, nil },
		EndLease: func(_ context.Context, ref, reason string) (api.LeaseView, error) {
			say("end %s %s", ref, reason)
			return api.LeaseView{}, nil
		},
		Receipts: func(_ context.Context, lease string) ([]api.ReceiptView, error) {
			return []api.ReceiptView{{Seq: 1, State: lease}}, nil
		},
		Export: func(_ context.Context, lease, job string) ([]byte, error) {
			return []byte("LACR1\n" + lease + "|" + job), nil
		},
		Reputations: func(context.Context) ([]api.ReputationView, error) { return nil, nil },
		Reputation: func(_ context.Context, p attest.Key) (api.ReputationView, error) {
			return api.ReputationView{Peer: p}, nil
		},
		Join: func(_ context.Context, targets []string) (api.Joined, error) {
			say("join %v", targets)
			return api.Joined{Network: "test-a"}, nil
		},
		Invite: func(_ context.Context, withoutKey bool) (string, error) {
			return fmt.Sprintf("lacuna1%v", withoutKey), nil
		},
		Config: func() []config.Entry { return []config.Entry{{Key: "k", Origin: "default"}} },
	}
}

func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve runs a server on a socket until the test ends or stop is called.
func serve(t *testing.T, o api.Options) (path string, stop func() error) {
	t.Helper()
	s, err := api.New(o)
	if err != nil {
		t.Fatal(err)
	}
	path = socket(t)
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return path, stop
}

func dial(t *testing.T, o api.Options) *api.Client {
	t.Helper()
	path, _ := serve(t, o)
	c, err := api.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestEveryRouteThroughTheClient(t *testing.T) {
	var got []string
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lacuna_test_x"}, func() float64 { return 3 }))
	c := dial(t, api.Options{Backend: fake(func(s string) { got = append(got, s) }), Gatherer: reg})
	ctx := t.Context()
	check := func(what string, err error, holds bool) {
		t.Helper()
		if err != nil || !holds {
			t.Errorf("%s: %v, as expected: %v", what, err, holds)
		}
	}
	check("Healthy", c.Healthy(ctx), true)
	check("Ready", c.Ready(ctx), true)
	text, err := c.Metrics(ctx)
	check("Metrics", err, bytes.Contains(text, []byte("lacuna_test_x 3")))
	st, err := c.Status(ctx)
	check("Status", err, st.Peer == attest.Key{7} && st.PID == 42)
	devices, err := c.Devices(ctx)
	check("Devices", err, devices != nil && len(devices) == 0)
	var asks []api.AskView
	err = c.Asks(ctx, api.AskFilter{Class: "nv-24g", Model: "RTX 4090", Place: market.Place{Continent: "eu"}, MaxPrice: 600_000, Limit: 5},
		func(a api.AskView) error { asks = append(asks, a); return nil })
	check("Asks", err, len(asks) == 3 && asks[2].Peer == attest.Key{3})
	job, err := c.Submit(ctx, market.Spec{Module: "m", Tier: market.Bronze}, true)
	check("Submit", err, job.Name == "new")
	_, err = c.Submit(ctx, market.Spec{Module: "m"}, false)
	check("Submit without a tier", err, true)
	jobs, err := c.Jobs(ctx)
	check("Jobs", err, len(jobs) == 1)
	job, err = c.Job(ctx, "a/b ?")
	check("Job", err, job.Name == "a/b ?" && job.State == renter.JobRunning)
	_, err = c.Stop(ctx, "a")
	check("Stop", err, true)
	job, err = c.Wait(ctx, "w")
	check("Wait", err, job.Name == "w")
	files, err := c.Fetch(ctx, "a", "/to")
	check("Fetch", err, len(files) == 1)
	var events []renter.Event
	err = c.Events(ctx, "a", 4, true, func(e renter.Event) error { events = append(events, e); return nil })
	check("Events", err, len(events) == 1 && events[0].Seq == 5 && events[0].Note == "n")
	var chunk joblog.Chunk
	err = c.Log(ctx, "a", 9, false, func(l joblog.Chunk) error { chunk = l; return nil })
	check("Log", err, chunk.Stream == 2 && chunk.Offset == 9 && string(chunk.Data) == "hi\n\x00")
	auctions, err := c.Auctions(ctx, "a")
	check("Auctions", err, len(auctions) == 1 && auctions[0].DryRun)
	leases, err := c.Leases(ctx, "provider")
	check("Leases", err, leases != nil)
	_, err = c.Leases(ctx, "")
	check("Leases", err, true)
	lease, err := c.Lease(ctx, "abc")
	check("Lease", err, lease.Job == "abc")
	_, err = c.EndLease(ctx, "abc", "owner")
	check("EndLease", err, true)
	receipts, err := c.Receipts(ctx, "abc")
	check("Receipts", err, len(receipts) == 1 && receipts[0].State == "abc")
	file, err := c.ExportLease(ctx, "l")
	check("ExportLease", err, string(file) == "LACR1\nl|")
	file, err = c.ExportJob(ctx, "j")
	check("ExportJob", err, string(file) == "LACR1\n|j")
	reps, err := c.Reputations(ctx)
	check("Reputations", err, reps != nil)
	rep, err := c.Reputation(ctx, attest.Key{9})
	check("Reputation", err, rep.Peer == attest.Key{9})
	joined, err := c.Join(ctx, []string{" lacuna1x ", ""})
	check("Join", err, joined.Network == "test-a" && joined.Joined != nil)
	invite, err := c.Invite(ctx)
	check("Invite", err, invite == "lacuna1false")
	invite, err = c.InviteWithoutKey(ctx)
	check("InviteWithoutKey", err, invite == "lacuna1true")
	entries, err := c.Config(ctx)
	check("Config", err, len(entries) == 1 && entries[0].Key == "k")
	check("Down", c.Down(ctx, true), true)
	want := []string{
		"asks {Class:nv-24g Model:RTX 4090 Place:eu MaxPrice:0.60 USD Limit:5}", "submit m bronze true", "submit m silver false", "stop a", "fetch a /to",
		"events a 4 true", "leases provider", "leases ", "end abc owner", "join [lacuna1x]", "down true",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the backend was asked (-want +got):\n%s", d)
	}
}

func TestErrors(t *testing.T) {
	b := fake(func(string) {})
	b.Devices, b.Ready = nil, func() error { return errors.New("the store is opening") }
	s, err := api.New(api.Options{Backend: b, Codes: []api.Code{{Err: errOwn, Status: 422, Code: "dog", Hint: "get a cat"}}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, method, target, body string
		status                     int
		code                       string
	}{
		{"not found", "GET", "/v1/jobs/none", "", 404, "not_found"},
		{"own code", "GET", "/v1/jobs/own", "", 422, "dog"},
		{"whole error", "GET", "/v1/jobs/rich", "", 418, "rich"},
		{"any other", "GET", "/v1/jobs/odd", "", 500, "failed"},
		{"no backend", "GET", "/v1/devices", "", 501, "not_available"},
		{"no gatherer", "GET", "/metrics", "", 501, "not_available"},
		{"not ready", "GET", "/readyz", "", 503, "not_ready"},
		{"no route", "GET", "/v2/jobs", "", 404, "no_route"},
		{"wrong method", "DELETE", "/v1/jobs/a", "", 405, "method"},
		{"no JSON", "POST", "/v1/jobs", "wasm: a", 400, "usage"},
		{"unknown field", "POST", "/v1/jobs", `{"spek":{}}`, 400, "usage"},
		{"unknown field of the spec", "POST", "/v1/jobs", `{"spec":{"image":"x"}}`, 400, "usage"},
		{"two documents", "POST", "/v1/jobs", `{}{}`, 400, "usage"},
		{"empty body", "POST", "/v1/jobs", ``, 422, "dog"},
		{"too large", "POST", "/v1/jobs", strings.Repeat(" ", 1<<20+1), 413, "too_large"},
		{"unknown parameter", "GET", "/v1/asks?modell=x", "", 400, "usage"},
		{"parameter twice", "GET", "/v1/asks?model=x&model=y", "", 400, "usage"},
		{"price with a comma", "GET", "/v1/asks?max_price=0,5", "", 400, "usage"},
		{"place", "GET", "/v1/asks?place=mars", "", 400, "usage"},
		{"limit", "GET", "/v1/asks?limit=0", "", 400, "usage"},
		{"limit too high", "GET", "/v1/asks?limit=1001", "", 400, "usage"},
		{"follow", "GET", "/v1/jobs/a/events?follow=yes", "", 400, "usage"},
		{"from", "GET", "/v1/jobs/a/events?from=-1", "", 400, "usage"},
		{"offset", "GET", "/v1/jobs/a/log?offset=x", "", 400, "usage"},
		{"error before the first line", "GET", "/v1/jobs/none/events", "", 404, "not_found"},
		{"role", "GET", "/v1/leases?role=owner", "", 400, "usage"},
		{"receipts of nothing", "GET", "/v1/receipts", "", 400, "usage"},
		{"export of nothing", "GET", "/v1/receipts/export", "", 400, "usage"},
		{"export of both", "GET", "/v1/receipts/export?job=a&lease=b", "", 400, "usage"},
		{"peer id", "GET", "/v1/reputation/joe", "", 400, "usage"},
		{"join nothing", "POST", "/v1/join", `{"targets":[" "]}`, 400, "usage"},
		{"reason too long", "POST", "/v1/leases/a/end", `{"reason":"` + strings.Repeat("x", 65) + `"}`, 400, "usage"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body)))
			var body struct{ Error *api.Error }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error == nil {
				t.Fatalf("answer %q: %v", w.Body, err)
			}
			if w.Code != tt.status || body.Error.Code != tt.code || body.Error.Message == "" {
				t.Errorf("answer is %d %q %q, want %d %q", w.Code, body.Error.Code, body.Error.Message, tt.status, tt.code)
			}
		})
	}
	c := dial(t, api.Options{Backend: b, Codes: []api.Code{{Err: errOwn, Status: 422, Code: "dog", Hint: "get a cat"}}})
	_, err = c.Job(t.Context(), "rich")
	want := &api.Error{Code: "rich", Message: "m", Hint: "h", Status: 418, Details: map[string]any{"n": 1.0}}
	if d := cmp.Diff(error(want), err); d != "" {
		t.Errorf("error at the client (-want +got):\n%s", d)
	}
	seen := 0
	err = c.Events(t.Context(), "breaks", 0, false, func(renter.Event) error { seen++; return nil })
	var e *api.Error
	if !errors.As(err, &e) || e.Code != "dog" || e.Hint != "get a cat" || e.Status != 0 || seen != 1 {
		t.Errorf("error in the middle of a stream: %v after %d events, want code dog after 1", err, seen)
	}
	own := errors.New("enough")
	if err := c.Asks(t.Context(), api.AskFilter{}, func(api.AskView) error { return own }); !errors.Is(err, own) {
		t.Errorf("error of the callback: %v, want it back", err)
	}
}

func TestLinesAreFlushedAndEndWithTheServer(t *testing.T) {
	b := fake(func(string) {})
	b.Events = func(ctx context.Context, _ string, _ uint64, _ bool, next func(renter.Event) error) error {
		if err := next(renter.Event{Seq: 1}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	b.Wait = func(ctx context.Context, _ string) (renter.Job, error) { <-ctx.Done(); return renter.Job{}, ctx.Err() }
	path, stop := serve(t, api.Options{Backend: b})
	c, err := api.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, ended := make(chan renter.Event, 1), make(chan error, 1)
	go func() {
		ended <- c.Events(context.Background(), "a", 0, true, func(e renter.Event) error { first <- e; return nil })
	}()
	if e := <-first; e.Seq != 1 {
		t.Errorf("first event %+v", e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait given up: %v, want the context's error", err)
	}
	begun := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("stop took %v with a stream open", took)
	}
	var e *api.Error
	if err := <-ended; !errors.As(err, &e) || e.Code != "stopping" {
		t.Errorf("stream ended with %v, want code stopping", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket is left behind: %v", err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("request to a stopped server: %v, want ErrNotRunning", err)
	}
}

func TestACutStreamIsAnError(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"seq\":1}\r\n")
	}()
	if err := api.NewClient(path).Events(t.Context(), "a", 0, true, func(renter.Event) error { return nil }); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("stream of a daemon that died: %v, want ErrNotRunning", err)
	}
}

func TestListen(t *testing.T) {
	path := socket(t)
	if _, err := api.Dial(path); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("Dial without a daemon: %v, want ErrNotRunning", err)
	}
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := api.Listen(path); !errors.Is(err, api.ErrSocketInUse) {
		t.Errorf("second Listen: %v, want ErrSocketInUse", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // as a killed process leaves it
	if _, err := api.Dial(path); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("Dial to a dead socket: %v, want ErrNotRunning", err)
	}
	again, err := api.Listen(path)
	if err != nil {
		t.Fatalf("Listen over a dead socket: %v", err)
	}
	_ = again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(path); err == nil {
		t.Error("a file is replaced by a socket")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("file is %q, %v", b, err)
	}
}

func TestNewRefusesBadCodes(t *testing.T) {
	if _, err := api.New(api.Options{Codes: []api.Code{{Err: errOwn, Status: 200, Code: "x"}}}); err == nil {
		t.Error("an error with status 200 is taken")
	}
}
