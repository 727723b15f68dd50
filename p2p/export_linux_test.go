package p2p

import "net/netip"

// ParseSocket reads a line of /proc/net/tcp.
func ParseSocket(line string) (addr netip.Addr, port int, inode string, ok bool) {
	s, ok := parseSocket(line)
	return s.addr, s.port, s.inode, ok
}
