//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spacePrefix begins the names of all network namespaces of this program; the pid of the run follows.
const spacePrefix = "natlab-"

// world is a set of network namespaces that end with the run: one that plays the internet, and what hangs on it.
type world struct {
	prefix string

	mu     sync.Mutex
	spaces []string // in the order of making
	ports  int      // of the internet's bridge
}

// internet is the namespace of the bridge that everything with a public address hangs on.
const internet = "net"

// newWorld makes the internet. The caller closes the world, also after an error.
func newWorld(ctx context.Context) (*world, error) {
	w := &world{prefix: fmt.Sprintf("%s%d-", spacePrefix, os.Getpid())}
	if err := sweep(ctx); err != nil {
		return w, err
	}
	if err := w.space(ctx, internet); err != nil {
		return w, err
	}
	return w, w.sh(ctx, internet, "ip link add br0 type bridge; ip link set br0 up")
}

// space makes a namespace.
func (w *world) space(ctx context.Context, name string) error {
	if err := command(ctx, "ip", "netns", "add", w.prefix+name); err != nil {
		return err
	}
	w.mu.Lock()
	w.spaces = append(w.spaces, w.prefix+name)
	w.mu.Unlock()
	return w.sh(ctx, name, "ip link set lo up")
}

// sh runs a script in a namespace.
func (w *world) sh(ctx context.Context, space, script string) error {
	return command(ctx, "ip", "netns", "exec", w.prefix+space, "sh", "-euc", script)
}

// online gives a namespace an interface "wan" on the internet with public addresses of number n, 1 to 250: of IPv4,
// IPv6, or both. All of the internet is one link, so nobody needs a route.
func (w *world) online(ctx context.Context, space string, n int, v4, v6 bool) error {
	w.mu.Lock()
	w.ports++
	port := fmt.Sprintf("p%d", w.ports)
	w.mu.Unlock()
	if err := command(ctx, "ip", "link", "add", "name", "wan", "netns", w.prefix+space, "type", "veth", "peer", "name", port, "netns", w.prefix+internet); err != nil {
		return err
	}
	if err := w.sh(ctx, internet, "ip link set "+port+" master br0 up"); err != nil {
		return err
	}
	script := "ip link set wan up"
	if v4 {
		script += "; ip addr add " + address4(n) + "/8 dev wan"
	}
	if v6 {
		script += "; ip addr add " + address6(n) + "/16 dev wan nodad"
	}
	return w.sh(ctx, space, script)
}

// Public addresses. They look routable to libp2p, which neither announces nor punches to those set aside for
// documentation; no packet of theirs leaves the namespaces. Each is in a range of its own, as on the internet.
func address4(n int) string { return fmt.Sprintf("11.%d.0.1", n) }
func address6(n int) string { return fmt.Sprintf("2a00:%d::1", n) }

// cable joins two namespaces: the interface "lan" of the one, with the address net.1, and "wan" of the other, with net.2,
// for which the first is the way out.
func (w *world) cable(ctx context.Context, box, behind, net string, bits int) error {
	if err := command(ctx, "ip", "link", "add", "name", "lan", "netns", w.prefix+box, "type", "veth", "peer", "name", "wan", "netns", w.prefix+behind); err != nil {
		return err
	}
	if err := w.sh(ctx, box, fmt.Sprintf("ip addr add %s.1/%d dev lan; ip link set lan up; echo 1 >/proc/sys/net/ipv4/ip_forward", net, bits)); err != nil {
		return err
	}
	return w.sh(ctx, behind, fmt.Sprintf("ip addr add %s.2/%d dev wan; ip link set wan up; ip route add default via %s.1", net, bits, net))
}

// close ends every process in the namespaces and removes them.
func (w *world) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for i := len(w.spaces) - 1; i >= 0; i-- {
		errs = append(errs, removeSpace(w.spaces[i]))
	}
	w.spaces = nil
	return errors.Join(errs...)
}

// sweep removes what runs that were killed have left. A namespace of this program names the pid of its run.
func sweep(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "ip", "netns", "list").Output()
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ok := strings.CutPrefix(name, spacePrefix)
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, removeSpace(name))
		}
	}
	return errors.Join(errs...)
}

// kill ends every process in a namespace at once and returns when they are gone.
func kill(name string) error {
	const patience = 200
	for range patience {
		out, err := exec.Command("ip", "netns", "pids", name).Output()
		if err != nil {
			return fmt.Errorf("list processes of namespace %s: %w", name, err)
		}
		if len(out) == 0 {
			return nil
		}
		for pid := range strings.FieldsSeq(string(out)) {
			if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
				_ = syscall.Kill(n, syscall.SIGKILL) // it may be gone
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("processes in namespace %s do not end", name)
}

// removeSpace ends the processes in a namespace and removes it. It takes no context: it is what follows when one ended.
func removeSpace(name string) error {
	return errors.Join(kill(name), command(context.Background(), "ip", "netns", "del", name))
}

// command runs a command; its error holds what it said.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// enter calls f in a namespace, given by its whole name. Sockets that f opens stay there for good.
func enter(space string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread, which is in the namespace now, ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends, and what /proc says of the process is said of it. While it is held, f gets another.
			done <- enter(space, f)
			runtime.UnlockOSThread()
			return
		}
		done <- func() error {
			file, err := os.Open(filepath.Join("/run/netns", space))
			if err != nil {
				return err
			}
			defer file.Close() // only read
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter namespace %s: %w", space, err)
			}
			return f()
		}()
	}()
	return <-done
}

// lacking returns why this machine cannot run the lab, "" if it can.
func lacking(ctx context.Context) string {
	for _, program := range []string{"ip", "iptables", "ip6tables"} {
		if _, err := exec.LookPath(program); err != nil {
			return "there is no program " + program
		}
	}
	w := &world{prefix: fmt.Sprintf("%s%d-", spacePrefix, os.Getpid())}
	defer w.close() // what is left of a failed try is swept by the next run
	if err := w.space(ctx, "try"); err != nil {
		return err.Error()
	}
	if err := w.sh(ctx, "try", "ip link add br0 type bridge; ip link add name v0 type veth peer name v1; iptables -t nat -A POSTROUTING -j MASQUERADE --random-fully; "+closed6); err != nil {
		return err.Error()
	}
	return ""
}
