package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

// ErrTarget means that a text is neither an invite nor the address of a peer.
var ErrTarget = errors.New("want an invite, or a multiaddr that ends in /p2p/ and a peer id")

// Prepared says what a home was set up for.
type Prepared struct {
	Home    string `json:"home"`
	Network string `json:"network"`
	Peers   int    `json:"peers"` // to join through
}

// Prepare sets up a home, on which no peer runs, so that its next start joins the network of the targets: invites, and
// addresses that end in /p2p/PEER. A home that belongs to another network is not touched; the error then wraps
// [ErrOtherNetwork] or [home.ErrNetworkKeyExists]. Other errors wrap [p2p.ErrInvite] or [ErrTarget].
func Prepare(h home.Home, c config.Config, targets []string) (Prepared, error) {
	v := Prepared{Home: h.Dir(), Network: c.Network.Name}
	var key []byte
	bootstrap := slices.Clone(c.Network.Bootstrap)
	named := false // an invite has named the network
	for _, s := range targets {
		t, err := readTarget(s)
		if err != nil {
			return v, err
		}
		if t.network != "" {
			if named && t.network != v.Network {
				return v, fmt.Errorf("%w: the invites are for networks %q and %q", ErrOtherNetwork, v.Network, t.network)
			}
			v.Network, named = t.network, true
		}
		if len(t.key) > 0 {
			key = t.key
		}
		v.Peers += len(t.peers)
		if !slices.Contains(bootstrap, t.text) {
			bootstrap = append(bootstrap, t.text)
		}
	}
	if v.Network != c.Network.Name && settled(h, c) {
		return v, fmt.Errorf("%w: the invite is for network %q, the home %s belongs to %q", ErrOtherNetwork, v.Network, h.Dir(), c.Network.Name)
	}
	if err := h.Create(); err != nil {
		return v, err
	}
	values := map[string]string{"network.name": v.Network, "network.bootstrap": strings.Join(bootstrap, ",")}
	if key != nil {
		file := c.Network.KeyFile
		if file == "" {
			file = home.DefaultNetworkKey
			values["network.key_file"] = file
		}
		if err := h.KeepNetworkKey(file, key); err != nil {
			return v, err
		}
	}
	return v, config.Set(h.ConfigFile(), values)
}

// settled reports whether a home belongs to a network: its owner has named one, or a peer has kept records in it.
func settled(h home.Home, c config.Config) bool {
	_, err := os.Stat(h.StoreDir())
	return c.Origin("network.name") != "default" || err == nil
}

// target is what one argument of a join says.
type target struct {
	text    string // for the config: without the network's key, which is a secret
	network string // "" = not said
	key     []byte // of a private network; nil = none
	peers   []p2p.InvitePeer
}

// readTarget reads an invite, or a multiaddr that ends in /p2p/PEER.
func readTarget(s string) (target, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "/") {
		i := strings.LastIndex(s, "/p2p/") // the way through a relay names the relay before
		if i < 0 {
			return target{}, fmt.Errorf("address %.100q: %w", s, ErrTarget)
		}
		key, err := attest.ParseKey(s[i+len("/p2p/"):])
		if err != nil {
			return target{}, fmt.Errorf("address %.100q: %w", s, ErrTarget)
		}
		return target{text: s, peers: []p2p.InvitePeer{{Key: key, Addrs: []string{s[:i]}}}}, nil
	}
	i, err := p2p.ParseInvite(s)
	if err != nil {
		return target{}, err
	}
	t := target{network: i.Network, key: i.NetworkKey, peers: i.Peers}
	i.NetworkKey = nil
	t.text = i.String()
	return t, nil
}
