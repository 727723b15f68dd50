package deal_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// envelope returns an unsigned envelope of that domain with a payload of n bytes.
func envelope(d attest.Domain, n int) attest.Envelope {
	return attest.Envelope{Domain: d, Payload: bytes.Repeat([]byte{7}, n), Signer: attest.Key{1}}
}

var (
	bid     = envelope(market.BidDomain, 600)
	offer   = envelope(market.OfferDomain, 400)
	decline = envelope(market.DeclineDomain, 200)
	award   = envelope(market.AwardDomain, 500)
	accept  = envelope(market.AcceptDomain, 500)
	outcome = envelope(market.OutcomeRenterDomain, 300)
	voucher = envelope(market.VoucherDomain, 250)
)

// world is a client and a server on a network in virtual time.
type world struct {
	net            *p2ptest.Network
	client, server *p2p.Host
	deals          *deal.Service // the client's
	served         *deal.Service
}

// run runs f against a server with the ports of o.
func run(t *testing.T, o deal.Options, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		n := p2ptest.New(t, 2, p2ptest.Options{})
		defer n.Close()
		w := &world{net: n, client: n.Host(0), server: n.Host(1)}
		var err error
		o.Host = w.server
		if w.served, err = deal.New(o); err != nil {
			t.Fatal(err)
		}
		defer w.served.Close()
		if w.deals, err = deal.New(deal.Options{Host: w.client}); err != nil {
			t.Fatal(err)
		}
		defer w.deals.Close()
		f(t, w)
	})
}

func TestBid(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer attest.Envelope
		ok     bool
	}{
		{"offer", offer, true},
		{"decline", decline, true},
		{"no answer", attest.Envelope{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var from attest.Key
			var got attest.Envelope
			run(t, deal.Options{Bid: func(_ context.Context, k attest.Key, e attest.Envelope) (attest.Envelope, bool) {
				from, got = k, e
				return tt.answer, tt.ok
			}}, func(t *testing.T, w *world) {
				answer, ok, err := w.deals.SendBid(t.Context(), w.server.Key(), w.server.Addrs(), bid)
				if err != nil || ok != tt.ok {
					t.Fatalf("SendBid = %v, %v, want %v, nil", ok, err, tt.ok)
				}
				if diff := cmp.Diff(tt.answer, answer); diff != "" {
					t.Errorf("answer (-sent +received):\n%s", diff)
				}
				if diff := cmp.Diff(bid, got); diff != "" || from != w.client.Key() {
					t.Errorf("port got the bid from %v, (-sent +received):\n%s", from, diff)
				}
			})
		})
	}
}

func TestAnswer(t *testing.T) {
	for _, code := range []deal.Code{deal.OK, deal.Closed, deal.Unknown, deal.Refused} {
		t.Run(code.String(), func(t *testing.T) {
			run(t, deal.Options{Answer: func(_ context.Context, _ attest.Key, e attest.Envelope) deal.Code {
				if diff := cmp.Diff(offer, e); diff != "" {
					t.Errorf("port got (-sent +received):\n%s", diff)
				}
				return code
			}}, func(t *testing.T, w *world) {
				got, err := w.deals.SendAnswer(t.Context(), w.server.Key(), w.server.Addrs(), offer)
				if err != nil || got != code {
					t.Errorf("SendAnswer = %v, %v, want %v, nil", got, err, code)
				}
			})
		})
	}
}

func TestAward(t *testing.T) {
	terms := bytes.Repeat([]byte{9}, market.MaxTermsBytes) // the largest there may be
	large := envelope(market.AwardDomain, market.MaxLeaseBytes)
	other := accept
	other.Payload = []byte("another lease")
	for _, tt := range []struct {
		name   string
		award  attest.Envelope
		answer attest.Envelope
		err    error
		want   error
	}{
		{"accept", award, accept, nil, nil},
		{"largest", large, envelope(market.AcceptDomain, market.MaxLeaseBytes), nil, nil},
		{"decline", award, decline, nil, nil},
		{"accept of another lease", award, other, nil, deal.ErrUnanswered},
		{"fault of the server", award, attest.Envelope{}, errors.New("disk full"), deal.ErrUnanswered},
		{"answer that is none", award, offer, nil, deal.ErrUnanswered},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, deal.Options{Award: func(_ context.Context, _ attest.Key, e attest.Envelope, b []byte) (attest.Envelope, error) {
				if diff := cmp.Diff(tt.award, e); diff != "" || !bytes.Equal(b, terms) {
					t.Errorf("port got %d bytes of terms and (-sent +received):\n%s", len(b), diff)
				}
				return tt.answer, tt.err
			}}, func(t *testing.T, w *world) {
				got, err := w.deals.SendAward(t.Context(), w.server.Key(), w.server.Addrs(), tt.award, terms)
				if !errors.Is(err, tt.want) {
					t.Fatalf("SendAward = %v, want %v", err, tt.want)
				}
				if diff := cmp.Diff(tt.answer, got); tt.want == nil && diff != "" {
					t.Errorf("answer (-sent +received):\n%s", diff)
				}
			})
		})
	}
}

