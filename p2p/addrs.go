package p2p

import (
	"net"
	"slices"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// bridges are how interfaces begin that only lead to containers and virtual machines of this computer.
var bridges = []string{"docker", "br-", "veth", "virbr", "cni", "podman", "flannel", "vmnet"}

// announced returns the function that picks which addresses other peers are told. On a public network no one else can
// use loopback, link-local or container-bridge addresses, and whoever tries meets itself or a stranger.
func (o *Options) announced() func([]ma.Multiaddr) []ma.Multiaddr {
	var fixed []ma.Multiaddr
	for _, s := range o.Announce {
		if m, err := ma.NewMultiaddr(s); err == nil {
			fixed = append(fixed, m)
		}
	}
	if len(fixed) > 0 {
		return func([]ma.Multiaddr) []ma.Multiaddr { return slices.Clone(fixed) }
	}
	if o.Testnet {
		return func(addrs []ma.Multiaddr) []ma.Multiaddr { return addrs }
	}
	hidden := bridgeIPs()
	return func(addrs []ma.Multiaddr) []ma.Multiaddr {
		return slices.DeleteFunc(slices.Clone(addrs), func(m ma.Multiaddr) bool {
			ip, err := manet.ToIP(m)
			return local(m) || (err == nil && slices.ContainsFunc(hidden, ip.Equal))
		})
	}
}

// bridgeIPs returns this computer's addresses on interfaces that lead nowhere else.
func bridgeIPs() []net.IP {
	var out []net.IP
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil // then such an address is told; it costs others a dial that fails
	}
	for _, i := range interfaces {
		if !slices.ContainsFunc(bridges, func(prefix string) bool { return strings.HasPrefix(i.Name, prefix) }) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				out = append(out, n.IP)
			}
		}
	}
	return out
}

// local reports an address that means another thing on each computer.
func local(m ma.Multiaddr) bool {
	ip, err := manet.ToIP(m)
	return err == nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast())
}

// dialable leaves out addresses that a stranger may name to make this peer knock at its own doors. On a test network
// all peers may live on this computer, so nothing is left out.
func (h *Host) dialable(addrs []ma.Multiaddr) []ma.Multiaddr {
	if h.testnet {
		return addrs
	}
	return slices.DeleteFunc(addrs, local)
}
