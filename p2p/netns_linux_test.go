package p2p_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// childrenHere are the roles of children that only Linux has.
var childrenHere = map[string]func() error{"neighbour": neighbour, "loopback": loopback, "auto": auto, "deaf": deaf}

// link is two network namespaces with one cable between them.
type link struct {
	t     *testing.T
	names [2]string
}

// newLink makes a link whose ends have these addresses.
func newLink(t *testing.T, addrs [2][]string) *link {
	t.Helper()
	if os.Getuid() != 0 {
		requiretest.Skip(t, "netns", "network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		requiretest.Skip(t, "netns", err.Error())
	}
	l := &link{t: t}
	for i := range l.names {
		l.names[i] = fmt.Sprintf("lacuna-%d-%d", os.Getpid(), i)
		if out, err := exec.Command("ip", "netns", "add", l.names[i]).CombinedOutput(); err != nil {
			requiretest.Skip(t, "netns", "the system makes none: "+strings.TrimSpace(string(out)))
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.names[i]).Run() })
	}
	l.ip("-n", l.names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", l.names[1])
	for i, name := range l.names {
		l.ip("-n", name, "link", "set", "lo", "up")
		l.ip("-n", name, "link", "set", "eth0", "up")
		for _, a := range addrs[i] {
			args := []string{"-n", name, "addr", "add", a, "dev", "eth0"}
			if strings.Contains(a, ":") {
				args = append(args, "nodad") // else the address cannot be bound for two seconds
			}
			l.ip(args...)
		}
	}
	return l
}

func (l *link) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// peerProcess is a child process at one end of a link.
type peerProcess struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Reader
}

// start runs a role at an end of the link.
func (l *link) start(end int, role string, env ...string) *peerProcess {
	l.t.Helper()
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	p := &peerProcess{cmd: exec.Command("ip", "netns", "exec", l.names[end], self)}
	p.cmd.Env = append(append(os.Environ(), "LACUNA_P2P_CHILD="+role), env...)
	p.cmd.Stderr = l.t.Output()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	p.in, p.lines = in, bufio.NewReader(out)
	l.t.Cleanup(func() { p.end(l.t) })
	return p
}

// end lets the process end in order.
func (p *peerProcess) end(t *testing.T) {
	if p.in == nil {
		return
	}
	p.in.Close()
	p.in = nil
	if err := p.cmd.Wait(); err != nil && !t.Failed() {
		t.Errorf("child: %v", err)
	}
}

func (p *peerProcess) line(t *testing.T) string {
	t.Helper()
	s, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	return strings.TrimSpace(s)
}

// TestAutoInANetworkOfItsOwn knows which ports are taken, which on a machine with other programs nobody does.
func TestAutoInANetworkOfItsOwn(t *testing.T) {
	const (
		four = "/ip4/0.0.0.0/tcp/%[1]d /ip4/0.0.0.0/udp/%[1]d/quic-v1"
		six  = "/ip6/::/tcp/%[1]d /ip6/::/udp/%[1]d/quic-v1"
		all  = four + " " + six
	)
	taken := func(network, addr string, port, at int) string {
		return fmt.Sprintf("%s port %d on %s is taken by %s (pid PID); listening on port %d", network, port, addr, name(), at)
	}
	for _, tt := range []struct {
		name, busy string
		without    string // a family that the system does not have
		want, note string
	}{
		{"free", "", "", fmt.Sprintf(all, 4711), ""},
		{"TCP taken, UDP free", "/ip4/0.0.0.0/tcp/4711", "", fmt.Sprintf(all, 4712), taken("tcp", "0.0.0.0", 4711, 4712)},
		{"UDP taken, TCP free", "/ip4/192.168.77.1/udp/4711/quic-v1", "", fmt.Sprintf(all, 4712), taken("udp", "0.0.0.0", 4711, 4712)},
		{"IPv6 taken", "/ip6/::1/tcp/4711", "", fmt.Sprintf(all, 4712), taken("tcp", "::", 4711, 4712)},
		{"two in a row", "/ip4/0.0.0.0/tcp/4711 /ip6/::/udp/4712/quic-v1", "", fmt.Sprintf(all, 4713), taken("tcp", "0.0.0.0", 4711, 4713)},
		{"no IPv6", "", "ip6", fmt.Sprintf(four, 4711), "this machine has no IPv6, so there is no listening on it"},
		{"no IPv4", "", "ip4", fmt.Sprintf(six, 4711), "this machine has no IPv4, so there is no listening on it"},
		{"no IPv6, and UDP taken", "/ip4/0.0.0.0/udp/4711/quic-v1", "ip6", fmt.Sprintf(four, 4712),
			"this machine has no IPv6, so there is no listening on it; " + taken("udp", "0.0.0.0", 4711, 4712)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLink(t, [2][]string{{"192.168.77.1/24"}, {"192.168.77.2/24"}})
			p := l.start(0, "auto", "CHILD_BUSY="+tt.busy, "CHILD_WITHOUT="+tt.without)
			got, note := p.line(t), p.line(t)
			pid := fmt.Sprintf("(pid %d)", p.cmd.Process.Pid) // ip execs the child in its place
			if want := strings.Replace(tt.note, "(pid PID)", pid, 1); got != tt.want || note != want {
				t.Errorf("listens on %q, notes %q; want %q, %q", got, note, tt.want, want)
			}
		})
	}
}

// auto says where a peer listens by default while other sockets are open, and its notes.
func auto() error {
	if busy := strings.Fields(os.Getenv("CHILD_BUSY")); len(busy) > 0 {
		other, err := p2p.New(p2p.Options{Key: p2ptest.Key(950), Network: "test", Listen: busy})
		if err != nil {
			return err
		}
		defer other.Close()
	}
	switch os.Getenv("CHILD_WITHOUT") {
	case "ip4":
		if err := forbid(unix.AF_INET); err != nil {
			return err
		}
	case "ip6":
		if err := forbid(unix.AF_INET6); err != nil {
			return err
		}
	}
	h, err := p2p.New(p2p.Options{Key: p2ptest.Key(951), Network: "test", Listen: []string{p2p.ListenAuto}})
	if err != nil {
		return err
	}
	defer h.Close()
	fmt.Println(strings.Join(h.ListenAddresses(), " "))
	fmt.Println(strings.Join(h.ListenNotes(), "; "))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// forbid makes the system refuse sockets of a family to this process, as a kernel without it does.
func forbid(family uint32) error {
	const number, firstArgument = 0, 16 // offsets in struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	program := []unix.SockFilter{
		load(number),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		load(firstArgument),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: family},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return errno
	}
	return nil
}