func receipts(n, size int) []attest.Envelope {
	out := make([]attest.Envelope, n)
	for i := range out {
		out[i] = envelope(receipt.Domain, size)
		binary.BigEndian.PutUint32(out[i].Payload, uint32(i))
	}
	return out
}

func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		name        string
		count, size int
		messages    int
		refuseAfter int // messages, 0 = never
	}{
		{name: "no receipts", messages: 1},
		{name: "one message", count: deal.MaxReceipts, size: 300, messages: 1},
		{name: "one receipt more", count: deal.MaxReceipts + 1, size: 300, messages: 2},
		{name: "largest receipts", count: 200, size: receipt.MaxBytes, messages: 5},
		{name: "refused", count: 200, size: 300, messages: 2, refuseAfter: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := receipts(tt.count, max(tt.size, 4))
			var got []attest.Envelope
			messages := 0
			run(t, deal.Options{Outcome: func(_ context.Context, _ attest.Key, e deal.Ending) deal.Settlement {
				messages++
				got = append(got, e.Receipts...)
				switch {
				case messages == tt.refuseAfter:
					return deal.Settlement{Code: deal.Refused}
				case messages == 1:
					return deal.Settlement{Code: deal.OK, Voucher: &voucher, Outcome: &outcome}
				}
				return deal.Settlement{Code: deal.OK}
			}}, func(t *testing.T, w *world) {
				s, err := w.deals.SendOutcome(t.Context(), w.server.Key(), w.server.Addrs(), deal.Ending{Outcome: outcome, Receipts: sent})
				if err != nil {
					t.Fatal(err)
				}
				want := deal.Settlement{Code: deal.OK, Voucher: &voucher, Outcome: &outcome}
				if tt.refuseAfter > 0 {
					want.Code = deal.Refused
					sent = sent[:len(got)]
				}
				if diff := cmp.Diff(want, s); diff != "" {
					t.Errorf("settlement (-want +got):\n%s", diff)
				}
				same := slices.EqualFunc(sent, got, func(a, b attest.Envelope) bool { return a.ID() == b.ID() })
				if !same || messages != tt.messages {
					t.Errorf("%d messages with %d receipts, want %d with %d in order", messages, len(got), tt.messages, len(sent))
				}
			})
		})
	}
}

func TestSendersRefuseWhatIsMalformed(t *testing.T) {
	run(t, deal.Options{}, func(t *testing.T, w *world) {
		ctx, key, addrs := t.Context(), w.server.Key(), w.server.Addrs()
		check := func(name string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, p2p.ErrProtocol) {
				t.Errorf("%s: %v, want an error before anything is sent", name, err)
			}
		}
		_, _, err := w.deals.SendBid(ctx, key, addrs, offer)
		check("an offer as a bid", err)
		_, _, err = w.deals.SendBid(ctx, key, addrs, envelope(market.BidDomain, market.MaxBidBytes+1))
		check("a bid too long", err)
		_, err = w.deals.SendAnswer(ctx, key, addrs, bid)
		check("a bid as an answer", err)
		_, err = w.deals.SendAward(ctx, key, addrs, award, nil)
		check("an award without terms", err)
		_, err = w.deals.SendAward(ctx, key, addrs, award, make([]byte, market.MaxTermsBytes+1))
		check("an award with terms too long", err)
		_, err = w.deals.SendOutcome(ctx, key, addrs, deal.Ending{Outcome: voucher})
		check("a voucher as an outcome", err)
		_, err = w.deals.SendOutcome(ctx, key, addrs, deal.Ending{Outcome: outcome, Receipts: []attest.Envelope{voucher}})
		check("a voucher as a receipt", err)
	})
}

func TestPortsThatAreNil(t *testing.T) {
	run(t, deal.Options{}, func(t *testing.T, w *world) {
		if _, err := w.deals.SendAnswer(t.Context(), w.server.Key(), w.server.Addrs(), offer); !errors.Is(err, p2p.ErrProtocol) {
			t.Errorf("SendAnswer = %v, want ErrProtocol", err)
		}
	})
}

