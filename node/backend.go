package node

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/joblog"
	"github.com/lacuna-network/lacuna/node/provider"
	"github.com/lacuna-network/lacuna/node/renter"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/find"
)

// backend is what the local API shows and does.
func (n *Node) backend() api.Backend {
	return api.Backend{
		Ready: func() error {
			select {
			case <-n.ready:
				return nil
			default:
				return api.ErrNotReady
			}
		},
		Status: n.status, Refresh: n.lookAgain, Down: n.down,
		Devices: n.deviceViews, Asks: n.asks,
		Submit: n.renter.Submit,
		Jobs:   func(context.Context) ([]renter.Job, error) { return n.renter.Jobs(), nil },
		Job:    func(_ context.Context, ref string) (renter.Job, error) { return n.renter.Job(ref) },
		Stop: func(ctx context.Context, ref string) (renter.Job, error) {
			if err := n.renter.Stop(ctx, ref); err != nil {
				return renter.Job{}, err
			}
			return n.renter.Job(ref)
		},
		Wait: n.renter.Wait, Fetch: n.renter.Fetch, Events: n.renter.Events,
		Log: func(ctx context.Context, ref string, offset uint64, follow bool, next func(joblog.Chunk) error) error {
			return n.renter.Log(ctx, ref, offset, follow, next)
		},
		Auctions: n.auctions,
		Leases:   n.leases, Lease: n.lease, EndLease: n.endLease,
		Receipts: n.receipts, Export: n.export,
		Reputations: n.reputations, Reputation: n.reputation,
		Join: n.Join, Invite: func(ctx context.Context, withoutKey bool) (string, error) {
			return n.host.Invite(ctx, p2p.InviteOptions{WithoutKey: withoutKey})
		},
		Config: func() []config.Entry { return n.o.Config.Explain() },
	}
}

// errorCodes say how errors of this package's parts are told to the programs on this machine.
func errorCodes() []api.Code {
	return []api.Code{
		{Err: renter.ErrNoJob, Status: http.StatusNotFound, Code: "no_job", Hint: "lacuna ps lists the jobs"},
		{Err: renter.ErrAmbiguous, Status: http.StatusConflict, Code: "ambiguous", Hint: "give more of the id"},
		{Err: renter.ErrSpec, Status: http.StatusBadRequest, Code: "bad_job", Hint: "see lacuna run --help"},
		{Err: renter.ErrRunning, Status: http.StatusConflict, Code: "running", Hint: "lacuna wait JOB"},
		{Err: renter.ErrNameTaken, Status: http.StatusConflict, Code: "name_taken", Hint: "choose another name, or stop that job first"},
		{Err: renter.ErrNoOutputs, Status: http.StatusConflict, Code: "no_outputs"},
		{Err: provider.ErrNotRunning, Status: http.StatusConflict, Code: "not_in_force"},
		{Err: p2p.ErrInvite, Status: http.StatusBadRequest, Code: "bad_invite", Hint: "paste the whole line that lacuna invite printed"},
		{Err: p2p.ErrNoInvite, Status: http.StatusConflict, Code: "no_invite", Hint: "on a LAN start a network of your own name, in a new home: lacuna --home DIR up -d --network NAME, or allow private addresses here: lacuna config set network.lan yes, and start again; else see lacuna doctor"},
		{Err: ErrTarget, Status: http.StatusBadRequest, Code: "bad_target", Hint: "paste the whole line that lacuna invite printed"},
		{Err: ErrOtherNetwork, Status: http.StatusConflict, Code: "other_network", Hint: "the records of a home belong to one network; take another home for this one: lacuna --home DIR join …"},
		{Err: ErrNoKey, Status: http.StatusConflict, Code: "no_network_key", Hint: "a key is taken in at a start: lacuna down, then the same join, then lacuna up -d"},
		{Err: ErrOwnInvite, Status: http.StatusConflict, Code: "own_invite", Hint: "paste it on another machine; this one joins by the invite of another peer"},
		{Err: ErrNoneReached, Status: http.StatusBadGateway, Code: "none_reached", Hint: "is the other peer up, and can its address be reached from here?"},
		{Err: store.ErrNoSpace, Status: http.StatusInsufficientStorage, Code: "no_space", Hint: "free some disk, or lower store.min_free in the config"},
	}
}

// down ends the peer, at once or when its leases have ended.
func (n *Node) down(_ context.Context, drain bool) error {
	if drain && n.provider != nil {
		n.drain()
		return nil
	}
	n.mu.Lock()
	stop := n.stop
	n.mu.Unlock()
	stop()
	return nil
}

// drainWithin bounds how long a peer that is to go down waits for its leases.
const drainWithin = 24 * time.Hour

// drainOnAsk waits until somebody asks the peer to go down without ending its leases, and ends it after the last one.
func (n *Node) drainOnAsk(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.draining:
	}
	ctx, cancel := context.WithTimeout(ctx, drainWithin)
	defer cancel()
	if err := n.provider.Drain(ctx); err != nil {
		n.log.Warn("leases were still in force", "err", err)
	}
	return n.down(ctx, false)
}

