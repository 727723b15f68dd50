package p2p

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// holderPatience bounds the walk through /proc: a machine with a hundred thousand open files must not delay a start.
const holderPatience = 2 * time.Second

// portPrivilege says what it takes to open a low port.
func portPrivilege() string {
	from := 1024
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			from = n
		}
	}
	return fmt.Sprintf(": CAP_NET_BIND_SERVICE, for ports below %d (setcap cap_net_bind_service=+ep PROGRAM, or AmbientCapabilities= of systemd)", from)
}

// portHolder finds who has a port open: the socket by /proc/net, its process by the open files of all. What belongs to
// another user is hidden from ours; then only that user is told.
func portHolder(network, host string, port int) (pid int, process, owner string) {
	want, err := netip.ParseAddr(host)
	if err != nil {
		want = netip.IPv4Unspecified() // a name: any address
	}
	protocol := strings.TrimRight(network, "46")
	tables := []string{protocol, protocol + "6"}
	if want.Is6() {
		tables = tables[1:]
	}
	var inodes []string
	for _, table := range tables {
		if len(inodes) > 0 {
			break // the same family is the better answer
		}
		for _, s := range readSockets("/proc/net/" + table) {
			// A socket on one address stands in the way of those on all, and one on all of IPv6 also in IPv4's.
			same := s.addr == want || s.addr.IsUnspecified() || want.IsUnspecified() && s.addr.Is4() == want.Is4()
			if s.port != port || !same || protocol == "tcp" && s.state != tcpListen {
				continue
			}
			inodes = append(inodes, "socket:["+s.inode+"]")
			if u, err := user.LookupId(s.uid); err == nil {
				owner = u.Username
			} else {
				owner = s.uid
			}
		}
	}
	if len(inodes) == 0 {
		return 0, "", ""
	}
	pid, process = fileHolder(inodes)
	if pid != 0 {
		owner = ""
	}
	return pid, process, owner
}

// fileHolder returns a process that has one of these files open.
func fileHolder(links []string) (int, string) {
	deadline := time.Now().Add(holderPatience)
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, ""
	}
	for _, dir := range processes {
		if time.Now().After(deadline) {
			break
		}
		files, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue // another user's, or gone
		}
		for _, f := range files {
			link, err := os.Readlink(dir + "/fd/" + f.Name())
			if err != nil || !slices.Contains(links, link) {
				continue
			}
			name, err := os.ReadFile(dir + "/comm")
			pid, numErr := strconv.Atoi(filepath.Base(dir))
			if err == nil && numErr == nil {
				return pid, strings.TrimSpace(string(name))
			}
		}
	}
	return 0, ""
}

const tcpListen = "0A"

// socket is one line of /proc/net/tcp and its like.
type socket struct {
	addr       netip.Addr
	port       int
	state      string
	uid, inode string
}

func readSockets(path string) []socket {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close() // only read
	var out []socket
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if s, ok := parseSocket(lines.Text()); ok {
			out = append(out, s)
		}
	}
	return out
}

// parseSocket reads "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …", where an address is
// its 32-bit words in the machine's byte order, in hexadecimal. All machines that Lacuna runs on are little-endian.
func parseSocket(line string) (socket, bool) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return socket{}, false
	}
	host, port, ok := strings.Cut(f[1], ":")
	raw, err := hex.DecodeString(host)
	n, numErr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || numErr != nil || len(raw)%4 != 0 {
		return socket{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return socket{addr: addr.Unmap(), port: int(n), state: f[3], uid: f[7], inode: f[9]}, ok
}
