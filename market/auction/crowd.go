package auction

import (
	"encoding/binary"

	"github.com/lacuna-network/lacuna/attest"
)

// WantedDeclines is about how many declines a renter asks for: enough to say what is missing, and few beside the offers.
const WantedDeclines = 64

// DeclineBP returns the share of providers that may decline, in basis points (1 to 10,000), for a bid that so many are
// expected to hear: all of a small crowd, of a large one about WantedDeclines.
func DeclineBP(crowd uint64) uint64 {
	if crowd <= WantedDeclines {
		return 10_000
	}
	return max(1, WantedDeclines*10_000/crowd)
}

// Crowd returns how many peers have heard a bid by its answers, when declines were sampled at that rate.
func Crowd(t Tally, declineBP uint64) uint64 {
	return uint64(t.Received) + uint64(t.Declined)*10_000/max(declineBP, 1)
}

// Sampled reports whether the peer is among the share that may decline the bid.
func Sampled(bid attest.Digest, key attest.Key, bp uint64) bool {
	h := seatOf(bid, key)
	return binary.BigEndian.Uint64(h[:])%10_000 < bp
}
