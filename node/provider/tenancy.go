package provider

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// stopCause says why a running lease is to end.
type stopCause struct {
	code   market.Code
	reason string
}

// tenancy is one lease on the provider's side, from the award until the renter has claimed what it left.
type tenancy struct {
	p       *Provider
	id      attest.Digest
	lease   market.Lease
	terms   market.Terms
	devices []gpu.Device
	dir     string
	log     *joblog.Log
	started chan struct{} // closed by the first work frame
	stopped chan struct{} // closed by stop

	mu        sync.Mutex
	changed   chan struct{} // closed and renewed when anything below changes
	rec       ledger.Record
	tail      receipt.Tail
	voucher   *market.Voucher
	voucherID attest.Digest
	challenge receipt.Challenge
	readyAt   time.Time // first process start, zero before
	ckpt      *work.Checkpoint
	ckptSeen  uint64 // number that the renter has stored
	result    *work.Result
	mine      *attest.Envelope // outcome, this side
	theirs    *attest.Envelope // outcome, renter's side
	cause     *stopCause
	sessions  int                    // attached work streams
	done      bool                   // live has returned, or never ran in this process
	delivered bool                   // the renter has been told the end and what it lacked
	blobs     map[attest.Digest]bool // what the renter may fetch

	freed bool // its devices were given back; under Provider.mu
}

func newTenancy(p *Provider, id attest.Digest, l market.Lease, w market.Terms, rec ledger.Record) *tenancy {
	return &tenancy{p: p, id: id, lease: l, terms: w, rec: rec, tail: receipt.Tail{Lease: id},
		started: make(chan struct{}), stopped: make(chan struct{}), changed: make(chan struct{}), blobs: map[attest.Digest]bool{}}
}

// update changes the tenancy under its lock and wakes whoever waits for a change.
func (t *tenancy) update(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	close(t.changed)
	t.changed = make(chan struct{})
}

// save writes the record, synced.
func (t *tenancy) save() error {
	b, err := attest.Marshal(t.rec)
	if err != nil {
		return err
	}
	return t.p.o.Store.SaveLease(t.id, b)
}

// advance moves the lease along its state table and writes it down.
func (t *tenancy) advance(e market.LeaseEvent) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, err := market.Next(t.rec.State, e)
	if err != nil {
		return err
	}
	t.rec.State = next
	if next.Final() {
		t.rec.EndedAt = time.Now().UnixMilli()
	}
	close(t.changed)
	t.changed = make(chan struct{})
	if err := t.save(); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	t.p.log.Info("lease is "+next.String(), "lease", t.id.Short())
	return nil
}

// stop asks the lease to end. The first cause counts. It returns false if the lease has ended.
func (t *tenancy) stop(c stopCause) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rec.State.Final() || t.done {
		return false
	}
	if t.cause == nil {
		t.cause = &c
		close(t.stopped)
	}
	return true
}

// why returns the cause that stop was called with, nil if it was not.
func (t *tenancy) why() *stopCause {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

func (t *tenancy) inForce() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.rec.State.Final()
}

// uses reports whether the lease is in force on that device.
func (t *tenancy) uses(device string) bool {
	if !t.inForce() {
		return false
	}
	for _, d := range t.devices {
		if d.ID == device {
			return true
		}
	}
	return false
}

// amounts returns what is due and what is vouched on the lease.
func (t *tenancy) amounts() (due, vouched market.MicroUSD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due, err := market.Due(t.lease.Price, t.tail.Last.Cum)
	if err != nil {
		due = market.MaxAmount // more than anybody may owe, so the next gate closes
	}
	if t.voucher != nil {
		vouched = t.voucher.Total
	}
	return due, vouched
}

// claimed reports whether both sides have signed the end.
func (t *tenancy) claimed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mine != nil && t.theirs != nil
}

// void reports whether the lease never came into force.
func (t *tenancy) void() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec.State == market.Void
}

