package p2p_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// echo is a service with ample limits.
func echo() p2p.Protocol {
	return p2p.Protocol{Name: "echo", Major: 1, Timeout: 10 * time.Second, MaxIn: 64, MaxPerPeer: 8, PerMinute: 600}
}

type message struct {
	Text string `cbor:"1,keyasint"`
}

func serveEcho(_ context.Context, s *p2p.Stream) {
	var m message
	if err := s.Recv(&m); err != nil {
		s.Reset()
		return
	}
	_ = s.Send(m) // the caller sees what came
}

// call sends text and returns the answer.
func call(h *p2p.Host, to attest.Key, addrs []string, text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := h.Open(ctx, to, addrs, echo())
	if err != nil {
		return "", err
	}
	defer s.Close()
	if err := s.Send(message{text}); err != nil {
		return "", err
	}
	var m message
	err = s.Recv(&m)
	return m.Text, err
}

// real starts a host with sockets on this computer.
func real(t *testing.T, i int, o p2p.Options) *p2p.Host {
	t.Helper()
	o.Key = p2ptest.Key(i)
	if o.Network == "" {
		o.Network = "test"
	}
	h, err := p2p.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

const (
	tcpAny  = "/ip4/127.0.0.1/tcp/0"
	quicAny = "/ip4/127.0.0.1/udp/0/quic-v1"
)

func TestOpenOverBothTransports(t *testing.T) {
	for i, tt := range []struct{ name, listen, part string }{
		{"tcp", tcpAny, "/tcp/"},
		{"quic", quicAny, "/quic-v1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := real(t, 10*i+1, p2p.Options{Listen: []string{tt.listen}})
			client := real(t, 10*i+2, p2p.Options{})
			peers := make(chan attest.Key, 1)
			server.Handle(echo(), func(ctx context.Context, s *p2p.Stream) {
				peers <- s.Peer()
				serveEcho(ctx, s)
			})
			got, err := call(client, server.Key(), server.Addrs(), "hello")
			if err != nil || got != "hello" {
				t.Fatalf("answer %q, %v, want hello", got, err)
			}
			if k := <-peers; k != client.Key() {
				t.Errorf("server saw %s, want %s", k, client.Key())
			}
			info := client.Peers()
			if len(info) != 1 || info[0].Key != server.Key() || !strings.Contains(info[0].Addr, tt.part) || info[0].Inbound {
				t.Errorf("Peers() = %+v, want the server over %s", info, tt.name)
			}
		})
	}
}

func TestManyPeersOnOneAddress(t *testing.T) {
	hub := real(t, 100, p2p.Options{Listen: []string{tcpAny, quicAny}})
	hub.Handle(echo(), serveEcho)
	for i := range 50 {
		h := real(t, 101+i, p2p.Options{Listen: []string{tcpAny}})
		if got, err := call(h, hub.Key(), hub.Addrs(), "x"); err != nil || got != "x" {
			t.Fatalf("peer %d: %q, %v", i, got, err)
		}
	}
	if n := len(hub.Peers()); n != 50 {
		t.Errorf("hub has %d peers, want 50", n)
	}
}

func TestNewReportsAllFaults(t *testing.T) {
	_, err := p2p.New(p2p.Options{Network: "Main Net", Profile: "boss", Listen: []string{"0.0.0.0:80"}})
	if err == nil {
		t.Fatal("New succeeded")
	}
	for _, w := range []string{"Main Net", "boss", "0.0.0.0:80", "Ed25519"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestPublicHostStarts(t *testing.T) {
	for i, profile := range []p2p.Profile{p2p.Hub, p2p.Provider, p2p.Light} {
		h := real(t, 300+i, p2p.Options{Network: "home", Profile: profile, Listen: []string{tcpAny}})
		if h.Testnet() || len(h.Addrs()) != 0 {
			t.Errorf("%s: Testnet() = %v, Addrs() = %v, want no loopback address told", profile, h.Testnet(), h.Addrs())
		}
	}
}

func TestOpenErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 2, p2ptest.Options{})
		defer net.Close()
		stranger := net.Add(p2p.Options{Network: "test-other"})
		a, b := net.Host(0), net.Host(1)
		v2, v1 := echo(), echo()
		v2.Name, v2.Major, v1.Name = "offer", 2, "offer"
		b.Handle(v2, serveEcho)
		stranger.Handle(echo(), serveEcho)
		wrongKey := attest.Key(p2ptest.Key(77).Public().(ed25519.PublicKey))
		for _, tt := range []struct {
			name  string
			from  *p2p.Host
			key   attest.Key
			addrs []string
			p     p2p.Protocol
			want  error
			says  string
		}{
			{"we are too old", a, b.Key(), b.Addrs(), v1, p2p.ErrProtocol, "this peer speaks 1 and is too old"},
			{"not served", a, b.Key(), b.Addrs(), echo(), p2p.ErrProtocol, "does not serve echo"},
			{"another network", a, stranger.Key(), stranger.Addrs(), echo(), p2p.ErrProtocol, "on network test"},
			{"no address", a, wrongKey, nil, echo(), p2p.ErrUnreachable, ""},
			{"another peer at the address", a, wrongKey, b.Addrs(), echo(), p2p.ErrUnreachable, ""},
			{"nobody at the address", a, wrongKey, []string{"/ip4/1.2.3.4/udp/1/quic-v1", "nonsense"}, echo(), p2p.ErrUnreachable, ""},
			{"itself", a, a.Key(), a.Addrs(), echo(), p2p.ErrUnreachable, "itself"},
		} {
			_, err := tt.from.Open(t.Context(), tt.key, tt.addrs, tt.p)
			if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("%s: Open = %v, want %v saying %q", tt.name, err, tt.want, tt.says)
			}
		}
		a.Handle(v1, serveEcho)
		time.Sleep(time.Second) // for b to be told
		if _, err := b.Open(t.Context(), a.Key(), nil, v2); !errors.Is(err, p2p.ErrProtocol) || !strings.Contains(err.Error(), "speaks offer/1 and is too old") {
			t.Errorf("Open of a newer version = %v, want the other to be too old", err)
		}
	})
}

func TestHandleLimitsAndPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 1, p2ptest.Options{})
		defer net.Close()
		reg := prometheus.NewRegistry()
		server := net.Add(p2p.Options{Registerer: reg})
		client := net.Host(0)
		net.Connect(client, server)
		p := p2p.Protocol{Name: "slow", Major: 1, Timeout: time.Minute, MaxIn: 3, MaxPerPeer: 2, PerMinute: 4}
		release := make(chan struct{})
		server.Handle(p, func(ctx context.Context, s *p2p.Stream) {
			var m message
			if err := s.Recv(&m); err != nil || m.Text == "panic" {
				panic("as asked")
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			_ = s.Send(m) // the caller sees what came
		})
		open := func(text string) *p2p.Stream {
			s, err := client.Open(t.Context(), server.Key(), nil, p)
			if err == nil {
				err = s.Send(message{text})
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return s
		}
		answer := func(s *p2p.Stream) error {
			var m message
			return s.Recv(&m)
		}
		one, two, three := open("1"), open("2"), open("3")
		if err := answer(three); err == nil {
			t.Error("a third stream of one peer was served, at most 2 are allowed")
		}
		close(release)
		if err := errors.Join(answer(one), answer(two)); err != nil {
			t.Error(err)
		}
		if err := answer(open("panic")); err == nil {
			t.Error("the handler panicked, yet the stream ended in order")
		}
		if err := answer(open("4")); err != nil {
			t.Errorf("fourth stream that was taken within a minute: %v", err)
		}
		if err := answer(open("5")); err == nil {
			t.Error("a fifth stream within a minute was served, at most 4 are allowed")
		}
		time.Sleep(time.Minute)
		if err := answer(open("6")); err != nil {
			t.Errorf("a minute later: %v", err)
		}
		want := map[string]float64{
			"lacuna_p2p_peers": 1, "lacuna_p2p_handler_panics_total slow": 1, "lacuna_p2p_streams_total in slow": 5,
			"lacuna_p2p_relay_bytes_total": 0, "lacuna_p2p_relay_circuits": 0, "lacuna_p2p_relay_reservations": 0,
			"lacuna_p2p_relay_requests_total":                 0,
			"lacuna_p2p_streams_refused_total slow peer_busy": 1, "lacuna_p2p_streams_refused_total slow rate": 1,
		}
		if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// gather returns the counters of a registry by name and label values.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

func TestTimeoutEndsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 2, p2ptest.Options{})
		defer net.Close()
		a, b := net.Host(0), net.Host(1)
		ended := make(chan error, 1)
		b.Handle(echo(), func(_ context.Context, s *p2p.Stream) { ended <- s.Recv(&message{}) })
		s, err := a.Open(t.Context(), b.Key(), b.Addrs(), echo())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := s.Write([]byte{0x10}); err != nil { // a frame of 16 bytes that never come
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("a frame that never came was received")
		}
		if d := time.Since(start); d > echo().Timeout+100*time.Millisecond { // and the packets' way
			t.Errorf("the handler waited %v, the protocol's timeout is %v", d, echo().Timeout)
		}
	})
}

func TestCloseEndsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 2, p2ptest.Options{})
		a, b := net.Host(0), net.Host(1)
		long := echo()
		long.Timeout = time.Hour
		started, ended := make(chan struct{}), make(chan struct{})
		b.Handle(long, func(ctx context.Context, _ *p2p.Stream) {
			close(started)
			<-ctx.Done()
			close(ended)
		})
		s, err := a.Open(t.Context(), b.Key(), b.Addrs(), long)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(message{"x"}); err != nil {
			t.Fatal(err)
		}
		<-started
		net.Close()
		select {
		case <-ended:
		default:
			t.Error("Close returned before the handler")
		}
	})
}

