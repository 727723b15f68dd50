package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/attest/reputation"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/ledger"
	"github.com/lacuna-network/lacuna/market/markettest"
	"github.com/lacuna-network/lacuna/node/api"
)

func keyOf(seed uint64) attest.Key { return markettest.Signer(seed).Key() }

// auctionRecord is an auction of three: 13 is above the limit, 11 ranks first and refused, 12 won; 15 declined.
func auctionRecord(t *testing.T) auction.Record {
	t.Helper()
	renter := markettest.Signer(1)
	r := auction.Record{Bid: markettest.Sign(t, renter, market.BidDomain, markettest.Bid(renter.Key())), OpenedAt: markettest.Start().UnixMilli(),
		WindowMS: 250, TookMS: 251, ClosedBy: auction.ByWindow, Theta: 3, MaxPrice: market.USD, StartWithin: 30_000, DeclineCount: 1}
	bid := r.Bid.ID()
	b := auction.NewBook(r.Rules())
	for seed, price := range map[uint64]market.MicroUSD{11: 290_000, 12: 300_000, 13: 1_000_001, 14: 400_000} {
		o := markettest.Offer(keyOf(seed), bid)
		o.Price = price
		b.Add(auction.Entry{Envelope: markettest.Sign(t, markettest.Signer(seed), market.OfferDomain, o), Offer: o, MeanBP: 9000, Known: true})
	}
	decline := func(seed uint64, about attest.Digest) attest.Envelope {
		return markettest.Sign(t, markettest.Signer(seed), market.DeclineDomain, markettest.Decline(keyOf(seed), about))
	}
	r.Entries, r.Received = b.Entries(), uint64(b.Received)
	r.Declines, r.Refusals = []attest.Envelope{decline(15, bid)}, []attest.Envelope{decline(11, attest.Sum([]byte("award")))}
	won, lease := keyOf(12), attest.Sum([]byte("lease"))
	r.Award, r.Lease = &won, &lease
	return r
}

func TestViewAuction(t *testing.T) {
	r := auctionRecord(t)
	network := markettest.Signer(1).Network()
	v, err := api.ViewAuction(r, network)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Recomputed || v.RecomputeError != "" || v.Bid != r.Bid.ID() || v.ReferencePrice != nil || v.ClosedBy != "window" {
		t.Errorf("view is %+v", v)
	}
	var got []string
	for _, o := range v.Offers {
		got = append(got, o.Peer.String()+" "+o.Price.String()+" "+o.Excluded)
		if o.Kept != (o.Excluded == "") || o.Theta != 3 || !o.Start.Equal(v.OpenedAt.Add(251*time.Millisecond+time.Duration(o.StartInMS)*time.Millisecond)) {
			t.Errorf("offer is %+v", o)
		}
	}
	want := []string{keyOf(11).String() + " 0.29 USD ", keyOf(12).String() + " 0.30 USD ", keyOf(14).String() + " 0.40 USD ", keyOf(13).String() + " 1.000001 USD price_above_limit"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("offers (-want +got):\n%s", d)
	}
	if v.Award == nil || v.Award.Peer != keyOf(12) || v.Award.Price != 300_000 || *v.Award.Lease != *r.Lease {
		t.Errorf("award is %+v", v.Award)
	}
	if d := cmp.Diff([]attest.Key{keyOf(14)}, v.RunnersUp); d != "" {
		t.Errorf("runners-up (-want +got):\n%s", d)
	}
	if len(v.Declines) != 1 || v.Declines[0].Peer != keyOf(15) || len(v.Declines[0].Failures) == 0 || len(v.Refusals) != 1 || v.Refusals[0].Peer != keyOf(11) {
		t.Errorf("declines %+v, refusals %+v", v.Declines, v.Refusals)
	}
	cheat := keyOf(14)
	r.Award = &cheat
	if v, err = api.ViewAuction(r, network); err != nil || v.Recomputed || !strings.Contains(v.RecomputeError, "ranks first") {
		t.Errorf("an award out of order: recomputed %v, %q, %v", v.Recomputed, v.RecomputeError, err)
	}
	r.Award, r.DryRun = nil, true
	if v, err = api.ViewAuction(r, network); err != nil || v.Award != nil || len(v.RunnersUp) != 3 {
		t.Errorf("a dry run: award %+v, runners-up %v, %v", v.Award, v.RunnersUp, err)
	}
}

func leaseRecord(d *markettest.Deal) (ledger.Record, api.Chain) {
	return ledger.Record{Role: ledger.Renter, Award: d.Award, Accept: d.Accept, Offer: d.Offer, State: market.Running,
		AwardedAt: markettest.Start().UnixMilli(), Job: "job"}, api.Chain{Receipts: d.Receipts, Vouchers: d.Vouchers, Outcomes: d.Outcomes}
}

