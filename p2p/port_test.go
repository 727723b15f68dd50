package p2p_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// childKey is the identity of a child process.
func childKey() []byte { return p2ptest.Key(999) }

// taken opens a TCP and a UDP port that are held until the test ends.
func taken(t *testing.T) (tcp, udp string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	_, tcp, _ = net.SplitHostPort(l.Addr().String())
	_, udp, _ = net.SplitHostPort(u.LocalAddr().String())
	return tcp, udp
}

// name is what /proc calls this process.
func name() string {
	n := filepath.Base(os.Args[0])
	return n[:min(len(n), 15)]
}

func TestTakenPortIsNamed(t *testing.T) {
	tcp, udp := taken(t)
	other := real(t, 700, p2p.Options{Listen: []string{tcpAny, "/ip6/::1/tcp/0"}})
	port := func(addr string) string { return strings.Split(addr, "/")[4] }
	for _, tt := range []struct {
		name    string
		listen  []string
		network string
		addr    string
		port    string
	}{
		{"tcp", []string{quicAny, "/ip4/127.0.0.1/tcp/" + tcp}, "tcp", "127.0.0.1", tcp},
		{"tcp on all addresses", []string{quicAny, "/ip4/0.0.0.0/tcp/" + tcp}, "tcp", "0.0.0.0", tcp},
		{"udp", []string{tcpAny, "/ip4/127.0.0.1/udp/" + udp + "/quic-v1"}, "udp", "127.0.0.1", udp},
		{"both", []string{"/ip4/127.0.0.1/tcp/" + tcp, "/ip4/127.0.0.1/udp/" + udp + "/quic-v1"}, "tcp", "127.0.0.1", tcp},
		{"websocket", []string{tcpAny, "/ip4/127.0.0.1/tcp/" + tcp + "/ws"}, "tcp", "127.0.0.1", tcp},
		{"another lacuna", []string{quicAny, other.ListenAddresses()[0]}, "tcp", strings.Split(other.ListenAddresses()[0], "/")[2], port(other.ListenAddresses()[0])},
		{"another lacuna, the other family", []string{quicAny, other.ListenAddresses()[1]}, "tcp", strings.Split(other.ListenAddresses()[1], "/")[2], port(other.ListenAddresses()[1])},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			h, err := p2p.New(p2p.Options{Key: p2ptest.Key(701), Network: "test", Listen: tt.listen})
			if err == nil {
				h.Close()
				t.Fatal("New succeeded")
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("it took %v to fail", d)
			}
			var e *p2p.PortError
			if !errors.As(err, &e) || !e.Taken() {
				t.Fatalf("New = %v, want a PortError of a taken port", err)
			}
			if strconv.Itoa(e.Port) != tt.port || e.Network != tt.network || e.Addr != tt.addr {
				t.Errorf("it names %s port %d on %s, want %s port %s on %s", e.Network, e.Port, e.Addr, tt.network, tt.port, tt.addr)
			}
			holder := name() + " (pid " + strconv.Itoa(os.Getpid()) + ")"
			if runtime.GOOS != "linux" {
				holder = "another process"
			}
			want := tt.network + " port " + tt.port + " on " + tt.addr + " is taken by " + holder
			if s := err.Error(); !strings.HasSuffix(s, want) || strings.Contains(s, "\n") {
				t.Errorf("error %q, want one line that ends in %q", s, want)
			}
		})
	}
}