func TestMalformedRequests(t *testing.T) {
	frame := func(v any) []byte {
		b, err := p2p.EncodeFrame(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type one struct {
		A attest.Envelope `cbor:"1,keyasint"`
	}
	type two struct {
		A attest.Envelope `cbor:"1,keyasint"`
		B []byte          `cbor:"2,keyasint"`
	}
	type many struct {
		A attest.Envelope   `cbor:"1,keyasint"`
		B []attest.Envelope `cbor:"2,keyasint"`
	}
	var log bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	o := deal.Options{
		Logger:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Registerer: registry,
		Bid: func(context.Context, attest.Key, attest.Envelope) (attest.Envelope, bool) {
			t.Error("the port was called")
			return attest.Envelope{}, false
		},
		Award: func(context.Context, attest.Key, attest.Envelope, []byte) (attest.Envelope, error) {
			t.Error("the port was called")
			return attest.Envelope{}, errors.New("unexpected")
		},
		Outcome: func(context.Context, attest.Key, deal.Ending) deal.Settlement {
			t.Error("the port was called")
			return deal.Settlement{}
		},
	}
	run(t, o, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			name  string
			p     p2p.Protocol
			input []byte
			want  deal.Stats
		}{
			{"nothing", deal.BidProtocol, nil, deal.Stats{Broken: 1}},
			{"half a frame", deal.BidProtocol, frame(one{bid})[:100], deal.Stats{Broken: 1}},
			{"no CBOR", deal.BidProtocol, []byte{2, 0xff, 0xff}, deal.Stats{Malformed: 1}},
			{"length of 0", deal.BidProtocol, []byte{0}, deal.Stats{Malformed: 1}},
			{"length above the limit", deal.BidProtocol, binary.AppendUvarint(nil, p2p.MaxFrame+1), deal.Stats{Malformed: 1}},
			{"length without end", deal.BidProtocol, bytes.Repeat([]byte{0xff}, 16), deal.Stats{Malformed: 1}},
			{"bid too long", deal.BidProtocol, frame(one{envelope(market.BidDomain, market.MaxBidBytes+1)}), deal.Stats{Malformed: 1}},
			{"other domain", deal.BidProtocol, frame(one{offer}), deal.Stats{Malformed: 1}},
			{"unknown key", deal.BidProtocol, frame(two{A: bid}), deal.Stats{Malformed: 1}},
			{"award without terms", deal.AwardProtocol, frame(two{A: award}), deal.Stats{Malformed: 1}},
			{"award too long", deal.AwardProtocol, frame(two{envelope(market.AwardDomain, market.MaxLeaseBytes+1), []byte("terms")}), deal.Stats{Malformed: 1}},
			{"terms too long", deal.AwardProtocol, frame(two{award, make([]byte, market.MaxTermsBytes+1)}), deal.Stats{Malformed: 1}},
			{"too many receipts", deal.OutcomeProtocol, frame(many{outcome, receipts(deal.MaxReceipts+1, 8)}), deal.Stats{Malformed: 1}},
		} {
			before := w.served.Stats()
			s, err := w.client.Open(t.Context(), w.server.Key(), w.server.Addrs(), tt.p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(tt.input); err != nil {
				t.Fatal(err)
			}
			s.CloseWrite()
			if n, err := s.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: the server answered with %d bytes", tt.name, n)
			}
			s.Reset()
			synctest.Wait()
			got := w.served.Stats()
			got.Malformed -= before.Malformed
			got.Broken -= before.Broken
			if got != tt.want {
				t.Errorf("%s: counted %+v, want %+v", tt.name, got, tt.want)
			}
		}
		if log.Len() > 0 {
			t.Errorf("input of a peer was logged above debug:\n%s", &log)
		}
		want := map[string]float64{"award malformed": 3, "bid broken": 2, "bid malformed": 7, "outcome malformed": 1}
		if diff := cmp.Diff(want, counted(t, registry)); diff != "" {
			t.Errorf("lacuna_deal_requests_total (-want +got):\n%s", diff)
		}
	})
}

