//go:build linux

package main

// Outcomes of a job between two places.
const (
	straight = "straight" // the job is done over a connection that no relay carries
	relayed  = "relayed"  // the job is done through a relay whose owner lets data pass
	refused  = "refused"  // there is no such way: refused with the reason, before it costs anything
)

// expect returns what must become of a job between a provider and a renter in places of these kinds, while relays carry
// signalling alone, and why.
func expect(provider, renter kind) (outcome, why string) {
	p, r := provider.can, renter.can
	switch {
	case !(p.v4 && r.v4) && !(p.v6 && r.v6):
		return refused, "no address family in common"
	case provider.proxy || renter.proxy:
		return refused, "the proxy leads to WebSocket addresses alone, which the other side has none of"
	case p.open || r.open:
		return straight, "one side dials the other"
	case !p.steady || !r.steady:
		return refused, "a symmetric router gives each peer another port, and the other side lets in answers alone"
	case p.udp && r.udp:
		return straight, "a hole is punched with UDP"
	}
	return straight, "a hole is punched with TCP"
}
