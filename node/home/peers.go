package home

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
)

// MaxPeers is how many known peers are kept, the best first: those that could be dialled last, then those seen last.
const MaxPeers = 200

const (
	maxPeersFile = 1 << 20
	maxAddrs     = 8 // of one peer
)

// KnownPeer is a peer that was good to know.
type KnownPeer struct {
	Peer     attest.Key `json:"peer"`
	Addrs    []string   `json:"addrs"`              // multiaddrs without /p2p
	SeenAt   time.Time  `json:"seen_at"`            // last connected, UTC
	DialedAt time.Time  `json:"dialed_at,omitzero"` // last reached by dialling it straight, UTC; zero = never
}

// LoadPeers returns the known peers of a network, best first; none if there is no file. An unreadable file is an
// error and can be lived with: the peers come from elsewhere then, and [Home.SavePeers] replaces it.
func (h Home) LoadPeers(network string) ([]KnownPeer, error) {
	all, err := h.readPeers()
	return all[network], err
}

// SavePeers keeps the known peers of a network, the best [MaxPeers]. Those of other networks stay.
func (h Home) SavePeers(network string, peers []KnownPeer) error {
	all, err := h.readPeers()
	if err != nil {
		all = nil // better some peers than an unreadable file for ever
	}
	if all == nil {
		all = map[string][]KnownPeer{}
	}
	list := slices.Clone(peers)
	slices.SortStableFunc(list, func(a, b KnownPeer) int { return cmp.Or(b.DialedAt.Compare(a.DialedAt), b.SeenAt.Compare(a.SeenAt)) })
	list = list[:min(len(list), MaxPeers)]
	for i := range list {
		list[i].Addrs = list[i].Addrs[:min(len(list[i].Addrs), maxAddrs)]
		list[i].SeenAt, list[i].DialedAt = list[i].SeenAt.UTC(), list[i].DialedAt.UTC()
	}
	all[network] = list
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("keep known peers: %w", err)
	}
	if err := writeFile(h.PeersFile(), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep known peers: %w", err)
	}
	return nil
}

func (h Home) readPeers() (map[string][]KnownPeer, error) {
	info, err := os.Stat(h.PeersFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxPeersFile {
		err = fmt.Errorf("%s has %d bytes, at most %d", h.PeersFile(), info.Size(), maxPeersFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read known peers: %w", err)
	}
	data, err := os.ReadFile(h.PeersFile())
	if err != nil {
		return nil, fmt.Errorf("read known peers: %w", explain(h.PeersFile(), err))
	}
	var all map[string][]KnownPeer
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("read known peers: %s: %w", h.PeersFile(), err)
	}
	return all, nil
}
