package p2p_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

func TestOnLink(t *testing.T) {
	links := []string{"192.168.77.0/24", "fd00:77::/64", "203.0.113.0/29"}
	for _, tt := range []struct {
		name string
		in   []string
		want []string
	}{
		{"neighbours", []string{"/ip4/192.168.77.9/tcp/1", "/ip6/fd00:77::9/udp/1/quic-v1", "/ip4/203.0.113.2/tcp/1"},
			[]string{"/ip4/192.168.77.9/tcp/1", "/ip6/fd00:77::9/udp/1/quic-v1", "/ip4/203.0.113.2/tcp/1"}},
		{"strangers", []string{"/ip4/192.168.78.9/tcp/1", "/ip4/8.8.8.8/tcp/22", "/ip6/fd00:78::1/tcp/1", "/dns4/victim.example/tcp/1"}, []string{}},
		{"this computer", []string{"/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1", "/ip6/fe80::1/tcp/1"}, []string{}},
		{"relays and browsers", []string{"/ip4/192.168.77.9/tcp/1/ws",
			"/ip4/192.168.77.9/tcp/1/p2p/12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp/p2p-circuit"}, []string{}},
	} {
		if d := cmp.Diff(tt.want, p2p.OnLink(tt.in, links)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("/ip4/192.168.77.9/tcp/%d", i+1)
	}
	if n := len(p2p.OnLink(many, links)); n != 8 {
		t.Errorf("%d addresses of one neighbour are taken, want 8", n)
	}
}

func TestNeighboursFindEachOther(t *testing.T) {
	for i, tt := range []struct {
		name     string
		addrs    [2][]string
		networks [2]string
		addr     string // of the connection; "" = none is made
	}{
		{"both families", [2][]string{{"192.168.77.1/24", "fd00:77::1/64"}, {"192.168.77.2/24", "fd00:77::2/64"}}, [2]string{"home", "home"}, "77"},
		{"IPv4 only", [2][]string{{"192.168.77.1/24"}, {"192.168.77.2/24"}}, [2]string{"home", "home"}, "/ip4/192.168.77."},
		{"IPv6 only", [2][]string{{"fd00:77::1/64"}, {"fd00:77::2/64"}}, [2]string{"home", "home"}, "/ip6/fd00:77::"},
		{"the public network", [2][]string{{"192.168.77.1/24"}, {"192.168.77.2/24"}}, [2]string{"main", "main"}, "/ip4/192.168.77."},
		{"two networks", [2][]string{{"192.168.77.1/24"}, {"192.168.77.2/24"}}, [2]string{"home", "work"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLink(t, tt.addrs)
			a := l.start(0, "neighbour", fmt.Sprint("CHILD_INDEX=", 900+2*i), "CHILD_NETWORK="+tt.networks[0])
			b := l.start(1, "neighbour", fmt.Sprint("CHILD_INDEX=", 901+2*i), "CHILD_NETWORK="+tt.networks[1])
			start := time.Now()
			first := a.line(t)
			second := b.line(t)
			if tt.addr == "" {
				if first != "nobody" || second != "nobody" {
					t.Errorf("the peers met: %q, %q", first, second)
				}
				return
			}
			t.Logf("met after %v: %q, %q", time.Since(start), first, second)
			for j, line := range []string{first, second} {
				other := attest.Key(p2ptest.Key(901 + 2*i - j).Public().(ed25519.PublicKey))
				if !strings.HasPrefix(line, other.String()+" ") || !strings.Contains(line, tt.addr) {
					t.Errorf("peer %d says %q, want %s at %s", j, line, other, tt.addr)
				}
			}
		})
	}
}

func TestLoopbackTellsNobody(t *testing.T) {
	l := newLink(t, [2][]string{{"192.168.77.1/24"}, {"192.168.77.2/24"}})
	p := l.start(0, "loopback")
	var beside, alone int
	if _, err := fmt.Sscan(p.line(t), &beside, &alone); err != nil || beside == 0 || alone != 0 {
		t.Errorf("%d multicast sockets of a peer on loopback and one on all addresses, %d of the former alone, %v; want some and 0", beside, alone, err)
	}
}

// TestNoMulticast has a peer say that it cannot look for others, and run all the same.
func TestNoMulticast(t *testing.T) {
	l := newLink(t, [2][]string{{"192.168.77.1/24"}, {"192.168.77.2/24"}})
	l.ip("-n", l.names[0], "link", "set", "eth0", "multicast", "off")
	if line := l.start(0, "deaf").line(t); !strings.HasPrefix(line, "peers on the local network cannot be found by multicast: ") {
		t.Errorf("the peer notes %q", line)
	}
}

// deaf says what a peer notes about how it listens.
func deaf() error {
	h, err := p2p.New(p2p.Options{Key: p2ptest.Key(932), Network: "home", LAN: true, MDNS: true, Listen: []string{"/ip4/0.0.0.0/tcp/0"}})
	if err != nil {
		return err
	}
	defer h.Close()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range 250 {
		if notes := h.ListenNotes(); len(notes) > 0 {
			fmt.Println(strings.Join(notes, "; "))
			return nil
		}
		<-ticker.C
	}
	fmt.Println("nothing")
	return nil
}

// multicastSockets counts the UDP sockets of mDNS in this network namespace.
func multicastSockets() int {
	n := 0
	for _, table := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		b, err := os.ReadFile(table)
		if err == nil {
			n += strings.Count(string(b), ":14E9 ") // 5353
		}
	}
	return n
}