// ports returns the ports of addresses, each once.
func ports(t *testing.T, addrs []string) []int {
	t.Helper()
	var out []int
	for _, a := range addrs {
		n, err := strconv.Atoi(strings.Split(a, "/")[4])
		if err != nil {
			t.Fatalf("address %s: %v", a, err)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func TestAutoTakesOnePortForAll(t *testing.T) {
	auto := []string{p2p.ListenAuto}
	a := real(t, 710, p2p.Options{Listen: auto})
	first := ports(t, a.ListenAddresses())
	if len(first) != 1 || first[0] < p2p.AutoPort || first[0] > p2p.AutoPort+50 {
		t.Fatalf("listens on %v, want one port from %d", a.ListenAddresses(), p2p.AutoPort)
	}
	families := 0
	for _, f := range []string{"/ip4/0.0.0.0/", "/ip6/::/"} {
		if slices.ContainsFunc(a.ListenAddresses(), func(s string) bool { return strings.HasPrefix(s, f) }) {
			families++
		}
	}
	if n := len(a.ListenAddresses()); n != 2*families || families == 0 {
		t.Errorf("listens on %v, want TCP and QUIC of each family", a.ListenAddresses())
	}
	// Another program has UDP alone of the next port: a peer must not take TCP there.
	blocked := 0
	if u, err := net.ListenUDP("udp4", &net.UDPAddr{Port: first[0] + 1}); err == nil {
		defer u.Close()
		blocked = first[0] + 1
	}
	b := real(t, 711, p2p.Options{Listen: auto})
	second := ports(t, b.ListenAddresses())
	if len(second) != 1 || second[0] == first[0] || second[0] == blocked || len(b.ListenAddresses()) != len(a.ListenAddresses()) {
		t.Errorf("the second listens on %v, the first on %v, and UDP of %d is taken", b.ListenAddresses(), a.ListenAddresses(), blocked)
	}
	if first[0] == p2p.AutoPort && runtime.GOOS == "linux" {
		want := "is taken by " + name() + " (pid " + strconv.Itoa(os.Getpid()) + "); listening on port " + strconv.Itoa(second[0])
		if notes := b.ListenNotes(); !slices.ContainsFunc(notes, func(s string) bool { return strings.HasSuffix(s, want) }) {
			t.Errorf("notes %q, want one that ends in %q", notes, want)
		}
	}
	b.Handle(echo(), serveEcho)
	if got, err := call(a, b.Key(), []string{"/ip4/127.0.0.1/udp/" + strconv.Itoa(second[0]) + "/quic-v1"}, "x"); err != nil || got != "x" {
		t.Errorf("call over the second's QUIC: %q, %v", got, err)
	}
}

func TestFailedStartLeavesPortsFree(t *testing.T) {
	tcp, _ := taken(t)
	free := real(t, 720, p2p.Options{Listen: []string{tcpAny, quicAny}})
	addrs := free.ListenAddresses()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	if h, err := p2p.New(p2p.Options{Key: p2ptest.Key(721), Network: "test", Listen: append(slices.Clone(addrs), "/ip4/127.0.0.1/tcp/"+tcp)}); err == nil {
		h.Close()
		t.Fatal("New succeeded")
	}
	if got := real(t, 722, p2p.Options{Listen: addrs}).ListenAddresses(); !slices.Equal(got, addrs) {
		t.Errorf("listens on %v after a failed start, want %v", got, addrs)
	}
}

func TestPortZeroIsTold(t *testing.T) {
	h := real(t, 730, p2p.Options{Listen: []string{tcpAny, quicAny, "/ip4/0.0.0.0/tcp/0"}})
	got := ports(t, h.ListenAddresses())
	if len(h.ListenAddresses()) != 3 || slices.Contains(got, 0) {
		t.Errorf("ListenAddresses() = %v, want three with ports", h.ListenAddresses())
	}
	if n := h.ListenNotes(); n != nil {
		t.Errorf("ListenNotes() = %q, all is as asked", n)
	}
}

func TestListenIsChecked(t *testing.T) {
	key := make([]byte, 32)
	for _, tt := range []struct {
		name string
		o    p2p.Options
		want string
	}{
		{"no address", p2p.Options{Listen: []string{"0.0.0.0:80"}}, "0.0.0.0:80"},
		{"auto beside another", p2p.Options{Listen: []string{"auto", tcpAny}}, `"auto"`},
		{"auto told", p2p.Options{Announce: []string{"auto"}}, `"auto"`},
		{"WSS without a certificate", p2p.Options{Listen: []string{"/ip4/127.0.0.1/tcp/0/tls/ws"}}, "needs a certificate"},
		{"short key", p2p.Options{NetworkKey: key[1:]}, "network key of 31 bytes, want 32"},
		{"key and one port for two", p2p.Options{NetworkKey: key, Listen: []string{"/ip4/127.0.0.1/tcp/9", "/ip4/127.0.0.1/tcp/9/ws"}}, "cannot share a port"},
		{"key and QUIC alone", p2p.Options{NetworkKey: key, Listen: []string{quicAny}}, "want a tcp address"},
		{"a transport that is not spoken", p2p.Options{Listen: []string{"/ip4/127.0.0.1/udp/0"}}, "/ip4/127.0.0.1/udp/0"},
		{"an address of another machine", p2p.Options{Listen: []string{"/ip4/192.0.2.77/tcp/0"}}, "/ip4/192.0.2.77/tcp/0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Key, tt.o.Network = p2ptest.Key(740), "test"
			h, err := p2p.New(tt.o)
			if err == nil {
				h.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestUDPBuffers(t *testing.T) {
	want, got, ok := p2p.UDPBuffers()
	if want != 7<<20 || got < 0 || ok != (got == 0 || got >= want) {
		t.Errorf("UDPBuffers() = %d, %d, %v", want, got, ok)
	}
	t.Logf("want %d, got %d", want, got)
}