// counted reads the counters of requests, by "protocol result".
func counted(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "lacuna_deal_requests_total" {
		t.Fatalf("Gather = %v, %v, want lacuna_deal_requests_total", families, err)
	}
	out := make(map[string]float64)
	for _, m := range families[0].GetMetric() {
		out[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
	}
	return out
}

func TestSlowRequest(t *testing.T) {
	run(t, deal.Options{Bid: func(context.Context, attest.Key, attest.Envelope) (attest.Envelope, bool) {
		return offer, true
	}}, func(t *testing.T, w *world) {
		s, err := w.client.Open(t.Context(), w.server.Key(), w.server.Addrs(), deal.BidProtocol)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Reset()
		s.SetDeadline(time.Time{})
		began := time.Now()
		for { // a byte each second, without end
			if _, err := s.Write([]byte{0x81}); err != nil {
				break
			}
			time.Sleep(2 * time.Second)
		}
		if d := time.Since(began); d > deal.Timeout+3*time.Second {
			t.Errorf("the server held the stream for %v", d)
		}
	})
}

func TestSlowAnswer(t *testing.T) {
	run(t, deal.Options{Bid: func(ctx context.Context, _ attest.Key, _ attest.Envelope) (attest.Envelope, bool) {
		<-ctx.Done()
		return offer, true
	}}, func(t *testing.T, w *world) {
		w.net.Connect(w.client, w.server)
		began := time.Now()
		_, _, err := w.deals.SendBid(t.Context(), w.server.Key(), nil, bid)
		if !errors.Is(err, deal.ErrUnanswered) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SendBid = %v, want ErrUnanswered by the deadline", err)
		}
		if d := time.Since(began); d != deal.Timeout {
			t.Errorf("SendBid waited %v, want %v", d, deal.Timeout)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		_, _, err = w.deals.SendBid(ctx, w.server.Key(), nil, bid)
		if !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("SendBid = %v after %v, want it to end with its context", err, time.Since(began))
		}
	})
}

func TestUnreachable(t *testing.T) {
	run(t, deal.Options{}, func(t *testing.T, w *world) {
		w.net.Mute(w.server, true)
		_, err := w.deals.SendAnswer(t.Context(), w.server.Key(), w.server.Addrs(), offer)
		if !errors.Is(err, p2p.ErrUnreachable) {
			t.Errorf("SendAnswer = %v, want ErrUnreachable", err)
		}
		w.net.Mute(w.server, false)
	})
}

func TestPortThatPanics(t *testing.T) {
	run(t, deal.Options{Answer: func(context.Context, attest.Key, attest.Envelope) deal.Code { panic("broken port") }},
		func(t *testing.T, w *world) {
			for range 2 {
				_, err := w.deals.SendAnswer(t.Context(), w.server.Key(), w.server.Addrs(), offer)
				if !errors.Is(err, deal.ErrUnanswered) {
					t.Errorf("SendAnswer = %v, want ErrUnanswered", err)
				}
			}
		})
}

// TestRate holds that a peer which sends more than it may is refused, and served again a minute later.
func TestRate(t *testing.T) {
	var mu sync.Mutex
	served := 0
	run(t, deal.Options{Bid: func(context.Context, attest.Key, attest.Envelope) (attest.Envelope, bool) {
		mu.Lock()
		defer mu.Unlock()
		served++
		return attest.Envelope{}, false
	}}, func(t *testing.T, w *world) {
		w.net.Connect(w.client, w.server)
		refused := 0
		began := time.Now()
		for range 2 * deal.BidProtocol.PerMinute {
			if _, _, err := w.deals.SendBid(t.Context(), w.server.Key(), nil, bid); errors.Is(err, deal.ErrUnanswered) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		most := deal.BidProtocol.PerMinute + int(time.Since(began).Minutes()*float64(deal.BidProtocol.PerMinute)) + 1
		if served > most || served < deal.BidProtocol.PerMinute || refused != 2*deal.BidProtocol.PerMinute-served {
			t.Errorf("%d served and %d refused, want at most %d served", served, refused, most)
		}
		time.Sleep(time.Minute)
		if _, _, err := w.deals.SendBid(t.Context(), w.server.Key(), nil, bid); err != nil {
			t.Errorf("SendBid a minute later = %v", err)
		}
	})
}

// TestProtocolLimits holds that each protocol has every limit.
func TestProtocolLimits(t *testing.T) {
	for _, p := range []p2p.Protocol{deal.BidProtocol, deal.AnswerProtocol, deal.AwardProtocol, deal.OutcomeProtocol} {
		if err := p.Validate(); err != nil || p.Timeout != deal.Timeout {
			t.Errorf("%s: timeout %v, %v", p.Name, p.Timeout, err)
		}
	}
}

func TestNewWithoutAHost(t *testing.T) {
	if _, err := deal.New(deal.Options{}); err == nil {
		t.Error("New without a host = nil error")
	}
}
