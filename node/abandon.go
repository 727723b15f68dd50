package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/store"
)

// abandonLeases gives up the leases on which this peer may have signed something that it no longer has: all of them
// after an identity was imported or when records are damaged, else those whose records are gone. Nothing is ever signed
// on them again, so that a disk fault never makes an honest peer contradict itself. A record that cannot be read is
// logged and left alone: nobody takes up its lease.
func (n *Node) abandonLeases() error {
	imported, err := n.o.Home.Imported()
	if err != nil {
		return err
	}
	all := imported
	for _, d := range n.store.Damaged() {
		n.log.Error("a record is damaged", "record", d.Error())
		all = all || d.Kind == store.KindReceipt || d.Kind == store.KindVoucher || d.Kind == store.KindLease
	}
	lost := map[attest.Digest]bool{}
	for _, ref := range n.store.Lost() {
		n.log.Error("a record that was written is gone; what it proved cannot be proved any more", "record", ref.String())
		if lease, ok := ref.Lease(); ok {
			lost[lease] = true
		}
	}
	if !all && len(lost) == 0 {
		return nil
	}
	open := map[attest.Digest]ledger.Record{}
	err = n.eachLease(func(id attest.Digest, rec ledger.Record) error {
		if (all || lost[id]) && n.maySign(id, rec) {
			open[id] = rec
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("abandon leases: %w", err)
	}
	for id, rec := range open {
		rec.Abandon(time.Now().UnixMilli())
		b, err := attest.Marshal(rec)
		if err != nil {
			return fmt.Errorf("abandon lease: %w", err)
		}
		if err := n.store.SaveLease(id, b); err != nil {
			return fmt.Errorf("abandon lease: %w", err)
		}
		n.log.Warn("lease is abandoned", "lease", id.Short(), "role", rec.Role)
	}
	if imported {
		return n.o.Home.ClearImported()
	}
	return nil
}

// maySign reports whether this peer could still sign something on the lease: it is in force, or its outcome is not
// written yet.
func (n *Node) maySign(id attest.Digest, rec ledger.Record) bool {
	if !rec.State.Final() {
		return true
	}
	if rec.State == market.Void || rec.Reason == ledger.Abandoned {
		return false
	}
	outcomes, err := n.store.Outcomes(id)
	return err != nil || !slices.ContainsFunc(outcomes, func(e attest.Envelope) bool { return e.Signer == n.Key() })
}
