package p2p

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// ListenAuto in Options.Listen stands for [AutoPort] on TCP and QUIC, IPv4 and IPv6. If any of these is taken, it is the
// next port on all of them, up to AutoPort+50, so that one number can be told and forwarded.
const ListenAuto = "auto"

// AutoPort is the first port that [ListenAuto] tries.
const AutoPort = 4711

const autoMore = 50 // ports after it

// checkAddrs reports addresses that nobody can listen on or tell others.
func (o *Options) checkAddrs() []error {
	var errs []error
	listen := o.Listen
	if slices.Equal(listen, []string{ListenAuto}) {
		listen = nil
	}
	for _, addr := range slices.Concat(listen, o.Announce) {
		if _, err := ma.NewMultiaddr(addr); err != nil {
			errs = append(errs, fmt.Errorf("address %.120q: want a multiaddr such as /ip4/0.0.0.0/tcp/%d", addr, AutoPort))
		}
	}
	for _, addr := range listen {
		if m, err := ma.NewMultiaddr(addr); err == nil && kindOf(m) == kindWSS && o.TLS == nil {
			errs = append(errs, fmt.Errorf("address %.120q: WSS needs a certificate", addr))
		}
	}
	switch {
	case len(o.NetworkKey) == 0:
	case len(o.NetworkKey) != NetworkKeySize:
		errs = append(errs, fmt.Errorf("network key of %d bytes, want %d", len(o.NetworkKey), NetworkKeySize))
	case o.shared():
		errs = append(errs, errors.New("on a network with a key TCP and WebSocket cannot share a port: want one for each"))
	}
	return errs
}

// listen binds all addresses of the options.
func (h *Host) listen(o *Options) error {
	private := len(o.NetworkKey) > 0
	if slices.Equal(o.Listen, []string{ListenAuto}) {
		return h.listenAuto(private)
	}
	addrs, quic := make([]ma.Multiaddr, 0, len(o.Listen)), 0
	for _, s := range o.Listen {
		m, err := ma.NewMultiaddr(s)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", s, err)
		}
		if private && kindOf(m) == kindQUIC {
			quic++
			continue
		}
		addrs = append(addrs, m)
	}
	if quic > 0 && len(addrs) == 0 {
		return errors.New("a network with a key cannot use QUIC: want a tcp address to listen on")
	}
	if err := h.bind(addrs); err != nil {
		if taken := (*PortError)(nil); errors.As(err, &taken) {
			taken.find()
		}
		return err
	}
	if quic > 0 {
		h.noteNoQUIC()
	}
	return nil
}

// noteNoQUIC says once what a network key costs.
func (h *Host) noteNoQUIC() {
	const note = "the network has a key, so QUIC is off: peers behind routers are reached by TCP alone, which goes through fewer of them"
	h.notes = append(h.notes, note)
	h.log.Warn(note)
}

