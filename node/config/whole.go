package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lacuna-network/lacuna/market"
)

// whole reports values that do not go together. It is for a settled config.
func (c *Config) whole() error {
	n := &c.Network
	var errs []error
	if n.Profile == "hub" && !n.Hub {
		errs = append(errs, errors.New("network.hub: no, but network.profile: hub; want one or the other"))
	}
	if (n.TLSCert == "") != (n.TLSKey == "") {
		errs = append(errs, errors.New("network.tls_cert and network.tls_key: one is set and the other is not; want both, or none"))
	}
	return errors.Join(append(errs, c.checkLoopback(), checkOverlap(n.Listen))...)
}

// checkLoopback reports addresses told to others that lead each of them to itself. On a test network all peers may be on
// one machine.
func (c *Config) checkLoopback() error {
	if market.IsTestNetwork(c.Network.Name) {
		return nil
	}
	for _, s := range c.Network.Announce {
		if ip, _ := endpoint(s); ip.IsLoopback() || strings.HasPrefix(s, "/dns") && strings.Split(s, "/")[2] == "localhost" {
			return fmt.Errorf("network.announce: address %.120q: it leads only to this machine itself, which is of use on test networks alone; this one is %q", s, c.Network.Name)
		}
	}
	return nil
}

// checkOverlap reports two addresses to listen on that want the same port of the same machine address. The system would
// call the port taken, though by this process itself. TCP and WebSocket may share one address.
func checkOverlap(listen []string) error {
	for i, a := range listen {
		for _, b := range listen[:i] {
			if overlap(a, b) {
				return fmt.Errorf("network.listen: %s and %s overlap: one stands for all addresses of this machine, the other's too; want one of them, or another port", b, a)
			}
		}
	}
	return nil
}

func overlap(a, b string) bool {
	if a == b || !strings.HasPrefix(a, "/") || !strings.HasPrefix(b, "/") { // auto stands alone
		return false
	}
	ipA, portA := endpoint(a)
	ipB, portB := endpoint(b)
	same := func(i int) bool { return strings.Split(a, "/")[i] == strings.Split(b, "/")[i] }
	return portA == portB && portA != "0" && same(1) && same(3) && ipA.IsUnspecified() != ipB.IsUnspecified() && ipA.IsValid() && ipB.IsValid()
}