func TestMedianRTT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 4, p2ptest.Options{Latency: 40 * time.Millisecond})
		defer net.Close()
		if d, ok := net.Host(0).MedianRTT(); ok {
			t.Errorf("MedianRTT() = %v before any connection", d)
		}
		net.ConnectAll(3)
		time.Sleep(5 * time.Second)
		d, ok := net.Host(0).MedianRTT()
		if !ok || d < 80*time.Millisecond || d > 90*time.Millisecond {
			t.Errorf("MedianRTT() = %v, %v, want 80 ms to 90 ms", d, ok)
		}
	})
}

func TestRecv(t *testing.T) {
	frame := func(v any) []byte {
		b, err := p2p.EncodeFrame(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	whole := frame(message{"hi"})
	for _, tt := range []struct {
		name string
		in   []byte
		want error
	}{
		{"whole", whole, nil},
		{"nothing", nil, io.EOF},
		{"cut in the length", []byte{0x80}, io.ErrUnexpectedEOF},
		{"cut after the length", whole[:1], io.ErrUnexpectedEOF},
		{"cut in the middle", whole[:3], io.ErrUnexpectedEOF},
		{"empty frame", []byte{0}, p2p.ErrFrame},
		{"too long", []byte{0x81, 0x80, 0x04}, p2p.ErrFrame},
		{"length without end", []byte{0xff, 0xff, 0xff, 0xff}, p2p.ErrFrame},
		{"another type", frame([]int{1}), p2p.ErrFrame},
		{"trailing byte", append([]byte{whole[0] + 1}, append(slices.Clone(whole[1:]), 0)...), p2p.ErrFrame},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := p2p.StreamFrom(strings.NewReader(string(tt.in))).Recv(&message{})
			if !errors.Is(err, tt.want) || (tt.want != io.EOF && errors.Is(err, io.EOF)) {
				t.Errorf("Recv(%x) = %v, want %v", tt.in, err, tt.want)
			}
		})
	}
	if _, err := p2p.EncodeFrame(message{strings.Repeat("x", p2p.MaxFrame)}); err == nil {
		t.Error("a frame above the limit was encoded")
	}
}

func FuzzRecv(f *testing.F) {
	b, err := p2p.EncodeFrame(message{"hi"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x80, 0x80, 0x04, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		var m message
		r := strings.NewReader(string(in))
		if err := p2p.StreamFrom(r).Recv(&m); err != nil {
			return
		}
		again, err := p2p.EncodeFrame(m)
		if err != nil {
			t.Fatalf("received %+v cannot be sent: %v", m, err)
		}
		if read := len(in) - r.Len(); read > p2p.MaxFrame+3 || read < len(again) {
			t.Errorf("read %d bytes for a frame of %d", read, len(again))
		}
	})
}

func TestKeys(t *testing.T) {
	for i := range 3 {
		key := attest.Key(p2ptest.Key(i).Public().(ed25519.PublicKey))
		id := p2p.PeerID(key)
		if id.String() != key.String() {
			t.Errorf("PeerID = %s, want %s", id, key)
		}
		if back, err := p2p.KeyOf(id); err != nil || back != key {
			t.Errorf("KeyOf(%s) = %s, %v", id, back, err)
		}
	}
	for _, bad := range []string{"", "x", "\x00\x25\x08\x02\x12\x21" + strings.Repeat("\x02", 33)} {
		if k, err := p2p.KeyOf(peer.ID(bad)); err == nil {
			t.Errorf("KeyOf(%q) = %s", bad, k)
		}
	}
}

// TestFavour fills all places of a protocol with strangers: who is known is served all the same.
func TestFavour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(t, 3, p2ptest.Options{})
		defer net.Close()
		friend := net.Host(2)
		server := net.Add(p2p.Options{Favour: func(k attest.Key) bool { return k == friend.Key() }})
		p := p2p.Protocol{Name: "full", Major: 1, Timeout: time.Minute, MaxIn: 1, MaxPerPeer: 2, PerMinute: 60}
		server.Handle(p, func(ctx context.Context, s *p2p.Stream) {
			_ = s.Send(message{"taken"})
			<-ctx.Done()
		})
		served := func(h *p2p.Host) error {
			net.Connect(h, server)
			s, err := h.Open(t.Context(), server.Key(), nil, p)
			if err != nil {
				return err
			}
			if err := s.Send(message{"please"}); err != nil {
				return err
			}
			var m message
			return s.Recv(&m)
		}
		if err := served(net.Host(0)); err != nil {
			t.Fatal(err)
		}
		if err := served(net.Host(1)); err == nil {
			t.Error("a second stranger was served, there is one place")
		}
		if err := served(friend); err != nil {
			t.Errorf("a favoured peer while the place is taken: %v", err)
		}
	})
}