// listenAuto binds the first port that is free everywhere.
func (h *Host) listenAuto(private bool) error {
	var first *PortError // to name who made it move
	for port := AutoPort; port <= AutoPort+autoMore; port++ {
		addrs, notes, err := autoAddrs(port, private)
		if err == nil {
			err = h.bind(addrs)
		}
		var taken *PortError
		if errors.As(err, &taken) && taken.Taken() {
			if first == nil {
				first = taken
				first.find()
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, note := range notes {
			h.log.Info("not listening everywhere", "reason", note)
		}
		h.notes = append(h.notes, notes...)
		if private {
			h.noteNoQUIC()
		}
		if first != nil {
			h.notes = append(h.notes, fmt.Sprintf("%s; listening on port %d", first, port))
			h.log.Warn("the usual port is taken, the next free one is used", "port", port, "err", first)
		}
		return nil
	}
	return fmt.Errorf("each port from %d to %d is taken on one protocol at least; the first: %w", AutoPort, AutoPort+autoMore, first)
}

// autoAddrs returns the addresses of a port that are all free, without those of a family that this machine lacks, which
// the notes tell. It opens each for a moment, for that costs less than starting half and taking it back.
func autoAddrs(port int, private bool) (addrs []ma.Multiaddr, notes []string, err error) {
	var missing error
	for _, family := range []struct{ name, any, label string }{{"ip4", "0.0.0.0", "IPv4"}, {"ip6", "::", "IPv6"}} {
		list := []string{fmt.Sprintf("/%s/%s/tcp/%d", family.name, family.any, port)}
		if !private {
			list = append(list, fmt.Sprintf("/%s/%s/udp/%d/quic-v1", family.name, family.any, port))
		}
		for _, s := range list {
			m := ma.StringCast(s)
			if err = trial(m); err != nil {
				break
			}
			addrs = append(addrs, m)
		}
		switch {
		case err == nil:
		case noFamily(err):
			missing = err
			addrs = slices.DeleteFunc(addrs, func(m ma.Multiaddr) bool { return strings.HasPrefix(m.String(), "/"+family.name) })
			notes = append(notes, "this machine has no "+family.label+", so there is no listening on it")
		default:
			return nil, nil, err
		}
	}
	if len(addrs) == 0 {
		return nil, nil, missing
	}
	return addrs, notes, nil
}

// noFamily reports that the machine lacks IPv4 or IPv6.
func noFamily(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

// bind listens on all addresses, or on none of them.
func (h *Host) bind(addrs []ma.Multiaddr) error {
	shared := make(map[string]bool)
	for i, m := range addrs {
		if err := h.bindOne(m, shared); err != nil {
			for _, bound := range addrs[:i] {
				h.unbind(bound)
			}
			return err
		}
	}
	return nil
}

// unbind closes the listener of an address, whose port is not 0.
func (h *Host) unbind(m ma.Multiaddr) {
	if s, ok := h.host.Network().(*swarm.Swarm); ok {
		s.ListenClose(m)
	}
}

func (h *Host) bindOne(m ma.Multiaddr, shared map[string]bool) error {
	// libp2p listens with SO_REUSEPORT, so that a second daemon of the same user would share the port with the first
	// and take half of its connections. Binding without that option first finds out. UDP has no such option on, and
	// its sockets may be others than the system's.
	if socket := socketOf(m).String(); kindOf(m) != kindQUIC && !shared[socket] {
		if err := trial(m); err != nil {
			return err
		}
		shared[socket] = true
	}
	listen := func(m ma.Multiaddr) error { return h.host.Network().Listen(m) }
	if s, ok := h.host.Network().(*swarm.Swarm); ok {
		listen = s.AddListenAddr // Listen makes a text of the system's error
	}
	if err := listen(m); err != nil {
		return explainPort(m, err)
	}
	return nil
}

// trial opens an address and closes it again. The error is a [*PortError] if the port is taken or not permitted.
func trial(m ma.Multiaddr) error {
	network, address, err := manet.DialArgs(socketOf(m))
	if err != nil {
		return fmt.Errorf("listen on %s: %w", m, err)
	}
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			return explainPort(m, err)
		}
		return c.Close()
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return explainPort(m, err)
	}
	return l.Close()
}

// ListenAddresses returns the addresses that are bound, as sorted multiaddrs, with the real port where 0 was asked
// for. Unlike [Host.Addrs] they may name no interface in particular (0.0.0.0).
func (h *Host) ListenAddresses() []string {
	all := slices.DeleteFunc(h.host.Network().ListenAddresses(), func(m ma.Multiaddr) bool { return kindOf(m) == kindCircuit })
	addrs := addrStrings(all) // a relay's client listens on nothing that a system could bind
	slices.Sort(addrs)
	return addrs
}

// ListenNotes returns what a person should know about how the host listens, one sentence each; none if all is as asked.
func (h *Host) ListenNotes() []string {
	notes := slices.Clone(h.notes)
	if why := h.deaf.Load(); why != nil {
		notes = append(notes, *why)
	}
	return notes
}