// settled reports whether both sides have signed the end, and the renter has seen every receipt.
func (t *tenancy) settled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mine != nil && t.theirs != nil && (t.delivered || t.acknowledged())
}

// acknowledged reports whether a voucher accepts the last receipt. The caller holds t.mu.
func (t *tenancy) acknowledged() bool {
	return t.tail.Seq == 0 || t.voucher != nil && t.voucher.AckSeq == t.tail.Seq
}

// allow lets the renter fetch a blob.
func (t *tenancy) allow(ds ...attest.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range ds {
		t.blobs[d] = true
	}
}

// AllowBlob reports whether that peer may fetch that blob: it is an output or a checkpoint of one of its leases.
func (p *Provider) AllowBlob(peer attest.Key, d attest.Digest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tenancies {
		if t.lease.Renter != peer {
			continue
		}
		t.mu.Lock()
		ok := t.blobs[d]
		t.mu.Unlock()
		if ok {
			return true
		}
	}
	return false
}

// maxKeptModule is the largest module that stays after its lease, in bytes.
const maxKeptModule = 64 << 20

// scrub removes what the renter left on this machine. A module of ordinary size stays: it is the provider's cache, named
// by its digest, and served to nobody.
func (t *tenancy) scrub() {
	_ = t.log.Close()
	if err := os.RemoveAll(t.dir); err != nil {
		t.p.log.Warn("job folder is not removed", "lease", t.id.Short(), "err", err)
	}
	t.mu.Lock()
	blobs := make([]attest.Digest, 0, len(t.blobs)+len(t.terms.Inputs))
	for d := range t.blobs {
		blobs = append(blobs, d)
	}
	t.mu.Unlock()
	for _, f := range slices.Concat(t.terms.Inputs, t.terms.Resume) {
		blobs = append(blobs, f.Digest)
	}
	if t.terms.ModuleBytes > maxKeptModule {
		blobs = append(blobs, t.terms.Module)
	}
	for _, d := range blobs {
		t.p.dropBlob(t, d)
	}
}

// dropBlob removes a blob that no lease but that one needs; nil excepts none. While the blobs of a lease are being stored,
// it waits for its end: until they are noted as the lease's own, an equal one of another lease seems to be needed by none.
func (p *Provider) dropBlob(not *tenancy, d attest.Digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.storing > 0 {
		p.dropped = append(p.dropped, droppedBlob{not, d})
		return
	}
	p.removeBlob(not, d)
}

// droppedBlob is a blob that is to be removed, and the lease that does not count.
type droppedBlob struct {
	not *tenancy
	d   attest.Digest
}

// removeBlob removes a blob unless it is wanted. The caller holds p.mu.
func (p *Provider) removeBlob(not *tenancy, d attest.Digest) {
	if !p.wanted(not, d) {
		_ = p.o.Files.Remove(d)
	}
}

// beginStoring is called before blobs of a lease are stored, and endStoring once they are noted as its own.
func (p *Provider) beginStoring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storing++
}

func (p *Provider) endStoring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.storing--; p.storing > 0 {
		return
	}
	for _, x := range p.dropped {
		p.removeBlob(x.not, x.d)
	}
	p.dropped = nil
}

// Wants reports whether a lease needs the blob.
func (p *Provider) Wants(d attest.Digest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted(nil, d)
}

// wanted reports whether another lease needs the blob, or it is a module that stays. The caller holds p.mu.
func (p *Provider) wanted(not *tenancy, d attest.Digest) bool {
	for _, t := range p.tenancies {
		if t == not {
			continue
		}
		t.mu.Lock()
		ok := t.blobs[d]
		t.mu.Unlock()
		for _, f := range slices.Concat(t.terms.Inputs, t.terms.Resume) {
			ok = ok || f.Digest == d
		}
		if ok || t.terms.Module == d {
			return true
		}
	}
	return not != nil && d == not.terms.Module && not.terms.ModuleBytes <= maxKeptModule
}
