package p2p

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lacuna-network/lacuna/market"
)

// bridges are how interfaces begin that only lead to containers and virtual machines of this computer.
var bridges = []string{"docker", "br-", "veth", "virbr", "cni", "podman", "flannel", "vmnet"}

// standing is what decides which of the own addresses others are told.
type standing struct {
	everything bool           // all that there is: a test network, whose peers may share a computer
	lan        bool           // private addresses too
	fixed      []ma.Multiaddr // these instead of the own ones; none = the own ones
	own        map[netip.Addr]bool
	hidden     map[netip.Addr]bool // addresses of bridges
	nets       []netip.Prefix      // ranges of the interfaces: what lies in them is a neighbour
	worked     map[string]bool     // addresses that others have dialled, as text
	failed     map[string]bool     // addresses that others could not dial
	relayed    []ma.Multiaddr      // circuit addresses
	verdict    market.Reach
}

// told returns which of addrs, and of the circuit addresses, others are told. On a public network nobody else can use
// loopback, link-local, container-bridge and private addresses, and whoever tries meets itself or a stranger. Of public
// ones, those on an own interface are told until they are known to fail. One that is only how others see this peer (a
// router's mapping, or a port that is open towards one peer alone) is told once somebody has dialled it.
func (s standing) told(addrs []ma.Multiaddr) []ma.Multiaddr {
	var out []ma.Multiaddr
	add := func(m ma.Multiaddr) {
		if !slices.ContainsFunc(out, m.Equal) {
			out = append(out, m)
		}
	}
	switch {
	case len(s.fixed) > 0:
		for _, m := range s.fixed {
			add(m)
		}
	default:
		// What others see is not among addrs until many of them do.
		for _, m := range slices.Concat(addrs, parseAll(slices.Sorted(maps.Keys(s.worked)))) {
			if !circuit(m) && s.tell(m) {
				add(m)
			}
		}
	}
	if s.verdict != market.ReachDirect {
		for _, m := range s.relayed {
			add(m)
		}
	}
	return out
}

func (s standing) tell(m ma.Multiaddr) bool {
	if s.everything {
		return true
	}
	ip, ok := addrIP(m)
	switch {
	case local(m) || s.failed[m.String()] || (ok && s.hidden[ip]):
		return false
	case s.worked[m.String()]:
		return true
	case !manet.IsPublicAddr(m):
		return s.lan
	}
	return ok && s.own[ip]
}

// addrIP returns the IP address that a multiaddr begins with.
func addrIP(m ma.Multiaddr) (netip.Addr, bool) {
	ip, err := manet.ToIP(m)
	if err != nil {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

// Bits of the address range that one household or rack has, for [AddrRange].
const (
	SiteV4 = 24
	SiteV6 = 48
)

// AddrRange names the range that a multiaddr lies in, of so many bits of IPv4 or IPv6; of one through a relay, the
// relay's. One that begins with a name is that name alone, and what is no multiaddr stands for itself.
func AddrRange(addr string, v4, v6 int) string {
	m, err := ma.NewMultiaddr(addr)
	if err != nil {
		return addr
	}
	ip, ok := addrIP(m)
	if !ok {
		first, _ := ma.SplitFirst(m)
		return first.String()
	}
	bits := v6
	if ip.Is4() {
		bits = v4
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return addr
	}
	return p.String()
}

// ComputerAddrs returns the IP addresses that lead off this computer, in no order: not those of loopback, nor link-local
// ones or those of bridges, which come and go with each container.
func ComputerAddrs() ([]string, error) {
	own, _, _, err := readInterfaces()
	if err != nil {
		return nil, fmt.Errorf("read addresses of interfaces: %w", err)
	}
	var out []string
	for ip := range own {
		if !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			out = append(out, ip.String())
		}
	}
	return out, nil
}

// interfaces returns the addresses of this computer, and those of interfaces that lead nowhere else. Where they cannot
// be read, nothing counts as own or hidden: then an address is told once somebody has dialled it. nets are the ranges of
// own.
func interfaces() (own, hidden map[netip.Addr]bool, nets []netip.Prefix) {
	own, hidden, nets, _ = readInterfaces()
	return own, hidden, nets
}

func readInterfaces() (own, hidden map[netip.Addr]bool, nets []netip.Prefix, err error) {
	own, hidden = make(map[netip.Addr]bool), make(map[netip.Addr]bool)
	all, err := net.Interfaces()
	if err != nil {
		return own, hidden, nil, err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		to, bridge := own, false
		if slices.ContainsFunc(bridges, func(prefix string) bool { return strings.HasPrefix(i.Name, prefix) }) {
			to, bridge = hidden, true
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					to[ip.Unmap()] = true
					if ones, _ := n.Mask.Size(); !bridge {
						nets = append(nets, prefixOf(ip.Unmap(), ones))
					}
				}
			}
		}
	}
	return own, hidden, nets, nil
}

// circuit reports an address that leads through a relay.
func circuit(m ma.Multiaddr) bool {
	_, err := m.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil
}

// local reports an address that means another thing on each computer.
func local(m ma.Multiaddr) bool {
	ip, err := manet.ToIP(m)
	return err == nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast())
}

// parseAll parses the multiaddrs that [Options] has checked.
func parseAll(addrs []string) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, s := range addrs {
		if m, err := ma.NewMultiaddr(s); err == nil {
			out = append(out, m)
		}
	}
	return out
}

// dialable leaves out addresses that a stranger may name to make this peer knock at its own doors, or at those of others
// in its house. On a test network all peers may live on this computer, so nothing is left out.
func (h *Host) dialable(addrs []ma.Multiaddr) []ma.Multiaddr {
	if h.testnet {
		return addrs
	}
	return slices.DeleteFunc(addrs, func(m ma.Multiaddr) bool { return local(m) || !h.lan && !manet.IsPublicAddr(m) })
}
