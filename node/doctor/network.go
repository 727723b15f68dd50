package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/peers"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/hello"
)

// patience is in which time a verdict on reachability is to be expected.
const patience = time.Minute

func judgePorts(f Facts) (Finding, bool) {
	const check = "ports"
	if f.Status != nil {
		switch {
		case len(f.Status.Listen) == 0:
			return see(check, Warn, "the peer listens on no address", "network.listen is empty", "lacuna config set network.listen auto")
		case len(f.Status.Notes) > 0:
			return see(check, Note, "listening on "+ports(f.Status.Listen), strings.Join(f.Status.Notes, "; "), "")
		}
		return see(check, OK, "listening on "+ports(f.Status.Listen), "", "")
	}
	switch {
	case !f.Ports.Tried:
		return none()
	case f.Ports.Err != "":
		return see(check, Fault, "the next start could not listen", f.Ports.Err, f.Ports.Hint)
	case len(f.Ports.Notes) > 0:
		return see(check, Note, "the next start can listen on "+ports(f.Ports.Listen), strings.Join(f.Ports.Notes, "; "), "")
	}
	return see(check, OK, "the next start can listen on "+ports(f.Ports.Listen), "", "")
}

// ports returns which ports of which transports multiaddrs name, as "tcp 4711, quic 4711".
func ports(addrs []string) string {
	var out []string
	for _, a := range addrs {
		p := strings.Split(a, "/")
		if len(p) < 5 {
			continue
		}
		kind := p[3]
		switch above := strings.Join(p[5:], "/"); {
		case strings.HasPrefix(above, "quic"):
			kind = "quic"
		case above == "ws":
			kind = "ws"
		case strings.HasSuffix(above, "ws") || above == "wss":
			kind = "wss"
		}
		if s := kind + " " + p[4]; !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, ", ")
}

// tcpPort returns the first TCP port that is listened on, "" for none.
func tcpPort(addrs []string) string {
	for _, a := range addrs {
		if p := strings.Split(a, "/"); len(p) == 5 && p[3] == "tcp" {
			return p[4]
		}
	}
	return ""
}

func judgeIP(f Facts) (Finding, bool) {
	const check = "ip"
	switch {
	case !f.IP.Known:
		return none()
	case !f.IP.V4 && !f.IP.V6 && market.IsTestNetwork(f.Config.Network.Name):
		return see(check, Note, "no address but those of this machine to itself; a test network needs no more", "", "")
	case !f.IP.V4 && !f.IP.V6:
		return see(check, Fault, "no address but those of this machine to itself", "it is on no network", "plug in a cable, or join a Wi-Fi")
	case !f.IP.V4:
		return see(check, Note, "IPv6 only", "peers that have IPv4 only are reached through relays", "")
	case !f.IP.V6:
		return see(check, OK, "IPv4 only", "", "")
	}
	return see(check, OK, "IPv4 and IPv6", "", "")
}

