package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// listen is the key of addresses to listen on.
func listen(name, def, comment string, p *[]string) key {
	k := texts(name, def, comment, p, func(s string) error {
		if s == p2p.ListenAuto {
			return nil
		}
		return checkAddr(s)
	})
	set := k.set
	k.set = func(list []string) error {
		if len(list) > 1 && slices.Contains(list, p2p.ListenAuto) {
			return errors.New("auto stands for all addresses: want it alone, or addresses without it")
		}
		return set(list)
	}
	return k
}

// checkAddr finds the common slips in a multiaddr; p2p, which binds or dials it, has the last word.
func checkAddr(s string) error {
	part := strings.Split(s, "/")
	bad := fmt.Errorf("address %.120q: want for example /ip4/0.0.0.0/tcp/4711, /ip4/0.0.0.0/udp/4711/quic-v1 or /ip4/0.0.0.0/tcp/443/tls/ws", s)
	if len(part) < 5 || part[0] != "" || !transport(part[3], part[5:]) {
		return bad
	}
	if _, err := strconv.ParseUint(part[4], 10, 16); err != nil {
		return bad
	}
	switch part[1] {
	case "ip4", "ip6":
		if a, err := netip.ParseAddr(part[2]); err != nil || a.Is4() != (part[1] == "ip4") || a.Zone() != "" {
			return bad
		}
	case "dns", "dns4", "dns6":
		if part[2] == "" {
			return bad
		}
	default:
		return bad
	}
	return nil
}

// transport reports whether the parts of a multiaddr after its port name something that a peer speaks.
func transport(network string, rest []string) bool {
	switch above := strings.Join(rest, "/"); {
	case network == "udp":
		return above == "quic-v1"
	case network != "tcp":
		return false
	case len(rest) == 4: // the name in the certificate, where it is not the one that is dialled
		return rest[0] == "tls" && rest[1] == "sni" && rest[2] != "" && rest[3] == "ws"
	default:
		return above == "" || above == "ws" || above == "wss" || above == "tls/ws"
	}
}

// checkAnnounce reports an address that leads nobody here, on whatever network.
func checkAnnounce(s string) error {
	if err := checkAddr(s); err != nil {
		return err
	}
	ip, port := endpoint(s)
	switch {
	case port == "0":
		return fmt.Errorf("address %.120q: nobody can dial port 0", s)
	case ip.IsUnspecified():
		return fmt.Errorf("address %.120q: it stands for all addresses of this machine, so nobody can dial it: want the one that others dial", s)
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("address %.120q: it leads to a group, not to this machine", s)
	}
	return nil
}

// endpoint returns the IP address, invalid if it has a name instead, and the port of an address that checkAddr takes. The
// port is without zeros before it.
func endpoint(s string) (netip.Addr, string) {
	part := strings.Split(s, "/")
	ip, _ := netip.ParseAddr(part[2])
	port, _ := strconv.ParseUint(part[4], 10, 16)
	return ip.Unmap(), strconv.FormatUint(port, 10)
}

// PeerAddr splits an address that ends in /p2p/PEER into what is dialled, without that end, and the peer. The way may lead
// through a relay: /ip4/192.0.2.1/tcp/4711/p2p/RELAY/p2p-circuit/p2p/PEER.
func PeerAddr(s string) (addr string, peer attest.Key, err error) {
	addr, peer, err = cutPeer(s)
	if err != nil {
		return "", peer, err
	}
	if relay, ok := strings.CutSuffix(addr, "/p2p-circuit"); ok {
		if relay, _, err = cutPeer(relay); err != nil {
			return "", peer, err
		}
		return addr, peer, checkAddr(relay)
	}
	return addr, peer, checkAddr(addr)
}

func cutPeer(s string) (addr string, peer attest.Key, err error) {
	i := strings.LastIndex(s, "/p2p/") // a relay on the way is named before
	if i < 0 {
		return "", peer, fmt.Errorf("%.160q: want an invite (lacuna1…), or an address such as /ip4/192.0.2.1/tcp/4711/p2p/12D3KooW…", s)
	}
	peer, err = attest.ParseKey(s[i+len("/p2p/"):])
	return s[:i], peer, err
}

func checkBootstrap(s string) error {
	if strings.HasPrefix(s, "/") {
		_, _, err := PeerAddr(s)
		return err
	}
	_, err := p2p.ParseInvite(s)
	return err
}