func TestViewLeaseAndReceipts(t *testing.T) {
	d := markettest.NewDeal(t, 1, 2, nil)
	rec, chain := leaseRecord(d)
	v, err := api.ViewLease(rec, chain)
	if err != nil {
		t.Fatal(err)
	}
	if v.ID != d.ID || v.Role != "renter" || v.State != "running" || v.ReadyAt != nil || v.EndedAt != nil || v.Head != nil || v.Outcome != nil ||
		v.Due != 0 || v.RanMS != 0 || len(v.Models) != len(v.Devices) || v.Tier != d.Lease.Tier.String() {
		t.Errorf("a fresh lease is %+v", v)
	}
	d.Run(3 * time.Second)
	d.Pay()
	d.Run(3 * time.Second)
	rec, chain = leaseRecord(d)
	receipts, err := api.ViewReceipts(rec, chain)
	if err != nil || len(receipts) != 2 {
		t.Fatalf("%d receipts, %v, want 2", len(receipts), err)
	}
	var sum market.MicroUSD
	for i, r := range receipts {
		sum += r.Cost
		if r.Seq != uint64(i+1) || r.ID != d.Receipts[i].ID() || r.Acknowledged != (i == 0) || r.State != "running" || r.Total != sum || r.RanMS == nil ||
			r.Units["billable_device_ms"] != *r.RanMS {
			t.Errorf("receipt %d is %+v", i+1, r)
		}
	}
	d.Pay()
	d.Add(d.Next(time.Second, receipt.Final))
	d.Pay()
	d.End(market.CodeDone)
	rec, chain = leaseRecord(d)
	rec.State, rec.EndedAt = market.Done, markettest.Start().Add(time.Minute).UnixMilli()
	if v, err = api.ViewLease(rec, chain); err != nil {
		t.Fatal(err)
	}
	want, err := market.Due(d.Lease.Price, d.Tail.Last.Cum)
	if err != nil {
		t.Fatal(err)
	}
	if v.Receipts != 3 || v.Acknowledged != 3 || v.Due != want || v.Vouched != want || want == 0 || *v.Head != d.Tail.ID ||
		v.RanMS != d.Tail.Last.Cum[gpu.BillableDeviceMS] || v.Outcome == nil || v.Outcome.Code != "done" || v.Outcome.Signers != len(d.Outcomes) ||
		!v.EndedAt.Equal(markettest.Start().Add(time.Minute)) {
		t.Errorf("an ended lease is %+v with outcome %+v", v, v.Outcome)
	}
	file, err := ledger.File{Network: markettest.Network, Leases: []ledger.LeaseFile{chain.File(rec)}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Verify(file); err != nil {
		t.Errorf("the lease's file does not verify: %v", err)
	}
}

func TestUnknownIsNull(t *testing.T) {
	lease, temp := attest.Digest{9}, uint64(60)
	device := gpu.NewDevice(gpu.NVIDIA, "GPU-secret", "Odd Card", 0)
	ask := market.Ask{Provider: attest.Key{1}, ExpiresAt: 1_000, Workloads: []market.Workload{market.WASM}, Tiers: []market.Tier{market.Gold}}
	score := 500
	tests := []struct {
		name string
		v    any
		want map[string]any // of the top level
	}{
		{"idle device", api.ViewDevice(attest.Key{1}, device, 7, "free", "", nil, nil),
			map[string]any{"mem_bytes": nil, "lease": nil, "telemetry": nil, "id": market.NewDeviceID(attest.Key{1}, "GPU-secret").String(), "state": "free"}},
		{"leased device", api.ViewDevice(attest.Key{1}, device, 7, "leased", "", &lease, &gpu.Sample{Device: "GPU-secret", At: markettest.Start(), TempC: &temp}),
			map[string]any{"lease": lease.String(), "telemetry": map[string]any{"device": market.NewDeviceID(attest.Key{1}, "GPU-secret").String(),
				"at": markettest.Start().UTC().Format(time.RFC3339Nano), "temp_c": 60.0}}},
		{"ask of a stranger", api.ViewAsk(ask, nil, nil, false),
			map[string]any{"place": nil, "score_bp": nil, "mean_bp": nil, "lots": []any{}, "addrs": []any{}, "tiers": []any{"gold"}, "workloads": []any{"wasm"}, "expires_at": "1970-01-01T00:00:01Z"}},
		{"ask of a peer", api.ViewAsk(market.Ask{Place: market.Place{Continent: "eu"}}, &score, &score, true), map[string]any{"place": "eu", "score_bp": 500.0, "mean_bp": 500.0, "self": true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := json.Marshal(tt.v)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "secret") {
				t.Errorf("the driver's id is shown: %s", b)
			}
			var got map[string]any
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatal(err)
			}
			for k, want := range tt.want {
				if d := cmp.Diff(want, got[k]); d != "" {
					t.Errorf("%s (-want +got):\n%s", k, d)
				}
			}
		})
	}
}

func TestViewReputation(t *testing.T) {
	now := markettest.Start()
	p, prior := reputation.DefaultParams(), reputation.Prior{FirstLeases: 2, OK: 1}
	p.UnitMicroUSD = 500
	ref, lease := attest.Digest{1}, attest.Digest{2}
	ev := []reputation.Evidence{
		{At: now, OK: true, ValueMicroUSD: 750, Ref: ref, What: "done"},
		{At: now.Add(time.Second), ValueMicroUSD: 500, Ref: attest.Digest{3}, What: "lost"},
	}
	res := reputation.Score(p, ev, now)
	v := api.ViewReputation(attest.Key{5}, res, prior, map[attest.Digest]attest.Digest{ref: lease})
	if v.ScoreBP != res.ScoreBP || v.MeanBP != reputation.Mean(p, ev, prior, now) || v.Prior.BP != prior.BP() || v.S != "1.500" || v.F != "1.000" || len(v.Terms) != 2 {
		t.Errorf("view is %+v", v)
	}
	if got := v.Terms[0]; got.Lease == nil || *got.Lease != lease || got.Raw != "1.500" || got.Value != 750 || got.DecayBP != 10_000 || !got.OK {
		t.Errorf("first term is %+v", got)
	}
	if got := v.Terms[1]; got.Lease != nil || got.What != "lost" {
		t.Errorf("second term is %+v", got)
	}
}
