package market

import (
	"cmp"
	"slices"
	"strings"
)

// MaxAddrBytes is the longest address that bids and asks carry, in bytes.
const MaxAddrBytes = 200

// relayed is what stands in an address that leads through a relay.
const relayed = "/p2p-circuit"

// PickAddrs returns at most that many of a peer's addresses, the most useful ones: those that are dialled straight, in
// the order given, then one for each relay, the shortest. Where there are relays, they get half of the places: a straight
// address may have stopped working without anyone saying so. Addresses that are too long, or stand there twice, are left
// out.
func PickAddrs(addrs []string, most int) []string {
	straight, circuits := []string{}, []string(nil)
	sorted := slices.Clone(addrs)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	relays := map[string]bool{}
	for _, a := range sorted {
		if relay, _, ok := strings.Cut(a, relayed); ok && len(a) <= MaxAddrBytes {
			if i := strings.LastIndex(relay, "/p2p/"); i >= 0 {
				relay = relay[i:]
			}
			if !relays[relay] {
				relays[relay] = true
				circuits = append(circuits, a)
			}
		}
	}
	for _, a := range addrs {
		if !strings.Contains(a, relayed) && len(a) <= MaxAddrBytes && !slices.Contains(straight, a) {
			straight = append(straight, a)
		}
	}
	room := most - min(len(circuits), most/2)
	straight = straight[:min(len(straight), room)]
	return append(straight, circuits[:min(len(circuits), most-len(straight))]...)
}
