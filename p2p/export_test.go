package p2p

import (
	"context"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	msmux "github.com/multiformats/go-multistream"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// readOnly is a network stream that can only be read.
type readOnly struct {
	network.Stream
	io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// StreamFrom returns a stream that reads from r.
func StreamFrom(r io.Reader) *Stream { return &Stream{s: readOnly{Reader: r}} }

// CertLook is how often a certificate's file is looked at.
const CertLook = certLook

// Standing is what decides which addresses are told, with addresses as text.
type Standing struct {
	Everything, LAN             bool
	Fixed, Own, Hidden, Relayed []string
	Worked, Failed              []string
	Verdict                     market.Reach
}

// Told returns which of addrs are told.
func (s Standing) Told(addrs []string) []string {
	ips := func(list []string) map[netip.Addr]bool {
		m := make(map[netip.Addr]bool)
		for _, a := range list {
			m[netip.MustParseAddr(a)] = true
		}
		return m
	}
	set := func(list []string) map[string]bool {
		m := make(map[string]bool)
		for _, a := range list {
			m[a] = true
		}
		return m
	}
	in := standing{
		everything: s.Everything, lan: s.LAN, fixed: parseAll(s.Fixed), own: ips(s.Own), hidden: ips(s.Hidden),
		worked: set(s.Worked), failed: set(s.Failed), relayed: parseAll(s.Relayed), verdict: s.Verdict,
	}
	return addrStrings(in.told(parseAll(addrs)))
}

// Finding is what a peer found about an own address.
type Finding struct {
	By attest.Key
	At time.Time
	OK bool

	From string
}

func (f Finding) inner() finding { return finding{f.By, f.At, f.OK, f.From} }

// Evidence is what the verdict depends on.
type Evidence struct {
	Forced    market.Reach
	LAN       bool
	Own       []string
	Found     map[string][]Finding
	Inbound   Finding
	Punched   Finding
	Relays    []attest.Key
	Met       time.Time
	Alone     bool // nobody is connected
	NobodyOwn bool
	Outside   bool // peers beyond the LANs are there
	Lasts     bool // the inbound connection is still there
	Ranges    int  // that peers dial from
	Servers   int
	Doubt     time.Time
}

// Judge returns the verdict.
func Judge(e Evidence, now time.Time) Reach {
	in := evidence{
		forced: e.Forced, lan: e.LAN, own: e.Own, records: make(map[string]record), inbound: e.Inbound.inner(),
		punched: e.Punched.inner(), relays: e.Relays, met: e.Met, alone: e.Alone, nobodyOwn: e.NobodyOwn,
		outside: e.Outside, lasts: e.Lasts, crowd: crowd{e.Servers, e.Ranges, e.Doubt},
	}
	for a, fs := range e.Found {
		in.records[a] = records(fs)
	}
	return judge(in, now)
}

func records(fs []Finding) record {
	var r record
	for _, f := range fs {
		r = r.add(f.inner())
	}
	return r
}

// Due returns when an address is asked about next.
func Due(fs []Finding, now time.Time, servers, ranges int) time.Time {
	return records(fs).due(now, crowd{servers: servers, ranges: ranges})
}

// Sightings remembers how others see this peer.
type Sightings struct{ s sightings }

// Note keeps what a peer sees; see sightings.note.
func (s *Sightings) Note(listeners []string, local, seen string, by attest.Key, now time.Time) bool {
	return s.s.note(parseAll(listeners), ma.StringCast(local), ma.StringCast(seen), PeerID(by), now)
}

// Addrs returns the own addresses that follow.
func (s *Sightings) Addrs(now time.Time) []string { return addrStrings(s.s.addrs(now)) }

// Budget counts relayed bytes.
type Budget struct{ b budget }

// NewBudget returns a budget of that many bytes a day.
func NewBudget(perDay uint64) *Budget { return &Budget{budget{perDay: perDay}} }

// Spend counts bytes and returns what is left.
func (b *Budget) Spend(now time.Time, n uint64) uint64 {
	b.b.spend(now, n)
	return b.b.left(now)
}

// RTTs remembers round trips.
type RTTs struct{ r rtts }

// NewRTTs returns an empty memory.
func NewRTTs() *RTTs {
	var r RTTs
	r.r.init()
	return &r
}

// Note keeps a measurement.
func (r *RTTs) Note(key attest.Key, d time.Duration, now time.Time) { r.r.note(key, d, now) }

// Get returns the lowest of the recent ones.
func (r *RTTs) Get(key attest.Key, now time.Time) (time.Duration, bool) {
	d, _, ok := r.r.get(key, now)
	return d, ok
}

// Len returns how many peers are remembered.
func (r *RTTs) Len() int { return len(r.r.m) }

// DialBacks has peers dial back.
type DialBacks struct{ d *dialBacks }

// NewDialBacks returns one on a host of a test network, which serves others too, also on loopback.
func NewDialBacks(tb testing.TB, h *Host) *DialBacks {
	tb.Helper()
	d, server, err := serveAutoNAT(h.host, &Options{LAN: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	return &DialBacks{d}
}

// Request has one peer dial one address.
func (b *DialBacks) Request(ctx context.Context, server *Host, addr string) (bool, error) {
	return b.d.request(ctx, server.host.ID(), ma.StringCast(addr))
}

// Negotiate picks the protocol of a raw stream.
func Negotiate(s network.Stream, id protocol.ID) error { return msmux.SelectProtoOrFail(id, s) }

// LookOut makes a connection beside the host's own and returns what the other side sees.
func LookOut(ctx context.Context, h, other *Host, addr string) (string, error) {
	_, seen, err := lookOut(ctx, h.host, other.host.ID(), ma.StringCast(addr))
	if err != nil {
		return "", err
	}
	return seen.String(), nil
}

// Outside reports whether an address is beyond LANs of these ranges.
func Outside(addr string, nets ...string) bool {
	var s standing
	for _, n := range nets {
		s.nets = append(s.nets, netip.MustParsePrefix(n))
	}
	return s.outside(ma.StringCast(addr))
}

// Server is a peer that can dial back.
type Server struct {
	Key     attest.Key
	From    string
	Outside bool
	Private bool
}

func (s Server) inner() server { return server{PeerID(s.Key), s.Key, s.From, s.Outside, s.Private} }

// Fit reports whether the server is asked about an address.
func (s Server) Fit(addr string, outside bool) bool {
	return s.inner().fit(ma.StringCast(addr), outside)
}

// Next returns who is asked next about an address of which that was found.
func Next(fs []Finding, servers ...Server) attest.Key {
	var in []server
	for _, s := range servers {
		in = append(in, s.inner())
	}
	return records(fs).next(in).key
}

// Watcher sees connections end.
type Watcher struct{ r *reacher }

// NewWatcher returns one that has proof that UDP got out at that time.
func NewWatcher(at time.Time) Watcher {
	r := newReacher(&Options{LAN: true})
	r.setWire(kindQUIC, WireOpen, at)
	return Watcher{r}
}

// Conn is a connection to an address.
type Conn struct {
	network.Conn
	Addr string
}

// RemoteMultiaddr returns the address.
func (c Conn) RemoteMultiaddr() ma.Multiaddr { return ma.StringCast(c.Addr) }

// Look ends some connections and looks at those that are left. It returns when all was doubted last.
func (w Watcher) Look(now time.Time, left []string, ended ...string) (doubted time.Time, udp Wire) {
	var conns []network.Conn
	for _, a := range left {
		conns = append(conns, Conn{Addr: a})
	}
	for _, a := range ended {
		w.r.lose(Conn{Addr: a}, now)
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.metOutside(now, conns)
	w.r.weighWires(now, conns)
	w.r.notice(now, conns)
	return w.r.distrust, w.r.udp
}

// Refresh asks for a doubt and reports whether that may be.
func (w Watcher) Refresh(now time.Time) bool { return w.r.refresh(now) }
