package find

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

const askPrefix = "/lacuna-ask/"

func askKey(k attest.Key) string { return askPrefix + k.String() }

// openRecord checks a value of the DHT against its key.
func openRecord(network attest.Digest, key string, value []byte, now time.Time) (market.Ask, attest.Envelope, error) {
	e, err := attest.ParseEnvelope(value, market.MaxAskBytes)
	if err != nil {
		return market.Ask{}, e, err
	}
	if key != askKey(e.Signer) { // before the signature, which costs more
		return market.Ask{}, e, errors.New("ask under the key of another peer")
	}
	a, err := market.OpenAsk(e, network, now)
	if err != nil {
		return market.Ask{}, e, err
	}
	return a, e, nil
}

// validator tells the DHT which values may be stored and which of several counts.
type validator struct{ network attest.Digest }

// Validate accepts only asks under their own provider's key.
func (v validator) Validate(key string, value []byte) error {
	_, _, err := openRecord(v.network, key, value, time.Now())
	if err != nil {
		return fmt.Errorf("check record: %w", err)
	}
	return nil
}

// Select returns the index of the ask with the highest sequence. The DHT calls it with valid values only. Of equal
// sequences the first counts, which keeps what is stored.
func (v validator) Select(_ string, values [][]byte) (int, error) {
	best, seq := -1, uint64(0)
	for i, b := range values {
		e, err := attest.ParseEnvelope(b, market.MaxAskBytes)
		if err != nil {
			continue
		}
		a, err := attest.Decode[market.Ask](e)
		if err != nil {
			continue
		}
		if best < 0 || a.Seq > seq {
			best, seq = i, a.Seq
		}
	}
	if best < 0 {
		return 0, errors.New("select record: no ask among the values")
	}
	return best, nil
}

// allClasses is the class part of the bucket that every provider enters.
const allClasses = "all"

// bucket is where providers of one class in one place are entered.
type bucket struct{ class, place string }

func (b bucket) String() string { return b.class + "/" + b.place }

func (b bucket) cid() cid.Cid {
	mh, err := multihash.Sum([]byte("lacuna-ask/1/"+b.String()), multihash.SHA2_256, -1)
	if err != nil {
		panic("find: " + err.Error()) // SHA-256 is always there
	}
	return cid.NewCidV1(cid.Raw, mh)
}

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