func (n *Node) deviceViews(context.Context) ([]api.DeviceView, error) {
	views := []api.DeviceView{}
	if n.provider == nil {
		return views, nil
	}
	devices, err := n.provider.Devices()
	for _, d := range devices {
		views = append(views, api.ViewDevice(n.Key(), d.Device, d.Price, d.State, d.Detail, d.Lease, d.Sample))
	}
	return views, err
}

func (n *Node) asks(ctx context.Context, f api.AskFilter, found func(api.AskView) error) error {
	q := find.Query{Limit: f.Limit}
	if f.Class != "" {
		q.Classes = []string{f.Class}
	}
	if f.Place.Continent != "" {
		q.Places = []string{f.Place.Continent}
	}
	reps, err := n.renter.Reputations(time.Now())
	if err != nil {
		return err
	}
	known := map[attest.Key]renter.Reputation{}
	for _, r := range reps {
		known[r.Peer] = r
	}
	show := func(a market.Ask) error {
		a.Lots = lotsFor(a.Lots, f, n.host.Testnet())
		if len(a.Lots) == 0 || !a.Place.Within(f.Place) {
			return nil
		}
		var score, mean *int
		if r, ok := known[a.Provider]; ok {
			score, mean = &r.Score.ScoreBP, &r.MeanBP
		}
		v := api.ViewAsk(a, score, mean, a.Provider == n.Key())
		v.LatencyMS = n.latency(a.Provider)
		if fault := n.judgePlace(a.Provider, a.Place); fault.Impossible {
			text := fault.String()
			v.PlaceFault = &text
		}
		return found(v)
	}
	if n.provider != nil {
		if own, ok := n.provider.Ask(); ok && (f.Class == "" || hasClass(own, f.Class)) {
			if err := show(own); err != nil {
				return err
			}
		}
	}
	for a := range n.find.Lookup(ctx, q) {
		if a.Ask.Provider == n.Key() {
			continue
		}
		if err := show(a.Ask); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func hasClass(a market.Ask, class string) bool {
	return slices.ContainsFunc(a.Lots, func(l market.Lot) bool { return l.Class == class })
}

// lotsFor returns the lots that fit a filter.
func lotsFor(lots []market.Lot, f api.AskFilter, testnet bool) []market.Lot {
	var out []market.Lot
	for _, l := range lots {
		d := gpu.Device{Name: l.Model, Model: l.Model, MemBytes: l.MemBytes}
		if l.Simulated && !testnet {
			continue // no honest peer sells it here
		}
		if (f.Class == "" || l.Class == f.Class) && (f.Model == "" || gpu.Match(f.Model, d)) && (f.MaxPrice == 0 || l.Price <= f.MaxPrice) {
			out = append(out, l)
		}
	}
	return out
}

func (n *Node) auctions(_ context.Context, ref string) ([]api.AuctionView, error) {
	records, err := n.renter.Auctions(ref)
	if err != nil {
		return nil, err
	}
	views := make([]api.AuctionView, 0, len(records))
	for _, r := range records {
		v, err := api.ViewAuction(r, n.signer.Network())
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// chain reads what is signed on a lease.
func (n *Node) chain(id attest.Digest) (c api.Chain, err error) {
	if c.Receipts, err = n.store.Receipts(id); err != nil {
		return c, err
	}
	if c.Vouchers, err = n.store.Vouchers(id); err != nil {
		return c, err
	}
	c.Outcomes, err = n.store.Outcomes(id)
	return c, err
}

// leases returns the leases of a role, newest first. Those that never came to be are left out.
func (n *Node) leases(_ context.Context, role string) ([]api.LeaseView, error) {
	if role != "" && role != ledger.Renter.String() && role != ledger.Provider.String() {
		return nil, fmt.Errorf("%w: role %q, want renter or provider", api.ErrUsage, role)
	}
	views := []api.LeaseView{}
	err := n.eachLease(func(id attest.Digest, rec ledger.Record) error {
		if role != "" && rec.Role.String() != role || rec.State == market.Offered || rec.State == market.Void {
			return nil
		}
		c, err := n.chain(id)
		if err != nil {
			return err
		}
		v, err := api.ViewLease(rec, c)
		views = append(views, v)
		return err
	})
	slices.SortFunc(views, func(a, b api.LeaseView) int {
		return cmp.Or(b.AwardedAt.Compare(a.AwardedAt), strings.Compare(a.ID.Hex(), b.ID.Hex()))
	})
	return views, err
}

// eachLease calls f for each lease that can be read. The others are logged, and named at each start.
func (n *Node) eachLease(f func(attest.Digest, ledger.Record) error) error {
	return n.store.Leases(func(id attest.Digest, value []byte, err error) error {
		var rec ledger.Record
		if err == nil {
			err = attest.Unmarshal(value, &rec)
		}
		if err != nil {
			n.log.Warn("lease cannot be read", "lease", id.Short(), "err", err)
			return nil
		}
		return f(id, rec)
	})
}

// findLease returns the lease whose id begins with ref, or the current one of the job that ref names.
func (n *Node) findLease(ref string) (attest.Digest, ledger.Record, error) {
	prefix := strings.ToLower(strings.TrimPrefix(ref, "sha256:"))
	if prefix == "" {
		return attest.Digest{}, ledger.Record{}, fmt.Errorf("%w: no lease named", api.ErrUsage)
	}
	var id attest.Digest
	var rec ledger.Record
	hits := 0
	err := n.eachLease(func(i attest.Digest, r ledger.Record) error {
		if strings.HasPrefix(i.Hex(), prefix) {
			id, rec = i, r
			hits++
		}
		return nil
	})
	switch {
	case err != nil:
		return id, rec, err
	case hits > 1:
		return id, rec, fmt.Errorf("lease %q: %w", ref, api.ErrAmbiguous)
	case hits == 1:
		return id, rec, nil
	}
	if j, err := n.renter.Job(ref); err == nil && j.Lease != nil {
		return n.findLease(j.Lease.Hex())
	}
	return id, rec, fmt.Errorf("lease %q: %w", ref, api.ErrNotFound)
}

func (n *Node) lease(_ context.Context, ref string) (api.LeaseView, error) {
	id, rec, err := n.findLease(ref)
	if err != nil {
		return api.LeaseView{}, err
	}
	c, err := n.chain(id)
	if err != nil {
		return api.LeaseView{}, err
	}
	return api.ViewLease(rec, c)
}

func (n *Node) endLease(ctx context.Context, ref, reason string) (api.LeaseView, error) {
	id, rec, err := n.findLease(ref)
	if err != nil {
		return api.LeaseView{}, err
	}
	if rec.Role == ledger.Renter {
		return api.LeaseView{}, fmt.Errorf("%w: this peer is the renter; stop job %s instead", api.ErrConflict, rec.Job)
	}
	if n.provider == nil { // it was one when it signed
		return api.LeaseView{}, fmt.Errorf("%w: lease %s is not in force; this peer does not provide now", api.ErrConflict, id.Short())
	}
	if reason == "" {
		reason = "owner"
	}
	if !snakeCase(reason) {
		return api.LeaseView{}, fmt.Errorf("%w: reason %q, want at most 32 of a-z, 0-9 and _", api.ErrUsage, reason)
	}
	if err := n.provider.End(id, reason); err != nil {
		return api.LeaseView{}, err
	}
	return n.lease(ctx, id.Hex())
}

func snakeCase(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

func (n *Node) receipts(_ context.Context, ref string) ([]api.ReceiptView, error) {
	id, rec, err := n.findLease(ref)
	if err != nil {
		return nil, err
	}
	c, err := n.chain(id)
	if err != nil {
		return nil, err
	}
	return api.ViewReceipts(rec, c)
}

// export returns the receipt file of one lease, or of all leases of a job.
func (n *Node) export(_ context.Context, lease, job string) ([]byte, error) {
	var ids []attest.Digest
	if job != "" {
		j, err := n.renter.Job(job)
		if err != nil {
			return nil, err
		}
		ids = j.Leases
	} else {
		id, _, err := n.findLease(lease)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	f := ledger.File{Network: n.o.Config.Network.Name}
	for _, id := range ids {
		value, err := n.store.Lease(id)
		if err != nil {
			return nil, err
		}
		var rec ledger.Record
		if err := attest.Unmarshal(value, &rec); err != nil {
			return nil, err
		}
		if rec.State == market.Offered || rec.State == market.Void {
			continue // never in force
		}
		c, err := n.chain(id)
		if err != nil {
			return nil, err
		}
		f.Leases = append(f.Leases, c.File(rec))
	}
	if len(f.Leases) == 0 {
		return nil, fmt.Errorf("%w: there is no lease in force or past", api.ErrNotFound)
	}
	return f.Encode()
}

func (n *Node) reputations(context.Context) ([]api.ReputationView, error) {
	reps, err := n.renter.Reputations(time.Now())
	views := []api.ReputationView{}
	for _, r := range reps {
		views = append(views, viewReputation(r))
	}
	slices.SortFunc(views, func(a, b api.ReputationView) int { return cmp.Compare(b.ScoreBP, a.ScoreBP) })
	return views, err
}

func (n *Node) reputation(_ context.Context, peer attest.Key) (api.ReputationView, error) {
	r, err := n.renter.Reputation(peer, time.Now())
	if err != nil {
		return api.ReputationView{}, err
	}
	return viewReputation(r), nil
}

// viewReputation shows a score; each piece of evidence refers to its lease.
func viewReputation(r renter.Reputation) api.ReputationView {
	leases := map[attest.Digest]attest.Digest{}
	for _, t := range r.Score.Terms {
		leases[t.Evidence.Ref] = t.Evidence.Ref
	}
	return api.ViewReputation(r.Peer, r.Score, r.Prior, leases)
}
