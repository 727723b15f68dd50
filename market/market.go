// Package market holds the words of the trade and the rules that need no more than the words.
//
// One meaning each:
//
//	capability  what a device is and can do (model, memory, compute class), as measured
//	ask         a provider's signed standing advertisement: devices, policies, place, lowest prices, expiry
//	bid         a renter's signed demand in coarse terms; no image, no budget, no price
//	offer       a provider's binding answer to one bid: price, devices, earliest start, firm until
//	decline     a provider's signed answer that says which constraint failed, and by how much
//	auction     the renter's choice among the sealed offers to one bid; it gives an award
//	lease       the full terms, one payload signed by both: award by the renter, accept by the provider
//	tier        gold (reserved), silver (on demand), bronze (interruptible)
//	receipt     the provider's signed statement of metered usage in one interval: facts, no money
//	voucher     the renter's signed cumulative promise to pay on a lease; it accepts the receipts up to a digest
//	outcome     how a lease ended, as both can prove it
//	reputation  one peer's own score of another; there is no global score
//	hub         a publicly reachable peer that also serves as bootstrap, relay and DHT server
//
// A job's way through the files: [Spec] → [Bid] → [Offer] or [Decline] → market/auction → [Lease] → receipts and
// [Voucher]s → [Outcome]. The lease's life is one table, [Next].
//
// The package does no I/O and reads no clock; every function that depends on the time takes it. Its types are plain
// data. It is used by p2p, node and cmd, and knows nothing of them.
//
// History: 2026-11-30 version 1 of every object.
package market

import (
	"errors"
	"fmt"
	"strings"
)

// Tier is what a renter buys: a reserved window, a run on demand, or what is left over. 0 means not set.
type Tier uint8

// The tiers, dearest first.
const (
	Gold Tier = iota + 1
	Silver
	Bronze
)

// String returns the tier's name in files and in print.
func (t Tier) String() string {
	switch t {
	case Gold:
		return "gold"
	case Silver:
		return "silver"
	case Bronze:
		return "bronze"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// ParseTier parses a tier's name.
func ParseTier(s string) (Tier, error) {
	for _, t := range []Tier{Gold, Silver, Bronze} {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("tier %q: want gold, silver or bronze", s)
}

// MarshalText returns the tier's name.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses a tier's name.
func (t *Tier) UnmarshalText(b []byte) error {
	p, err := ParseTier(string(b))
	*t = p
	return err
}

// Place is where a peer says it is. Empty parts are unknown.
type Place struct {
	Continent string `cbor:"1,keyasint,omitempty" json:"continent,omitempty"` // "eu", "na", "sa", "as", "af", "oc", "an"
	Country   string `cbor:"2,keyasint,omitempty" json:"country,omitempty"`   // ISO 3166-1 alpha-2, lower case
	City      string `cbor:"3,keyasint,omitempty" json:"city,omitempty"`      // lower case, no slash
}

// AnyPlace is the place part of a bid topic that is not bound to a continent.
const AnyPlace = "any"

const continents = " eu na sa as af oc an "

// ParsePlace parses "eu", "eu/de" or "eu/de/berlin".
func ParsePlace(s string) (Place, error) {
	parts := strings.Split(strings.ToLower(strings.TrimSpace(s)), "/")
	var p Place
	for i, dst := range []*string{&p.Continent, &p.Country, &p.City} {
		if i < len(parts) {
			*dst = parts[i]
		}
	}
	if len(parts) > 3 {
		return Place{}, fmt.Errorf("place %q: want continent/country/city", s)
	}
	return p, p.Validate()
}

// Validate reports a place whose parts have no valid form.
func (p Place) Validate() error {
	if p == (Place{}) {
		return nil
	}
	if len(p.Continent) != 2 || !strings.Contains(continents, " "+p.Continent+" ") {
		return fmt.Errorf("place %q: want a continent first (eu, na, sa, as, af, oc or an), such as eu/de or na/us", p)
	}
	if p.Country != "" && (len(p.Country) != 2 || !isLower(p.Country)) {
		return fmt.Errorf("place %q: want a country of two letters, such as de", p)
	}
	if len(p.City) > 32 || (p.City != "" && p.Country == "") || strings.ContainsAny(p.City, "/\n\r\t\x00") {
		return fmt.Errorf("place %q: want continent/country/city", p)
	}
	return nil
}

func isLower(s string) bool {
	for _, c := range s {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// String returns "eu/de/berlin", shortened by what is unknown, or "unknown".
func (p Place) String() string {
	if p.Continent == "" {
		return "unknown"
	}
	return strings.TrimRight(strings.Join([]string{p.Continent, p.Country, p.City}, "/"), "/")
}

// Within reports whether p lies in the area: the parts that area names are the same. An unknown part of p lies in no
// area that names it.
func (p Place) Within(area Place) bool {
	return (area.Continent == "" || area.Continent == p.Continent) &&
		(area.Country == "" || area.Country == p.Country) &&
		(area.City == "" || area.City == p.City)
}

// IsTestNetwork reports whether the network of that name is a test network: simulated devices are allowed, evidence
// units are small, and the trial cap covers a demo.
func IsTestNetwork(name string) bool { return strings.HasPrefix(name, "test") }

// Workload is a kind of work that a provider takes in. 0 means not set.
type Workload uint8

// The workloads there are.
const WASM Workload = 1

// String returns the workload's name in files and in print.
func (w Workload) String() string {
	if w == WASM {
		return "wasm"
	}
	return fmt.Sprintf("workload(%d)", uint8(w))
}

// ErrUnknown marks a name, a model or an id that nothing is known of.
var ErrUnknown = errors.New("unknown")
