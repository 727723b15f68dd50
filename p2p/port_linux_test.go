package p2p_test

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

func TestTakenPortNamesAnotherProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "LACUNA_P2P_CHILD=hold")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(strings.TrimSpace(line))
	h, err := p2p.New(p2p.Options{Key: p2ptest.Key(702), Network: "test", Listen: []string{"/ip4/127.0.0.1/tcp/" + port}})
	if err == nil {
		h.Close()
	}
	var e *p2p.PortError
	if !errors.As(err, &e) || e.PID != cmd.Process.Pid || e.Process != name() {
		t.Errorf("New = %v, want the port taken by %s (pid %d)", err, name(), cmd.Process.Pid)
	}
}

// unprivileged runs f on a thread that may not open low ports, and that ends with it.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is thrown away
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1 << unix.CAP_NET_BIND_SERVICE
			err = unix.Capset(&header, &caps[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestLowPortNamesThePrivilege(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil || strings.TrimSpace(string(b)) == "0" {
		requiretest.Skip(t, "ports", "this system lets everybody open low ports")
	}
	for _, tt := range []struct{ name, listen, want string }{
		{"tcp", "/ip4/127.0.0.1/tcp/80", "tcp port 80 on 127.0.0.1 needs a privilege that this process lacks: CAP_NET_BIND_SERVICE"},
		{"wss", "/ip4/0.0.0.0/tcp/443/tls/ws", "tcp port 443 on 0.0.0.0 needs a privilege"},
		{"udp", "/ip6/::1/udp/443/quic-v1", "udp port 443 on ::1 needs a privilege"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, _ := secure(t)
			unprivileged(t, func() {
				h, err := p2p.New(p2p.Options{Key: p2ptest.Key(760), Network: "test", TLS: server, Listen: []string{tcpAny, tt.listen}})
				if err == nil {
					h.Close()
				}
				var e *p2p.PortError
				if !errors.As(err, &e) || e.Taken() || !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("New = %v, want one line with %q", err, tt.want)
				}
			})
		})
	}
}

func FuzzParseSocket(f *testing.F) {
	f.Add("   0: 0100007F:1267 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 0000000000000000 100 0 0 10 0")
	f.Add("   1: 00000000000000000000000001000000:14E9 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 7 2 0 0")
	f.Fuzz(func(t *testing.T, line string) {
		addr, port, inode, ok := p2p.ParseSocket(line)
		if ok && (!addr.IsValid() || port < 0 || port > 65535 || inode == "") {
			t.Errorf("ParseSocket(%q) = %v, %d, %q", line, addr, port, inode)
		}
	})
}

func TestParseSocket(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"header", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", ""},
		{"IPv4", "   0: 0100007F:1267 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 0", "127.0.0.1:4711 31337"},
		{"IPv6", "   0: 000000FD000000007700000001000000:1267 00000000000000000000000000000000:0000 0A 0:0 00:0 0  0        0 9 1 0", "[fd00::77:0:1]:4711 9"},
		{"IPv4 in IPv6", "   0: 0000000000000000FFFF00000100007F:0050 0:0 0A 0:0 00:0 0  0        0 9 1 0", "127.0.0.1:80 9"},
		{"odd address", "   0: 0100:1267 0:0 0A 0:0 00:0 0  0        0 9 1 0", ""},
	} {
		addr, port, inode, ok := p2p.ParseSocket(tt.line)
		got := ""
		if ok {
			got = netip.AddrPortFrom(addr, uint16(port)).String() + " " + inode
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
