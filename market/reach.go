package market

import "fmt"

// Reach is how others can reach a peer, as they found. It stands in asks and offers, so that a renter can reckon with
// it; it is the peer's own statement there.
type Reach uint8

// The verdicts. Zero is unknown: nobody has tried yet.
const (
	ReachUnknown Reach = iota
	ReachDirect        // others dial it
	ReachPunched       // through its router, after both sides have been introduced by a relay
	ReachRelayed       // only through a relay
	ReachNone          // nobody can
)

var reachNames = [...]string{"unknown", "direct", "hole-punched", "relayed", "unreachable"}

// String returns the verdict as it is written everywhere.
func (r Reach) String() string {
	if int(r) < len(reachNames) {
		return reachNames[r]
	}
	return fmt.Sprintf("reach(%d)", uint8(r))
}

// MarshalText returns the verdict in words.
func (r Reach) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses what [Reach.MarshalText] wrote.
func (r *Reach) UnmarshalText(b []byte) error {
	for i, name := range reachNames {
		if string(b) == name {
			*r = Reach(i)
			return nil
		}
	}
	return fmt.Errorf("%w reachability %.20q", ErrUnknown, b)
}

// Validate reports a verdict that does not exist.
func (r Reach) Validate() error {
	if int(r) >= len(reachNames) {
		return fmt.Errorf("%w reachability %d", ErrUnknown, uint8(r))
	}
	return nil
}
