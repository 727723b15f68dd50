package find

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Where asks are kept: at the peers of the DHT that are nearest to one of these keys.
const (
	askPrefix    = "/lacuna-ask/"
	bucketPrefix = "/lacuna-asks/1/"
)

func askKey(k attest.Key) string { return askPrefix + k.String() }

// openAsk checks an ask that came from elsewhere.
func openAsk(network attest.Digest, e attest.Envelope, now time.Time) (market.Ask, error) {
	if err := checkSize(e); err != nil {
		return market.Ask{}, err
	}
	return market.OpenAsk(e, network, now)
}

func checkSize(e attest.Envelope) error {
	b, err := attest.MarshalEnvelope(e)
	if err != nil {
		return err
	}
	if len(b) > market.MaxAskBytes {
		return errors.New("ask is too large")
	}
	return nil
}

// allClasses is the class part of the bucket that every provider enters.
const allClasses = "all"

// bucket is where the asks for one class in one place are kept.
type bucket struct{ class, place string }

func (b bucket) key() string { return bucketPrefix + b.class + "/" + b.place }

// bucketsOf returns the buckets that an ask belongs to.
func bucketsOf(a market.Ask) []bucket {
	out := []bucket{{allClasses, market.AnyPlace}}
	for _, lot := range a.Lots {
		if lot.Class == "" {
			continue // a device without a class is found in the bucket of all
		}
		for _, place := range []string{market.AnyPlace, a.Place.Continent} {
			if b := (bucket{lot.Class, place}); place != "" && !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// keysOf returns all keys under which an ask is kept.
func keysOf(a market.Ask) []string {
	out := []string{askKey(a.Provider)}
	for _, b := range bucketsOf(a) {
		out = append(out, b.key())
	}
	return out
}

// memory holds the newest sequence seen of each provider, so that a peer that missed a replacement cannot bring an older
// ask back.
type memory struct {
	mu    sync.Mutex
	seen  map[attest.Key]sighting
	swept time.Time
}

type sighting struct {
	seq   uint64
	until int64 // Unix ms; an older ask lives at most an hour longer than the newer one was issued
}

const maxMemory = 8192 // providers; 64 bytes each

func newMemory() *memory { return &memory{seen: make(map[attest.Key]sighting)} }

// note notes an ask and reports false if a newer one was seen before.
func (m *memory) note(key attest.Key, seq uint64, expires int64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.seen[key]
	if known && seq < old.seq && now.UnixMilli() < old.until {
		return false
	}
	if !known && len(m.seen) >= maxMemory && !m.sweep(now) {
		return true // it still has a valid signature
	}
	m.seen[key] = sighting{seq: seq, until: max(expires, now.Add(market.MaxAskLife).UnixMilli())}
	return true
}

// sweep forgets asks that have expired and reports whether there is room. It looks at most once a second.
func (m *memory) sweep(now time.Time) bool {
	if d := now.Sub(m.swept); d >= 0 && d < time.Second {
		return false
	}
	m.swept = now
	for k, s := range m.seen {
		if now.UnixMilli() >= s.until {
			delete(m.seen, k)
		}
	}
	return len(m.seen) < maxMemory
}