// neighbour starts a peer that looks for others, says on standard output whom it met, and waits for the end of its
// input.
func neighbour() error {
	var i int
	if _, err := fmt.Sscan(os.Getenv("CHILD_INDEX"), &i); err != nil {
		return err
	}
	h, err := p2p.New(p2p.Options{Key: p2ptest.Key(i), Network: os.Getenv("CHILD_NETWORK"), LAN: os.Getenv("CHILD_NETWORK") != "main", MDNS: true, Listen: []string{p2p.ListenAuto}})
	if err != nil {
		return err
	}
	met := make(chan string, 16)
	h.Libp2p().Network().Notify(&network.NotifyBundle{ConnectedF: func(_ network.Network, c network.Conn) {
		select {
		case met <- c.RemotePeer().String() + " " + c.RemoteMultiaddr().String():
		default:
		}
	}})
	for _, p := range h.Peers() { // met before we listened
		met <- p.Key.String() + " " + p.Addr
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	select {
	case who := <-met:
		fmt.Println(who)
	case <-ctx.Done():
		fmt.Println("nobody")
	}
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	if !errors.Is(err, io.EOF) {
		return err
	}
	start := time.Now()
	if err := h.Close(); err != nil {
		return err
	}
	if d := time.Since(start); d > 3*time.Second {
		return fmt.Errorf("close took %v", d)
	}
	return nil
}

// loopback says how many multicast sockets a peer has that listens on loopback, beside one that listens everywhere.
func loopback() error {
	quiet, err := p2p.New(p2p.Options{Key: p2ptest.Key(930), Network: "home", LAN: true, MDNS: true, Listen: []string{tcpAny, quicAny}})
	if err != nil {
		return err
	}
	defer quiet.Close()
	loud, err := p2p.New(p2p.Options{Key: p2ptest.Key(931), Network: "home", LAN: true, MDNS: true, Listen: []string{"/ip4/0.0.0.0/tcp/0"}})
	if err != nil {
		return err
	}
	before := 0
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range 250 {
		if before = multicastSockets(); before > 0 {
			break
		}
		<-ticker.C
	}
	if err := loud.Close(); err != nil {
		return err
	}
	fmt.Println(before, multicastSockets())
	return nil
}
