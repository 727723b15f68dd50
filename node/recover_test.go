package node_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p/deal"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// notes is the store's file that names the last durable writes.
const notes = "acknowledged"

func storeDir(t *testing.T, p *nodetest.Peer) string {
	t.Helper()
	h, err := home.At(p.Home)
	if err != nil {
		t.Fatal(err)
	}
	return h.StoreDir()
}

// putBack makes the store's files those of an earlier copy. Without withNotes the notes stay as they are, so that they
// name writes that are not there, as when a disk lost them.
func putBack(t *testing.T, p *nodetest.Peer, from string, withNotes bool) {
	t.Helper()
	dir := storeDir(t, p)
	kept, err := os.ReadFile(filepath.Join(dir, notes))
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(from))
	}
	if err == nil && !withNotes {
		err = os.WriteFile(filepath.Join(dir, notes), kept, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// abandoned holds a lease that the provider must have given up: it states no end and takes nothing more on it.
func abandoned(t *testing.T, l *rawLease, receipts int) {
	t.Helper()
	v, err := l.p.Client.Lease(t.Context(), l.id.Hex())
	if err != nil || v.State != market.Lost.String() || v.Reason != ledger.Abandoned || v.Receipts != receipts || v.Outcome != nil {
		t.Errorf("lease is %s (%s), %d receipts, outcome %v, %v; want it abandoned with %d", v.State, v.Reason, v.Receipts, v.Outcome, err, receipts)
	}
	l.connect(l.p)
	l.open()
	var canceled *work.Cancel
	err = l.read(func(f work.Frame) bool { canceled = f.Cancel; return canceled == nil })
	if err != nil || canceled == nil || canceled.Reason != "unknown_lease" {
		t.Errorf("the work stream says %+v, %v", canceled, err)
	}
	o := market.Outcome{Version: 1, Lease: l.id, EndedAt: time.Now().UnixMilli(), Code: market.CodeRenterCancel}
	s, err := l.deal.SendOutcome(within(t, patience), l.p.Node.Key(), nil, deal.Ending{Outcome: l.sign(market.OutcomeRenterDomain, o)})
	if err != nil || s.Code != deal.Unknown || s.Outcome != nil {
		t.Errorf("settlement %+v, %v; want nothing", s, err)
	}
}

// TestAbandon lets a provider lose a receipt that it signed, and moves an identity to a machine with an older store. In
// both cases it must not sign on that lease again.
func TestAbandon(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	l := newRaw(t, noPorts()).draft(p, time.Second, 2*time.Minute, "sleeps")
	l.begin()
	l.readTo(2)
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(storeDir(t, p))); err != nil {
		t.Fatal(err)
	}
	l.readTo(3)
	p.Stop()

	putBack(t, p, before, false)
	p.Restart()
	abandoned(t, l, 2)
	p.Restart() // and it stays so
	abandoned(t, l, 2)
	p.Stop()

	putBack(t, p, before, true)
	mark := filepath.Join(p.Home, "identity.imported")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Restart()
	abandoned(t, l, 2)
	if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark of the import is there: %v", err)
	}
	p.Stop()

	putBack(t, p, before, true) // without cause the lease is ended in writing
	p.Restart()
	eventually(t, func() error {
		v, err := p.Client.Lease(t.Context(), l.id.Hex())
		if err == nil && (v.State != market.Failed.String() || v.Reason != "restart" || v.Outcome == nil) {
			err = fmt.Errorf("lease is %s (%s), outcome %v; want it released", v.State, v.Reason, v.Outcome)
		}
		return err
	})
}

// TestLostOutputs starts a provider whose blobs are gone, with a lease that nobody claimed yet.
func TestLostOutputs(t *testing.T) {
	t.Parallel()
	p := nodetest.StartProvider(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, nil)
	l := newRaw(t, noPorts()).draft(p, time.Second, 2*time.Minute, "files")
	l.begin()
	l.readTo(1)
	l.pay()
	if o := l.readToEnd(); o.Code != market.CodeDone {
		t.Fatalf("outcome %s (%s)", o.Code, o.Reason)
	}
	p.Stop()
	h, err := home.At(p.Home)
	if err == nil {
		err = os.RemoveAll(h.BlobsDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Restart()
	l.connect(p)
	l.result, l.outcome = nil, nil
	l.open()
	if o := l.readToEnd(); o.Code != market.CodeDone || l.result == nil || l.result.ExitCode == nil {
		t.Errorf("outcome %s, result %+v; want them as they were", o.Code, l.result)
	}
}
