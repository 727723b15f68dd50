package p2p_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/protocol/autonatv2"
	"github.com/libp2p/go-libp2p/p2p/protocol/autonatv2/pb"
	"github.com/libp2p/go-msgio/pbio"

	"github.com/lacuna-network/lacuna/p2p"
)

// dialBackPair returns what has others dial one host, and another host to do so, connected over loopback.
func dialBackPair(t *testing.T, i int) (backs *p2p.DialBacks, own, server *p2p.Host) {
	t.Helper()
	own = real(t, i, p2p.Options{Listen: []string{tcpAny, quicAny}})
	server = real(t, i+1, p2p.Options{Listen: []string{tcpAny, quicAny}})
	backs = p2p.NewDialBacks(t, own)
	if err := own.Connect(t.Context(), server.Key(), server.Addrs()); err != nil {
		t.Fatal(err)
	}
	return backs, own, server
}

func TestDialBack(t *testing.T) {
	backs, own, server := dialBackPair(t, 500)
	p2p.NewDialBacks(t, server) // which serves too
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, closed, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	for _, addr := range own.Addrs() {
		if ok, err := backs.Request(t.Context(), server, addr); !ok || err != nil {
			t.Errorf("%s: %v, %v, want it to work", addr, ok, err)
		}
	}
	if ok, err := backs.Request(t.Context(), server, "/ip4/127.0.0.1/tcp/"+closed); ok || err != nil {
		t.Errorf("a closed port: %v, %v, want a failure", ok, err)
	}
	if ok, err := backs.Request(t.Context(), server, "/ip4/127.0.0.1/udp/"+closed+"/webrtc-direct"); ok || err == nil {
		t.Errorf("an address that the server cannot dial: %v, %v, want no answer", ok, err)
	}
	stranger := real(t, 510, p2p.Options{Listen: []string{tcpAny}})
	if ok, err := backs.Request(t.Context(), stranger, own.Addrs()[0]); ok || err == nil {
		t.Errorf("a peer that is not connected: %v, %v, want no answer", ok, err)
	}
}

// TestDialBackLiars has peers dial that answer what is not so, or not at all.
func TestDialBackLiars(t *testing.T) {
	answer := func(s network.Stream, status pb.DialStatus, index uint32) {
		_ = pbio.NewDelimitedWriter(s).WriteMsg(&pb.Message{Msg: &pb.Message_DialResponse{DialResponse: &pb.DialResponse{
			Status: pb.DialResponse_OK, DialStatus: status, AddrIdx: index,
		}}})
	}
	for i, tt := range []struct {
		name  string
		serve func(server *p2p.Host, s network.Stream, nonce uint64)
	}{
		{"claims to have dialled", func(_ *p2p.Host, s network.Stream, _ uint64) { answer(s, pb.DialStatus_OK, 0) }},
		{"another address", func(_ *p2p.Host, s network.Stream, _ uint64) { answer(s, pb.DialStatus_E_DIAL_ERROR, 1) }},
		{"no such status", func(_ *p2p.Host, s network.Stream, _ uint64) { answer(s, 7, 0) }},
		{"resets", func(_ *p2p.Host, s network.Stream, _ uint64) { _ = s.Reset() }},
		{"garbage", func(_ *p2p.Host, s network.Stream, _ uint64) { _, _ = s.Write([]byte("\x05abcde")) }},
		{"a message of a gigabyte", func(_ *p2p.Host, s network.Stream, _ uint64) { _, _ = s.Write([]byte("\xff\xff\xff\xff\x04")) }},
		{"wants a gigabyte first", func(_ *p2p.Host, s network.Stream, _ uint64) {
			_ = pbio.NewDelimitedWriter(s).WriteMsg(&pb.Message{Msg: &pb.Message_DialDataRequest{DialDataRequest: &pb.DialDataRequest{NumBytes: 1 << 30}}})
		}},
		{"sends the nonce back over the connection that is there", func(_ *p2p.Host, s network.Stream, nonce uint64) {
			if back, err := s.Conn().NewStream(context.Background()); err == nil {
				if err := p2p.Negotiate(back, autonatv2.DialBackProtocol); err == nil {
					_ = pbio.NewDelimitedWriter(back).WriteMsg(&pb.DialBack{Nonce: nonce})
				}
			}
			answer(s, pb.DialStatus_OK, 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // some take the 5 s that a dial-back may take
			backs, own, server := dialBackPair(t, 520+10*i)
			server.Libp2p().SetStreamHandler(autonatv2.DialProtocol, func(s network.Stream) {
				var msg pb.Message
				if err := pbio.NewDelimitedReader(s, 8192).ReadMsg(&msg); err != nil {
					t.Error(err)
				}
				tt.serve(server, s, msg.GetDialRequest().GetNonce())
			})
			start := time.Now()
			if ok, err := backs.Request(t.Context(), server, own.Addrs()[0]); ok || err == nil {
				t.Errorf("%v, %v, want no answer", ok, err)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// TestLookOut asks by TCP what a peer sees that is connected by QUIC.
func TestLookOut(t *testing.T) {
	own := real(t, 610, p2p.Options{Listen: []string{tcpAny, quicAny}})
	other := real(t, 611, p2p.Options{Listen: []string{tcpAny, quicAny}})
	var quic, tcp string
	for _, addr := range other.Addrs() {
		if strings.HasSuffix(addr, "/quic-v1") {
			quic = addr
		} else {
			tcp = addr
		}
	}
	if err := own.Connect(t.Context(), other.Key(), []string{quic}); err != nil {
		t.Fatal(err)
	}
	seen, err := p2p.LookOut(t.Context(), own, other, tcp)
	if err != nil || !slices.Contains(own.Addrs(), seen) {
		t.Errorf("it sees %s, %v, want the TCP address of %v", seen, err, own.Addrs())
	}
	if conns := own.Libp2p().Network().Conns(); len(conns) != 1 {
		t.Errorf("%d connections, want the one by QUIC", len(conns))
	}
	if _, err := p2p.LookOut(t.Context(), own, other, "/ip4/127.0.0.1/tcp/1"); err == nil {
		t.Error("a look out at a closed port succeeded")
	}
	if got, err := call(own, other.Key(), nil, "x"); !errors.Is(err, p2p.ErrProtocol) {
		t.Errorf("after a look out: %q, %v, want to hear that echo is not served", got, err)
	}
}
