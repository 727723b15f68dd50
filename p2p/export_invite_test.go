package p2p

import "net/netip"

// Sponsor is a peer to join through: how good it is, and where it lies.
type Sponsor struct {
	Grade int
	Place string
}

// Spread orders the numbers of sponsors as an invite of a peer at that place takes them.
func Spread(all []Sponsor, own string) []int {
	in := make([]sponsor, len(all))
	for i, s := range all {
		in[i] = sponsor{grade: s.Grade, place: s.Place}
		in[i].Key[0] = byte(i)
	}
	var out []int
	for _, s := range spread(in, map[string]bool{own: true}) {
		out = append(out, int(s.Key[0]))
	}
	return out
}

// InviteAddrs returns the addresses that an invite tells of a peer, and whether they lead through relays.
func InviteAddrs(addrs []string, lan bool) ([]string, bool) {
	picked, relayed := inviteAddrs(parseAll(addrs), lan)
	return addrStrings(picked), relayed
}

// Operator names the range of an address.
func Operator(addr string) string { return operator(parseAll([]string{addr})[0]) }

// OnLink returns those addresses that lie in the networks.
func OnLink(addrs, links []string) []string {
	return addrStrings(onLink(parseAll(addrs), parsePrefixes(links)))
}

func parsePrefixes(links []string) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range links {
		out = append(out, netip.MustParsePrefix(l))
	}
	return out
}
