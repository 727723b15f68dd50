package node

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

// ErrTarget means that a text is neither an invite nor the address of a peer.
var ErrTarget = errors.New("want an invite, or the whole address of a peer such as /ip4/192.0.2.1/tcp/4711/p2p/12D3KooW…")

// Prepared says what a home was set up for.
type Prepared struct {
	Home    string `json:"home"`
	Network string `json:"network"`
	Peers   int    `json:"peers"` // to join through
}

// Prepare sets up a home, on which no peer runs, so that its next start joins the network of the targets: invites, and
// addresses that end in /p2p/PEER. A home that belongs to another network, or to one of that name with another key or
// none, is not touched; the error then wraps [ErrOtherNetwork] or [home.ErrNetworkKeyExists]. Other errors wrap
// [p2p.ErrInvite], [ErrTarget], [ErrOwnInvite] or [config.ErrByHand]. It is done as a whole, or nothing is left of it.
func Prepare(h home.Home, c config.Config, targets []string) (Prepared, error) {
	v := Prepared{Home: h.Dir(), Network: c.Network.Name}
	all, err := readTargets(targets)
	if err != nil {
		return v, err
	}
	if all.network != "" {
		v.Network = all.network
	}
	if own, err := h.Identity(c.Identity.File); err == nil { // a home without an identity has invited nobody
		self := attest.Key(own.Public().(ed25519.PublicKey))
		if !slices.ContainsFunc(all.peers, func(p p2p.InvitePeer) bool { return p.Key != self }) {
			return v, ErrOwnInvite
		}
	}
	v.Peers = len(all.peers)
	if err := fits(h, c, all); err != nil {
		return v, err
	}
	bootstrap := slices.Clone(c.Network.Bootstrap)
	for _, s := range all.texts {
		if !slices.Contains(bootstrap, s) {
			bootstrap = append(bootstrap, s)
		}
	}
	values := map[string]string{"network.name": v.Network, "network.bootstrap": strings.Join(bootstrap, ",")}
	file := c.Network.KeyFile
	if file == "" && all.key != nil {
		file = home.DefaultNetworkKey
		values["network.key_file"] = file
	}
	return v, setUp(h, file, all.key, values)
}

// setUp writes the key of a network, if there is one, and the config, and takes back what it made if one of them fails.
func setUp(h home.Home, file string, key []byte, values map[string]string) (err error) {
	if !h.Exists() {
		defer func() {
			if err != nil {
				_ = os.Remove(h.Dir()) // keeps a folder with something in it
			}
		}()
	}
	if err := h.Create(); err != nil {
		return err
	}
	if key == nil {
		return config.Set(h.ConfigFile(), values)
	}
	_, missing := os.Lstat(h.File(file))
	if err := h.KeepNetworkKey(file, key); err != nil {
		return err
	}
	if err := config.Set(h.ConfigFile(), values); err != nil {
		if errors.Is(missing, fs.ErrNotExist) {
			_ = os.Remove(h.File(file))
		}
		return err
	}
	return nil
}

// fits reports a home that belongs to another network than the targets, by its name or by its key.
func fits(h home.Home, c config.Config, all target) error {
	name := c.Network.Name
	if all.network == "" {
		return nil // addresses alone: the home's own network is meant
	}
	if all.network != name {
		if settled(h, c) {
			return fmt.Errorf("%w: the invite is for network %q, the home %s belongs to %q", ErrOtherNetwork, all.network, h.Dir(), name)
		}
		return nil
	}
	// A home that was never on the network takes the key from an invite or, for an invite without, from its owner's hands.
	known, _ := h.LoadPeers(name) // a list that cannot be read names nobody
	if len(known) == 0 && len(c.Network.Bootstrap) == 0 {
		return nil
	}
	switch private := c.Network.KeyFile != ""; {
	case private && all.key == nil:
		return fmt.Errorf("%w: the invite for %q holds no key, and the home %s belongs to a network of that name with one (if it was made with --without-key, join while the peer runs)",
			ErrOtherNetwork, name, h.Dir())
	case !private && all.key != nil:
		return fmt.Errorf("%w: the invite is for a private network %q, the home %s belongs to one of that name without a key, whose peers it would lose",
			ErrOtherNetwork, name, h.Dir())
	}
	return nil
}

// settled reports whether a home belongs to a network: its owner has named one, or a peer has kept records in it.
func settled(h home.Home, c config.Config) bool {
	_, err := os.Stat(h.StoreDir())
	return c.Origin("network.name") != "default" || err == nil
}

// target is what the arguments of a join say.
type target struct {
	texts   []string // for the config: without the network's key, which is a secret
	network string   // "" = not said
	key     []byte   // of a private network; nil = none
	peers   []p2p.InvitePeer
}

// readTargets reads invites and addresses that are to be joined together, and so are of one network.
func readTargets(list []string) (target, error) {
	var all target
	for _, s := range list {
		t, err := readTarget(s)
		if err != nil {
			return all, err
		}
		if all.network != "" && t.network != "" && t.network != all.network {
			return all, fmt.Errorf("%w: the invites are for networks %q and %q", ErrOtherNetwork, all.network, t.network)
		}
		if all.key != nil && t.key != nil && !bytes.Equal(t.key, all.key) {
			return all, fmt.Errorf("%w: the invites are for two networks %q, with different keys", ErrOtherNetwork, t.network)
		}
		if all.network == "" {
			all.network = t.network
		}
		if all.key == nil {
			all.key = t.key
		}
		all.peers = append(all.peers, t.peers...)
		all.texts = append(all.texts, t.texts...)
	}
	return all, nil
}

// readTarget reads an invite, or a multiaddr that ends in /p2p/PEER.
func readTarget(s string) (target, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "/") {
		addr, key, err := config.PeerAddr(s)
		if err != nil {
			return target{}, fmt.Errorf("address %.160q: %w", s, ErrTarget)
		}
		return target{texts: []string{s}, peers: []p2p.InvitePeer{{Key: key, Addrs: []string{addr}}}}, nil
	}
	i, err := p2p.ParseInvite(s)
	if err != nil {
		return target{}, err
	}
	t := target{network: i.Network, peers: i.Peers}
	if len(i.NetworkKey) > 0 {
		t.key = i.NetworkKey
	}
	i.NetworkKey = nil
	t.texts = []string{i.String()}
	return t, nil
}
