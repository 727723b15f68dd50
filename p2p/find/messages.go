package find

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
)

// The protocols. A provider brings its ask to a storing peer each [Republish], once for all buckets; a renter asks a
// storing peer a few times per look-up and makes two look-ups per auction.
var (
	PutProtocol = p2p.Protocol{Name: "ask-put", Major: 1, Timeout: 5 * time.Second, MaxIn: 256, MaxPerPeer: 4, PerMinute: 12}
	GetProtocol = p2p.Protocol{Name: "ask-get", Major: 1, Timeout: 3 * time.Second, MaxIn: 256, MaxPerPeer: 8, PerMinute: 120}
)

const (
	maxPage  = 256  // asks in one answer
	maxAsks  = 4096 // asks in one look-up
	perFrame = 12   // asks in one frame: 12 of the largest fit
	maxNames = 64   // classes, and places, in one question
	maxName  = 64   // bytes of a class or place
)

// maxRequest bounds a request; what an asker knows already is most of it.
const maxRequest = maxAsks*tagBytes + 2*maxNames*(maxName+2) + 128

// tag stands for one ask in a list of those that are known.
type tag [tagBytes]byte

const tagBytes = 8

func tagOf(e attest.Envelope) tag {
	id := e.ID()
	return tag(id[:tagBytes])
}

// putRequest asks a peer to keep the sender's ask.
type putRequest struct {
	Ask attest.Envelope `cbor:"1,keyasint"`
}

type putAnswer struct {
	Kept bool `cbor:"1,keyasint"`
}

// getRequest asks for one provider's ask, or for asks that fit.
type getRequest struct {
	Provider *attest.Key `cbor:"1,keyasint,omitempty"`
	Classes  []string    `cbor:"2,keyasint,omitempty"`
	Places   []string    `cbor:"3,keyasint,omitempty"`
	Limit    uint64      `cbor:"4,keyasint"`
	Have     []byte      `cbor:"5,keyasint,omitempty"` // tags of asks that need not be sent
	Part     uint64      `cbor:"6,keyasint,omitempty"` // only providers whose key's first byte is Part modulo Parts
	Parts    uint64      `cbor:"7,keyasint,omitempty"` // 0 = all
}

// Validate holds the request to its bounds.
func (r getRequest) Validate() error {
	if r.Limit < 1 || r.Limit > maxPage {
		return fmt.Errorf("limit %d, want 1 to %d", r.Limit, maxPage)
	}
	if len(r.Have)%tagBytes != 0 || len(r.Have) > maxAsks*tagBytes {
		return fmt.Errorf("%d bytes of tags", len(r.Have))
	}
	if r.Parts > 16 || (r.Parts == 0 && r.Part != 0) || (r.Parts > 0 && r.Part >= r.Parts) {
		return fmt.Errorf("part %d of %d", r.Part, r.Parts)
	}
	if len(r.Classes) > maxNames || len(r.Places) > maxNames {
		return fmt.Errorf("%d classes, %d places", len(r.Classes), len(r.Places))
	}
	for _, s := range append(append([]string{}, r.Classes...), r.Places...) {
		if len(s) > maxName {
			return errors.New("a name is too long")
		}
	}
	return nil
}

// wants returns the test that an ask must pass, which is none of those with these tags.
func (r getRequest) wants(tags []byte) func(*kept) bool {
	have := make(map[tag]bool, len(tags)/tagBytes)
	for i := 0; i+tagBytes <= len(tags); i += tagBytes {
		have[tag(tags[i:i+tagBytes])] = true
	}
	q := r.query()
	return func(k *kept) bool {
		return r.covers(k.ask.Provider) && q.match(k.ask) && !have[k.tag]
	}
}

func (r getRequest) query() Query { return Query{Classes: r.Classes, Places: r.Places} }

func (r getRequest) covers(k attest.Key) bool {
	return (r.Provider == nil || *r.Provider == k) && (r.Parts == 0 || uint64(k[0])%r.Parts == r.Part)
}

// page is one frame of an answer. The stream ends after the last one.
type page struct {
	Asks []attest.Envelope `cbor:"1,keyasint"`
}

// Validate holds the page to its bounds.
func (p page) Validate() error {
	if len(p.Asks) == 0 || len(p.Asks) > perFrame {
		return fmt.Errorf("%d asks in a frame", len(p.Asks))
	}
	return nil
}

// frameBytes is the most that a page takes.
const frameBytes = perFrame*market.MaxAskBytes + 64
