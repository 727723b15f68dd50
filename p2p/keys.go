package p2p

import (
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
)

// PeerID returns libp2p's name of a peer. It is meant for the packages below p2p.
func PeerID(k attest.Key) peer.ID {
	// An Ed25519 peer id is the identity multihash (code 0, length 36) of the protobuf "type 1, 32 bytes".
	return peer.ID("\x00\x24\x08\x01\x12\x20" + string(k[:]))
}

// KeyOf returns the key inside a peer id. It fails for ids that are not made of an Ed25519 key. It is meant for the
// packages below p2p.
func KeyOf(id peer.ID) (attest.Key, error) {
	pub, err := id.ExtractPublicKey()
	if err != nil {
		return attest.Key{}, fmt.Errorf("read key of peer: %w", err)
	}
	if pub.Type() != crypto.Ed25519 {
		return attest.Key{}, errors.New("read key of peer: not an Ed25519 key")
	}
	raw, err := pub.Raw()
	if err != nil || len(raw) != len(attest.Key{}) {
		return attest.Key{}, errors.New("read key of peer: not an Ed25519 key")
	}
	return attest.Key(raw), nil
}

// parseAddrs parses multiaddrs, without or with the peer's own /p2p part, which is cut off. Addresses that do not parse
// or that name another peer are left out: they come from strangers, and the others may do.
func parseAddrs(key attest.Key, addrs []string) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, s := range addrs {
		m, err := ma.NewMultiaddr(s)
		if err != nil {
			continue
		}
		transport, id := peer.SplitAddr(m)
		if transport == nil || (id != "" && id != PeerID(key)) {
			continue
		}
		out = append(out, transport)
	}
	return out
}
