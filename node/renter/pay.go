package renter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/store"
)

// chain is the renter's side of a lease's money: the receipts it accepted and the vouchers it gave.
type chain struct {
	r         *Renter
	id        attest.Digest
	lease     market.Lease
	tail      receipt.Tail
	voucher   *market.Voucher
	voucherID attest.Digest
	due       market.MicroUSD
	issued    []receipt.Challenge // given since the one that the last accepted receipt echoes
	begin     time.Time           // own clock: when the process was first said to run; zero before
}

func newChain(r *Renter, id attest.Digest, l market.Lease) *chain {
	return &chain{r: r, id: id, lease: l, tail: receipt.Tail{Lease: id}, issued: []receipt.Challenge{newChallenge()}}
}

// challenge returns the newest challenge given.
func (c *chain) challenge() receipt.Challenge { return c.issued[len(c.issued)-1] }

// vouched returns the total of the last voucher.
func (c *chain) vouched() market.MicroUSD {
	if c.voucher == nil {
		return 0
	}
	return c.voucher.Total
}

// errBadReceipt means that a receipt is not accepted. It is not paid.
var errBadReceipt = errors.New("receipt is not accepted")

// maxIssued bounds the challenges that may be outstanding.
const maxIssued = 4096

// accept checks a receipt: signature, chain, challenge, own clock, budget. Then it signs the voucher that pays it, and
// writes both, synced, before the voucher leaves. A receipt that is known gives no voucher and no error.
func (c *chain) accept(e attest.Envelope, now time.Time) (*receipt.Receipt, *attest.Envelope, error) {
	if e.Signer != c.lease.Provider || len(e.Payload) > receipt.MaxBytes {
		return nil, nil, fmt.Errorf("%w: not the provider's, or too large", errBadReceipt)
	}
	rc, err := attest.Open[receipt.Receipt](e, c.r.network, receipt.Domain)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBadReceipt, err)
	}
	if rc.Seq <= c.tail.Seq && rc.Seq > 0 {
		return nil, nil, c.checkRepeated(rc.Seq, e)
	}
	next, err := c.tail.Accept(rc, e.ID())
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBadReceipt, err)
	}
	if err := c.check(rc, now); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBadReceipt, err)
	}
	fresh := newChallenge()
	v, err := market.NewVoucher(c.lease, next, c.voucher, now.UnixMilli(), fresh)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBadReceipt, err)
	}
	env, err := c.r.o.Signer.Sign(market.VoucherDomain, v)
	if err != nil {
		return nil, nil, err
	}
	var b store.Batch
	b.AppendReceipt(c.id, rc.Seq, e)
	b.AppendVoucher(c.id, v.Seq, env)
	if err := c.r.o.Store.Commit(&b); err != nil {
		return nil, nil, fmt.Errorf("write receipt and voucher: %w", err)
	}
	c.issued = append(c.issued[slices.Index(c.issued, rc.Challenge):], fresh)
	c.tail, c.voucher, c.voucherID, c.due = next, &v, env.ID(), v.Total
	c.r.metrics.receipts.Inc()
	return &rc, &env, nil
}

// check holds a receipt against what the renter knows by itself.
func (c *chain) check(rc receipt.Receipt, now time.Time) error {
	due, err := market.Due(c.lease.Price, rc.Cum)
	switch {
	case err != nil:
		return err
	case due > c.lease.Budget:
		return fmt.Errorf("%s are stated, the lease's budget is %s", due, c.lease.Budget)
	case rc.Simulated != c.lease.Simulated:
		return errors.New("it differs from the lease on whether the devices are simulated")
	case !slices.Contains(c.issued, rc.Challenge):
		return errors.New("it does not echo a challenge of this lease")
	case len(c.issued) >= maxIssued:
		return errors.New("it echoes a challenge that is too old")
	case c.begin.IsZero():
		return errors.New("it comes before the job was said to run")
	}
	elapsed := now.Sub(c.begin)
	if limit := c.most(elapsed); rc.State == receipt.Running && rc.Seq > limit {
		return fmt.Errorf("it is number %d, and there were intervals for %d", rc.Seq, limit)
	}
	return receipt.CheckElapsed(rc, len(c.lease.Devices), elapsed)
}

// spareReceipts may come on top of one for each interval.
const spareReceipts = 16

// most returns how many receipts of a running job there may be after that time. Each costs this side a signature and a
// synced write, so the provider may not choose how many it makes.
func (c *chain) most(elapsed time.Duration) uint64 {
	return uint64((max(elapsed, 0)+receipt.ElapsedTolerance)/c.lease.Interval()) + spareReceipts
}

// checkRepeated holds a receipt that comes again against the one accepted under its number.
func (c *chain) checkRepeated(seq uint64, e attest.Envelope) error {
	known, err := c.r.o.Store.Receipt(c.id, seq)
	if err != nil {
		return err
	}
	if known.ID() != e.ID() {
		return fmt.Errorf("%w: the provider signed two receipts with number %d", errBadReceipt, seq)
	}
	return nil
}

// restore reads the end of a chain from the store, as it was when this process, or the one before it, last wrote.
func (c *chain) restore(first receipt.Challenge, readyAt int64) error {
	_, last, err := c.r.o.Store.LastReceipt(c.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		rc, err := attest.Decode[receipt.Receipt](last)
		if err != nil {
			return err
		}
		c.tail = receipt.Tail{Lease: c.id, Seq: rc.Seq, ID: last.ID(), Last: rc}
	}
	c.issued = nil // from the challenge that the last receipt echoes
	found := false
	var bad error
	err = c.r.o.Store.VouchersBack(c.id, func(e attest.Envelope) bool {
		v, err := attest.Decode[market.Voucher](e)
		if err != nil {
			bad = err
			return false
		}
		if c.voucher == nil {
			c.voucher, c.voucherID, c.due = &v, e.ID(), v.Total
		}
		c.issued = append(c.issued, v.Challenge)
		found = c.tail.Seq > 0 && v.Challenge == c.tail.Last.Challenge
		return !found
	})
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	if !found {
		c.issued = append(c.issued, first)
	}
	slices.Reverse(c.issued)
	if readyAt > 0 {
		c.begin = time.UnixMilli(readyAt) // across a restart only the wall clock is left
	}
	return nil
}

// ran returns the billable device-ms accepted.
func (c *chain) ran() uint64 { return c.tail.Last.Cum[gpu.BillableDeviceMS] }

// totals are the chain's figures.
func (c *chain) totals() totals { return totals{int(c.tail.Seq), c.due, c.vouched(), c.ran()} }

// book puts the chain's figures into the job, on top of those of earlier leases.
func (c *chain) book(j *Job, base totals) {
	sum := base.plus(c.totals(), totals{})
	j.Receipts, j.Cost, j.Vouched, j.RanMS = sum.receipts, sum.cost, sum.vouched, sum.ranMS
}

// totals are the figures of one lease, or of a job over several.
type totals struct {
	receipts      int
	cost, vouched market.MicroUSD
	ranMS         uint64
}

// plus returns t with what more has beyond less, which it contains.
func (t totals) plus(more, less totals) totals {
	return totals{t.receipts + more.receipts - less.receipts, t.cost + more.cost - less.cost,
		t.vouched + more.vouched - less.vouched, t.ranMS + more.ranMS - less.ranMS}
}
