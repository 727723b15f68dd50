package find

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// AskKey returns a provider's key in the DHT.
func AskKey(k attest.Key) string { return askKey(k) }

// OpenRecord checks a value against its key.
func OpenRecord(network attest.Digest, key string, value []byte, now time.Time) (market.Ask, attest.Envelope, error) {
	return openRecord(network, key, value, now)
}

// Select picks the record that counts.
func Select(values [][]byte) (int, error) { return validator{}.Select("", values) }

// Note notes the sequences one after another and returns the verdicts.
func Note(key attest.Key, seqs []uint64, expires int64, now time.Time) []bool {
	m := newMemory()
	var out []bool
	for _, s := range seqs {
		out = append(out, m.note(key, s, expires, now))
	}
	return out
}