// open reads what is known of a way out; "" is nothing.
func open(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func judgeUDP(f Facts) (Finding, bool) {
	const check = "udp"
	if f.Status == nil {
		return none()
	}
	switch open(f.Status.Reachability.UDP) {
	case string(p2p.WireOpen):
		return see(check, OK, "UDP gets out of this network", "", "")
	case string(p2p.WireBlocked):
		return see(check, Warn, "UDP does not get out of this network", "a firewall, here or on the way, drops it; TCP and WebSocket are used, and fewer peers behind routers can be reached",
			"allow outgoing UDP in the firewall, if it is yours")
	}
	return none()
}

func judgePeers(f Facts) (Finding, bool) {
	const check = "peers"
	if f.Status == nil {
		return none()
	}
	n := len(f.Status.Peers)
	if n == 0 {
		cause := "this peer knows nobody on network " + f.Status.Network + ", or nobody that it knows answers; it goes on trying"
		if e := f.Status.LastDialError; e != "" {
			cause = e + "; it goes on trying"
		}
		next := "join through a peer that is up: lacuna join INVITE"
		if len(f.Status.Addrs) > 0 { // else an invite would name nobody
			next += "; or let one join this peer: lacuna invite"
		}
		return see(check, Fault, "connected to nobody", cause, next)
	}
	straight := 0
	for _, p := range f.Status.Peers {
		if p.Path == p2p.PathDirect.String() && !p.Inbound {
			straight++
		}
	}
	seen := fmt.Sprintf("connected to %d, %d of them dialled straight", n, straight)
	if straight == 0 && n < peers.WantPeers && f.Status.Reachability.Verdict != market.ReachDirect.String() {
		return see(check, Note, seen, "few peers that others can dial: the network may fall apart when they leave", "join through one more: lacuna join INVITE")
	}
	return see(check, OK, seen, "", "")
}

// judgeReach says how others reach this peer, and what would make that better.
func judgeReach(f Facts) (Finding, bool) {
	const check = "reachable"
	if f.Status == nil {
		return none()
	}
	st, r := f.Status, f.Status.Reachability
	seller := st.Devices > 0
	switch r.Verdict {
	case market.ReachDirect.String():
		return see(check, OK, "direct"+by(r.By)+list("; they dialled ", r.AddrsWorked), "", "")
	case market.ReachPunched.String():
		return see(check, OK, "by hole punching: others reach this peer through its router once a relay has introduced them"+by(r.By), "",
			"nothing needs to be done; dialled at once it is with "+forward(f))
	case market.ReachRelayed.String():
		severity, cause := Note, "nobody could dial this peer, and no hole has been punched through the router; a renter needs no more than that"
		if seller {
			severity, cause = Warn, "nobody could dial this peer, and no hole has been punched through the router: until one is, jobs with data go to providers that can be reached otherwise"
		}
		return see(check, severity, "through a relay only"+by(r.By)+list("; others could not dial ", r.AddrsFailed), cause, forward(f))
	case market.ReachNone.String():
		severity, next := Warn, "join through a hub, which can relay for this peer: lacuna join INVITE; or "+forward(f)
		if seller {
			severity = Fault
		}
		return see(check, severity, "nobody can reach this peer"+by(r.By)+list("; others could not dial ", r.AddrsFailed), "no connection from outside gets in, and no peer relays for this one", next)
	}
	switch {
	case len(st.Peers) == 0:
		return see(check, Note, "not known", "nobody is connected who could try", "")
	case time.Duration(st.UptimeMS)*time.Millisecond < patience:
		return see(check, Note, "not known yet", "the peer has just started", "look again in a minute")
	}
	return see(check, Note, "not known", "no connected peer can be dialled itself, and only such peers can try", "join through a hub or any peer with an open port: lacuna join INVITE")
}

func by(found []attest.Key) string {
	var names []string
	for _, k := range found {
		names = append(names, "…"+k.Short())
	}
	if len(names) == 0 {
		return ""
	}
	return ", found by " + strings.Join(names[:min(len(names), 3)], ", ")
}

func list(lead string, what []string) string {
	if len(what) == 0 {
		return ""
	}
	return lead + strings.Join(what[:min(len(what), 3)], ", ")
}

// forward is the advice that works with every router, with what is to be typed into it.
func forward(f Facts) string {
	port := tcpPort(f.Status.Listen)
	if port == "" {
		return "an open port: set network.listen to a TCP address"
	}
	to := "this machine"
	if f.IP.Private != "" {
		to = f.IP.Private
	}
	return fmt.Sprintf("a port that the router forwards: TCP and UDP %s to %s, port %s (or turn on UPnP in the router; behind a carrier's NAT neither helps, IPv6 may)", port, to, port)
}

func judgeRelays(f Facts) (Finding, bool) {
	const check = "relays"
	if f.Status == nil {
		return none()
	}
	r := f.Status.Reachability
	if v := f.Status.Relaying; v != nil {
		return see(check, OK, fmt.Sprintf("this peer relays for others, up to %s a day: %s a place, %s now, %s carried since the start",
			Size(v.DayMaxBytes), hold(v.Places), count(v.Circuits, "connection"), Size(v.Bytes)), "", "")
	}
	switch {
	case r.Verdict == market.ReachDirect.String():
		return none()
	case len(r.Relays) > 0:
		return see(check, OK, hold(len(r.Relays))+" a place for this one", "", "")
	case r.Verdict == market.ReachUnknown.String():
		return none()
	}
	return see(check, Warn, "no peer holds a place for this one", "none of the connected peers relays", "join through a hub: lacuna join INVITE")
}

func hold(peers int) string {
	if peers == 1 {
		return "1 peer holds"
	}
	return count(peers, "peer") + " hold"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func judgeClock(f Facts) (Finding, bool) {
	const check = "clock"
	if f.Status == nil {
		return none()
	}
	c := f.Status.Clock
	if c.SkewMS == nil {
		return see(check, Note, "compared with "+count(c.Peers, "other"), "too few, or all on one network, to say which clock is right", "")
	}
	side := "behind"
	if *c.SkewMS < 0 {
		side = "ahead of"
	}
	skew := (time.Duration(*c.SkewMS) * time.Millisecond).Abs()
	seen := fmt.Sprintf("%s %s the median of %s", seconds(*c.SkewMS), side, count(c.Peers, "peer"))
	next := "turn on the system's time synchronisation"
	if f.OS == "linux" {
		next += ": timedatectl set-ntp true"
	}
	switch {
	case skew > market.ClockTolerance:
		return see(check, Fault, seen, "messages that are more than 2 minutes off are refused by everybody", next)
	case skew > hello.SkewWarn:
		return see(check, Warn, seen, "up to 2 minutes do no harm, but a clock that drifts gets there", next)
	}
	return see(check, OK, seen, "", "")
}

func judgeTwin(f Facts) (Finding, bool) {
	if f.Status == nil || f.Status.Twin == nil {
		return none()
	}
	where := ""
	if a := f.Status.Twin.Addr; a != "" {
		where = " at " + a
	}
	return see("twin", Fault, "another process runs under this peer's key"+where, "the identity was copied into a second home: both sign, and what one promises the other does not know",
		"stop one of them for good; give the other home a key of its own: move its identity.key away and start it again")
}

func judgeMDNS(f Facts) (Finding, bool) {
	if f.Config.Err != "" {
		return none()
	}
	if f.Config.Network.MDNS {
		return see("mdns", OK, "peers on the local network are looked for", "", "")
	}
	if market.IsTestNetwork(f.Config.Network.Name) {
		return none()
	}
	return see("mdns", Note, "peers on the local network are not looked for", "network.mdns is off", "")
}
