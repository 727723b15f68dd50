package hello

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Limits of what is said, beside those of the protocol.
const (
	maxRequest  = 2 << 10 // bytes of a request, about four times a usual one
	maxAnswer   = 4 << 10 // bytes of an answer with everything in it
	maxEnvelope = 1 << 10 // bytes of a signed statement
	maxAgent    = 64      // characters
	maxWant     = 8       // keys in one request
	maxTold     = 8       // peers in one answer
	maxAddrs    = 4       // of one peer
	maxAddr     = 64      // bytes; longer ones carry certificate hashes and the like
	maxTwins    = 2
	maxRTT      = time.Minute
)

// bootID is drawn at random by each process. Two of them under one key are two processes, or one after the other.
type bootID [16]byte

// self is what a peer says of itself. It is signed, so that whoever heard it can show it to others.
type self struct {
	Boot  bootID       `cbor:"1,keyasint"`
	Seq   uint64       `cbor:"2,keyasint"` // rises with each statement of one process
	Clock int64        `cbor:"3,keyasint"` // the peer's wall clock, Unix milliseconds
	Reach market.Reach `cbor:"4,keyasint,omitempty"`
	Place market.Place `cbor:"5,keyasint"`
	Agent string       `cbor:"6,keyasint,omitempty"`
	Light bool         `cbor:"7,keyasint,omitempty"` // serves nobody: not worth telling others
	Twins []bootID     `cbor:"8,keyasint,omitempty"` // other processes whose statements under the same key it was shown
}

// Validate reports a statement that nobody honest makes.
func (s self) Validate() error {
	if s.Boot == (bootID{}) || s.Seq == 0 {
		return errors.New("statement without boot id or sequence")
	}
	if len(s.Twins) > maxTwins || slices.Contains(s.Twins, bootID{}) {
		return fmt.Errorf("names %d twins, at most %d", len(s.Twins), maxTwins)
	}
	return errors.Join(checkClock(s.Clock), s.Reach.Validate(), s.Place.Validate(), checkAgent(s.Agent))
}

// checkClock bounds a clock to what times can be reckoned with. A clock that is merely wrong is what hello is for.
func checkClock(ms int64) error {
	if ms < 0 || ms >= 1<<47 { // the year 6429
		return fmt.Errorf("clock shows %d ms", ms)
	}
	return nil
}

func checkAgent(s string) error {
	if len(s) > maxAgent {
		return fmt.Errorf("agent of %d characters, at most %d", len(s), maxAgent)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return errors.New("agent is not printable ASCII")
		}
	}
	return nil
}

type request struct {
	Self attest.Envelope `cbor:"1,keyasint"`           // a [self]
	Few  bool            `cbor:"2,keyasint,omitempty"` // it knows few peers and wants some
	Want []attest.Key    `cbor:"3,keyasint,omitempty"` // the peers whose round trips from there it wants
}

// Validate reports a request that asks for too much.
func (r request) Validate() error {
	if len(r.Want) > maxWant || slices.Contains(r.Want, attest.Key{}) {
		return fmt.Errorf("wants %d round trips, at most %d", len(r.Want), maxWant)
	}
	return checkEnvelope(r.Self)
}

// checkEnvelope does what needs no decoding; who verifies, decodes.
func checkEnvelope(e attest.Envelope) error {
	if len(e.Payload) > maxEnvelope {
		return fmt.Errorf("statement of %d bytes, at most %d", len(e.Payload), maxEnvelope)
	}
	if e.Domain != Domain {
		return fmt.Errorf("%w: %.64q", attest.ErrDomain, e.Domain)
	}
	return e.Validate()
}

type answer struct {
	Clock int64        `cbor:"1,keyasint"` // read just before sending
	Reach market.Reach `cbor:"2,keyasint,omitempty"`
	Place market.Place `cbor:"3,keyasint"`
	Agent string       `cbor:"4,keyasint,omitempty"`
	Light bool         `cbor:"5,keyasint,omitempty"`
	Peers []told       `cbor:"6,keyasint,omitempty"`
	Seen  []seen       `cbor:"7,keyasint,omitempty"`
	Twin  *twin        `cbor:"8,keyasint,omitempty"`
}

// told is a peer that others can dial.
type told struct {
	Key   attest.Key `cbor:"1,keyasint"`
	Addrs [][]byte   `cbor:"2,keyasint"` // multiaddrs without /p2p
}

// seen is a round trip that the answerer has measured.
type seen struct {
	Key attest.Key `cbor:"1,keyasint"`
	RTT uint64     `cbor:"2,keyasint"` // milliseconds, rounded up, so that it never proves more than was measured
}

// twin is the newest statement of another process under the asker's key.
type twin struct {
	Self attest.Envelope `cbor:"1,keyasint"`
	Addr []byte          `cbor:"2,keyasint,omitempty"` // where it came from, as a multiaddr
}

// Validate reports an answer that is out of bounds.
func (a answer) Validate() error {
	if len(a.Peers) > maxTold || len(a.Seen) > maxWant {
		return fmt.Errorf("answer of %d peers and %d round trips, at most %d and %d", len(a.Peers), len(a.Seen), maxTold, maxWant)
	}
	for _, p := range a.Peers {
		if p.Key.IsZero() || len(p.Addrs) == 0 || len(p.Addrs) > maxAddrs {
			return fmt.Errorf("tells %d addresses of a peer, want 1 to %d", len(p.Addrs), maxAddrs)
		}
		for _, b := range p.Addrs {
			if err := checkAddr(b); err != nil {
				return err
			}
		}
	}
	for _, s := range a.Seen {
		if s.Key.IsZero() || s.RTT == 0 || s.RTT > uint64(maxRTT.Milliseconds()) {
			return fmt.Errorf("round trip of %d ms, want 1 to %d", s.RTT, maxRTT.Milliseconds())
		}
	}
	if a.Twin != nil {
		if err := checkEnvelope(a.Twin.Self); err != nil {
			return err
		}
		if len(a.Twin.Addr) > 0 {
			if err := checkAddr(a.Twin.Addr); err != nil {
				return err
			}
		}
	}
	return errors.Join(checkClock(a.Clock), a.Reach.Validate(), a.Place.Validate(), checkAgent(a.Agent))
}

// checkAddr reports bytes that are not the one encoding of a multiaddr.
func checkAddr(b []byte) error {
	if len(b) == 0 || len(b) > maxAddr {
		return fmt.Errorf("address of %d bytes, want 1 to %d", len(b), maxAddr)
	}
	m, err := ma.NewMultiaddrBytes(b)
	if err != nil {
		return errors.New("address is no multiaddr")
	}
	if !bytes.Equal(m.Bytes(), b) {
		return fmt.Errorf("address: %w", attest.ErrEncoding)
	}
	return nil
}
