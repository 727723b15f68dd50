package store

import (
	"github.com/lacuna-network/lacuna/attest"
)

// Receipt returns one receipt of a lease, or [ErrNotFound].
func (s *Store) Receipt(lease attest.Digest, seq uint64) (attest.Envelope, error) {
	key := seqKey(lease, seq)
	v, err := s.Get(KindReceipt, key)
	if err != nil {
		return attest.Envelope{}, err
	}
	return parseEnvelope(KindReceipt, key, v)
}
