package p2p

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
)

const (
	invitePrefix   = "lacuna1"
	inviteSum      = 4    // bytes of the checksum; a mistyped line passes once in 2^32
	maxInvitePeers = 5    // a network outlives the loss of four
	maxInviteAddrs = 4    // of one peer; keeps the line below 1,000 characters
	maxInviteLine  = 4096 // characters
)

// ErrInvite means that a line is no invite, or not a whole one.
var ErrInvite = errors.New("not a valid invite")

// inviteText is base32 in lower case: one word on double click, and safe to read out.
var inviteText = mustEncoding("abcdefghijklmnopqrstuvwxyz234567")

func mustEncoding(alphabet string) *base32.Encoding {
	return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)
}

// Invite says how to join a network.
type Invite struct {
	Network    string
	Peers      []InvitePeer // 1 to 5; who made the invite comes first, if it can be dialled
	NetworkKey []byte       // of a private network, 32 bytes: whoever reads the line is in; nil = none is wanted, or it comes another way
}

// InvitePeer is a peer to join through.
type InvitePeer struct {
	Key   attest.Key
	Addrs []string // multiaddrs without /p2p, 1 to 4
}

// A reader of before the key refuses an invite that has one, since it knows all keys of the map or none.
type inviteWire struct {
	Network    string           `cbor:"1,keyasint"`
	Peers      []invitePeerWire `cbor:"2,keyasint"`
	NetworkKey []byte           `cbor:"3,keyasint,omitempty"`
}

type invitePeerWire struct {
	Key   attest.Key `cbor:"1,keyasint"`
	Addrs [][]byte   `cbor:"2,keyasint"`
}

// Validate reports an invite that leads nowhere.
func (w inviteWire) Validate() error {
	if err := checkNetwork(w.Network); err != nil {
		return err
	}
	if len(w.Peers) == 0 || len(w.Peers) > maxInvitePeers {
		return fmt.Errorf("names %d peers, want 1 to %d", len(w.Peers), maxInvitePeers)
	}
	for _, p := range w.Peers {
		if p.Key.IsZero() || len(p.Addrs) == 0 || len(p.Addrs) > maxInviteAddrs {
			return fmt.Errorf("peer %s has %d addresses, want 1 to %d", p.Key.Short(), len(p.Addrs), maxInviteAddrs)
		}
	}
	if n := len(w.NetworkKey); w.NetworkKey != nil && n != NetworkKeySize {
		return fmt.Errorf("has a network key of %d bytes, want %d", n, NetworkKeySize)
	}
	return nil
}

// String returns the invite as one line. It panics if the invite holds what [Host.Invite] and [ParseInvite] never
// return.
func (i Invite) String() string {
	s, err := i.encode()
	if err != nil {
		panic("p2p: " + err.Error())
	}
	return s
}

func (i Invite) encode() (string, error) {
	w := inviteWire{Network: i.Network, NetworkKey: i.NetworkKey}
	for _, p := range i.Peers {
		wp := invitePeerWire{Key: p.Key}
		for _, a := range p.Addrs {
			m, err := ma.NewMultiaddr(a)
			if err != nil {
				return "", fmt.Errorf("write invite: address %.80q: %w", a, err)
			}
			wp.Addrs = append(wp.Addrs, m.Bytes())
		}
		w.Peers = append(w.Peers, wp)
	}
	if err := w.Validate(); err != nil {
		return "", fmt.Errorf("write invite: %w", err)
	}
	b, err := attest.Marshal(w)
	if err != nil {
		return "", fmt.Errorf("write invite: %w", err)
	}
	sum := sha256.Sum256(b)
	return invitePrefix + inviteText.EncodeToString(append(b, sum[:inviteSum]...)), nil
}

// ParseInvite reads what [Host.Invite] wrote. Blanks and line breaks inside are ignored, as mail programs add them, and
// so is upper case. Errors wrap [ErrInvite] and are meant for the user's eyes.
func ParseInvite(s string) (Invite, error) {
	s = strings.ToLower(strings.Join(strings.Fields(s), ""))
	body, ok := strings.CutPrefix(s, invitePrefix)
	switch {
	case !ok:
		return Invite{}, fmt.Errorf("%w: it begins with %.12q, an invite begins with %q", ErrInvite, s, invitePrefix)
	case len(s) > maxInviteLine:
		return Invite{}, fmt.Errorf("%w: it is longer than %d characters", ErrInvite, maxInviteLine)
	}
	b, err := inviteText.DecodeString(body)
	if err != nil {
		return Invite{}, fmt.Errorf("%w: it holds characters that no invite has, or its end is missing", ErrInvite)
	}
	if len(b) <= inviteSum {
		return Invite{}, fmt.Errorf("%w: its end is missing", ErrInvite)
	}
	b, want := b[:len(b)-inviteSum], b[len(b)-inviteSum:]
	if sum := sha256.Sum256(b); !slices.Equal(sum[:inviteSum], want) {
		return Invite{}, fmt.Errorf("%w: its end is missing or a character is wrong; copy it again", ErrInvite)
	}
	var w inviteWire
	if err := attest.Unmarshal(b, &w); err != nil {
		return Invite{}, fmt.Errorf("%w: this version cannot read it: %w", ErrInvite, err)
	}
	return w.invite()
}

func (w inviteWire) invite() (Invite, error) {
	i := Invite{Network: w.Network, NetworkKey: w.NetworkKey}
	for _, wp := range w.Peers {
		p := InvitePeer{Key: wp.Key}
		for _, raw := range wp.Addrs {
			m, err := ma.NewMultiaddrBytes(raw)
			if err != nil || len(m) == 0 {
				return Invite{}, fmt.Errorf("%w: this version cannot read an address of %s", ErrInvite, p.Key.Short())
			}
			p.Addrs = append(p.Addrs, m.String())
		}
		i.Peers = append(i.Peers, p)
	}
	return i, nil
}
