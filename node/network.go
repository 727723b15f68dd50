package node

import (
	"crypto/ed25519"

	"github.com/lacuna-network/lacuna/p2p"
)

// openHost starts this peer's host as the config wants it.
func (n *Node) openHost(key ed25519.PrivateKey) error {
	o, err := n.hostOptions(key)
	if err != nil {
		return err
	}
	if n.o.memory != nil {
		o = n.o.memory(o)
	}
	if n.host, err = p2p.New(o); err != nil {
		return err
	}
	n.onRelease("host", n.host.Close)
	return nil
}

// hostOptions reads the files that the config names.
func (n *Node) hostOptions(key ed25519.PrivateKey) (p2p.Options, error) {
	c, h := n.o.Config.Network, n.o.Home
	o := p2p.Options{Key: key, Network: c.Name, Profile: n.profile(), Listen: c.Listen, Announce: c.Announce, LAN: c.LAN, MDNS: c.MDNS,
		Relay: p2p.RelayPolicy{Serve: c.Hub, PerDay: c.RelayPerDay, Bulk: c.RelayBulk, BulkData: c.RelayBulkData, BulkTime: c.RelayBulkTime,
			BulkPerSec: c.RelayBulkPerSec},
		Favour: n.isPartner, Version: n.o.Version, Logger: n.log, Registerer: n.registry}
	var err error
	if c.KeyFile != "" {
		if o.NetworkKey, err = h.NetworkKey(c.KeyFile); err != nil {
			return o, err
		}
	}
	if c.TLSCert != "" || c.TLSKey != "" {
		if o.TLS, err = p2p.LoadTLS(h.File(c.TLSCert), h.File(c.TLSKey)); err != nil {
			return o, err
		}
	}
	if c.TLSCA != "" {
		if o.TLSRoots, err = p2p.LoadRoots(h.File(c.TLSCA)); err != nil {
			return o, err
		}
	}
	return o, nil
}
