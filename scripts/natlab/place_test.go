//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// quiet is how long a packet that must not come is waited for. On one machine it would be there in a millisecond.
const quiet = 300 * time.Millisecond

// testWorld is a world for one test, with observers on the internet.
func testWorld(t *testing.T) *world {
	t.Helper()
	if reason := lacking(t.Context()); reason != "" {
		requiretest.Skip(t, "netns", reason)
	}
	w, err := newWorld(t.Context())
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// found is what probes find out about a place.
type found struct {
	UDP, Steady, OpenUDP, TCP, SteadyTCP, OpenTCP, Proxy bool
}

func TestPlacesAreWhatTheyAreCalled(t *testing.T) {
	w := testWorld(t)
	for i, name := range []string{"one", "two"} {
		if err := errors.Join(w.space(t.Context(), name), w.online(t.Context(), name, 201+i, true, true)); err != nil {
			t.Fatal(err)
		}
	}
	for i, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			if err := k.build(t.Context(), w, k.name, i+1); err != nil {
				t.Fatal(err)
			}
			p := &prober{t: t, w: w, v6: k.can.v6 && !k.can.v4}
			got := found{}
			got.UDP, got.Steady, got.OpenUDP = p.udp(k.name)
			got.TCP, got.SteadyTCP, got.OpenTCP = p.tcp(k.name)
			if k.proxy {
				got.Proxy = p.proxy(k.name)
			}
			c := k.can
			want := found{UDP: c.udp, Steady: c.udp && c.steady, OpenUDP: c.udp && c.open, TCP: c.tcp, SteadyTCP: c.tcp && c.steady, OpenTCP: c.tcp && c.open, Proxy: k.proxy}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// prober sends packets from a place to the observers "one" and "two".
type prober struct {
	t  *testing.T
	w  *world
	v6 bool
}

// in calls f in a namespace.
func (p *prober) in(space string, f func() error) {
	p.t.Helper()
	if err := enter(p.w.prefix+space, f); err != nil {
		p.t.Fatal(err)
	}
}

func (p *prober) addr(observer int) netip.AddrPort {
	ip := address4(200 + observer)
	if p.v6 {
		ip = address6(200 + observer)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(ip), 7000)
}

func (p *prober) udpSocket(space string, port int) *net.UDPConn {
	p.t.Helper()
	var c *net.UDPConn
	p.in(space, func() (err error) {
		c, err = net.ListenUDP("udp", &net.UDPAddr{Port: port})
		return err
	})
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// heard returns who sent the next packet, the zero value if nobody did.
func (p *prober) heard(c *net.UDPConn) netip.AddrPort {
	p.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(quiet)); err != nil {
		p.t.Fatal(err)
	}
	_, from, err := c.ReadFromUDPAddrPort(make([]byte, 8))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatal(err)
	}
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

func (p *prober) udp(place string) (out, steady, open bool) {
	inside := p.udpSocket(place, peerPort)
	one, two, stranger := p.udpSocket("one", 7000), p.udpSocket("two", 7000), p.udpSocket("two", 7001)
	say := func(c *net.UDPConn, to netip.AddrPort) {
		if !to.IsValid() {
			return
		}
		if _, err := c.WriteToUDPAddrPort([]byte("x"), to); err != nil && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENETUNREACH) {
			p.t.Fatal(err)
		}
	}
	// Before anything went out, a stranger knocks: that must not change how the router maps what comes later.
	say(stranger, netip.AddrPortFrom(p.addr(1).Addr(), peerPort))
	say(inside, p.addr(1))
	first := p.heard(one)
	say(one, first)
	if first.IsValid() && !p.heard(inside).IsValid() {
		p.t.Error("an answer does not come back")
	}
	say(stranger, first)
	open = p.heard(inside).IsValid()
	say(inside, p.addr(2))
	second := p.heard(two)
	return first.IsValid(), first.IsValid() && first == second, open
}

// dial connects with peerPort as the source, as a libp2p host does.
func (p *prober) dial(space string, to netip.AddrPort) (net.Conn, error) {
	var c net.Conn
	err := enter(p.w.prefix+space, func() (err error) {
		d := net.Dialer{Timeout: quiet, Control: reuse}
		if to.Port() == 7000 {
			d.LocalAddr = &net.TCPAddr{Port: peerPort}
		}
		c, err = d.Dial("tcp", to.String())
		return err
	})
	if err == nil {
		p.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func reuse(_, _ string, c syscall.RawConn) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) {
		const reusePort = 15
		err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1))
	}), err)
}

func (p *prober) listen(space string, port int) net.Listener {
	p.t.Helper()
	var l net.Listener
	p.in(space, func() (err error) {
		l, err = (&net.ListenConfig{Control: reuse}).Listen(p.t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	p.t.Cleanup(func() { _ = l.Close() })
	return l
}

// from returns where a connection to the observer comes from, as the observer sees it.
func (p *prober) from(place string, observer int, l net.Listener) netip.AddrPort {
	p.t.Helper()
	if _, err := p.dial(place, p.addr(observer)); err != nil {
		return netip.AddrPort{}
	}
	c, err := l.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	return netip.MustParseAddrPort(c.RemoteAddr().String())
}

func (p *prober) tcp(place string) (out, steady, open bool) {
	_ = p.listen(place, peerPort)
	first, second := p.from(place, 1, p.listen("one", 7000)), p.from(place, 2, p.listen("two", 7000))
	if !first.IsValid() {
		return false, false, false
	}
	_, err := p.dial("two", first)
	return true, first == second, err == nil
}

func (p *prober) proxy(place string) bool {
	ctx, cancel := context.WithCancel(p.t.Context())
	var group sync.WaitGroup
	p.t.Cleanup(func() { cancel(); group.Wait() })
	if err := serveProxy(ctx, p.w.prefix+router(place), lanNet+".1", &group); err != nil {
		p.t.Fatal(err)
	}
	l := p.listen("one", 7443)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	c, err := p.dial(place, netip.MustParseAddrPort(fmt.Sprintf("%s.1:%d", lanNet, proxyPort)))
	if err != nil {
		p.t.Error(err)
		return false
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(c, "CONNECT %s:7443 HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address4(201)); err != nil {
		p.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Errorf("CONNECT: %v, %v", res, err)
		return false
	}
	if _, err := io.WriteString(c, "echo\n"); err != nil {
		p.t.Fatal(err)
	}
	line, err := r.ReadString('\n')
	return err == nil && line == "echo\n"
}
