package peers

import (
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

// Limits of this package.
const (
	MaxBook = maxBook
	Look    = look
)

// Slept is slept.
func Slept(wall, monotonic time.Duration) bool { return slept(wall, monotonic) }

// Looks returns a function that looks as a watcher does, and what it finds at that time.
func Looks(start time.Time, addrs func() ([]string, error)) func(time.Time) string {
	w := watcher{clock: start, addrs: addrs}
	w.first(nil)
	return w.look
}

// Book is a book without a host.
type Book struct{ b *book }

// NewBook returns an empty book of that peer.
func NewBook(self attest.Key) Book { return Book{newBook(self)} }

// Load takes in what was kept.
func (b Book) Load(known []home.KnownPeer) { b.b.load(known) }

// Add makes a peer known.
func (b Book) Add(p p2p.InvitePeer, config bool) bool { return b.b.add(p, config) != nil }

// Met notes a connected peer.
func (b Book) Met(p p2p.PeerInfo, dialed bool, now time.Time) bool { return b.b.met(p, dialed, now) }

// Lost forgets who is connected.
func (b Book) Lost() { b.b.look() }

// Failed notes a dial without success.
func (b Book) Failed(key attest.Key, now time.Time) time.Duration {
	return b.b.failed(key, now, func(d time.Duration) time.Duration { return d })
}

// Forgive lets everybody be tried again.
func (b Book) Forgive() { b.b.forgive() }

// Due returns whom to dial.
func (b Book) Due(now time.Time, n int) []p2p.InvitePeer { return b.b.due(now, n) }

// Len returns how many peers are known.
func (b Book) Len() int { return len(b.b.entries) }

// List returns what is kept on disk.
func (b Book) List() []home.KnownPeer { return b.b.list() }
