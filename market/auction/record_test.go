package auction_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/auction"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// offered signs the offer of the peer of that seed and scores it.
func offered(tb testing.TB, b *auction.Book, bid attest.Digest, seed uint64, price market.MicroUSD, meanBP uint64, known bool) {
	tb.Helper()
	o := markettest.Offer(markettest.Signer(seed).Key(), bid)
	o.Price = price
	e := markettest.Sign(tb, markettest.Signer(seed), market.OfferDomain, o)
	b.Add(auction.Entry{Envelope: e, Offer: o, MeanBP: meanBP, Known: known, ArrivedMS: 10 * seed})
}

// record is an auction of four: 13 is above the limit, 11 ranks first and refused, 12 won, 14 is a runner-up.
func record(tb testing.TB) auction.Record {
	tb.Helper()
	renter := markettest.Signer(1)
	r := auction.Record{Bid: markettest.Sign(tb, renter, market.BidDomain, markettest.Bid(renter.Key())),
		OpenedAt: markettest.Start().UnixMilli(), WindowMS: 250, TookMS: 251, ClosedBy: auction.ByWindow, Theta: 3,
		MaxPrice: 1 * market.USD, StartWithin: 30_000, Heard: 5, DeclineCount: 1}
	b := auction.NewBook(r.Rules())
	bid := r.Bid.ID()
	offered(tb, b, bid, 14, 400_000, 9000, true)
	offered(tb, b, bid, 12, 300_000, 9000, true)
	offered(tb, b, bid, 13, 1_000_001, 10_000, true)
	offered(tb, b, bid, 11, 290_000, 9000, false)
	r.Entries, r.Received = b.Entries(), uint64(b.Received)
	r.Refusals = []attest.Envelope{refusal(tb, 11, attest.Sum([]byte("award")))}
	r.Declines = []attest.Envelope{refusal(tb, 15, bid)}
	won, lease := markettest.Signer(12).Key(), attest.Sum([]byte("lease"))
	r.Award, r.Lease = &won, &lease
	return r
}

// far gives an auction a limit on the round trip, and all its offers the same one.
func far(r *auction.Record, limit, rtt uint64) {
	r.Latency = limit
	b := auction.NewBook(r.Rules())
	for _, e := range r.Entries {
		e.RTTMS = rtt
		b.Add(e)
	}
	r.Take(b)
}

// A record of the first version reads, explains its award and is written as it was.
func TestRecordOfTheFirstVersion(t *testing.T) {
	text, err := os.ReadFile("testdata/record-1.hex")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	var got auction.Record
	if err := errors.Join(attest.Unmarshal(stored, &got), got.Decode(), got.Recompute(markettest.NetworkID())); err != nil {
		t.Fatal(err)
	}
	if again, err := attest.Marshal(got); err != nil || !bytes.Equal(again, stored) {
		t.Errorf("it is written as %x, %v", again, err)
	}
	if diff := cmp.Diff(record(t), got); diff != "" {
		t.Errorf("the same auction today (-today +stored):\n%s", diff)
	}
}

// refusal is a signed decline by the peer of that seed.
func refusal(tb testing.TB, seed uint64, about attest.Digest) attest.Envelope {
	tb.Helper()
	s := markettest.Signer(seed)
	d := markettest.Decline(s.Key(), about)
	d.Failures = []market.Failure{{Reason: market.Sold, Wanted: "1 device", Available: "none"}}
	return markettest.Sign(tb, s, market.DeclineDomain, d)
}

func TestRecordIsStoredWhole(t *testing.T) {
	want := record(t)
	b, err := attest.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got auction.Record
	if err := attest.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if err := got.Decode(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-stored +read):\n%s", diff)
	}
	if err := got.Recompute(markettest.NetworkID()); err != nil {
		t.Errorf("Recompute = %v", err)
	}
	got.Entries[0].Envelope.Payload = []byte{0xa0}
	if err := got.Decode(); err == nil {
		t.Error("an offer that is none was decoded")
	}
}

func TestRecompute(t *testing.T) {
	key := func(seed uint64) *attest.Key { k := markettest.Signer(seed).Key(); return &k }
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *auction.Record)
		want   string // part of the message, "" = it explains its award
	}{
		{"honest", func(*testing.T, *auction.Record) {}, ""},
		{"first did not answer", func(_ *testing.T, r *auction.Record) {
			r.Refusals, r.Failed = nil, []attest.Key{*key(11)}
		}, ""},
		{"dry run", func(_ *testing.T, r *auction.Record) { r.Award, r.Refusals, r.DryRun = nil, nil, true }, ""},
		{"stopped", func(_ *testing.T, r *auction.Record) { r.Award, r.Stopped = nil, true }, ""},
		{"stopped, and the wrong one won", func(_ *testing.T, r *auction.Record) { r.Award, r.Stopped = key(14), true }, "ranks first"},
		{"nobody acceptable, nobody won", func(t *testing.T, r *auction.Record) {
			r.Entries, r.Award = r.Entries[3:], nil
		}, ""},
		{"first could not be reached", func(_ *testing.T, r *auction.Record) {
			r.Refusals, r.Unreached = nil, []auction.Unreached{{Peer: *key(11), Reason: auction.RelayLimited}}
		}, ""},
		{"passed over for no reason", func(_ *testing.T, r *auction.Record) {
			r.Refusals, r.Unreached = nil, []auction.Unreached{{Peer: *key(11), Reason: "dear"}}
		}, "no reason"},
		{"winner could not be reached", func(_ *testing.T, r *auction.Record) {
			r.Unreached = []auction.Unreached{{Peer: *key(12), Reason: auction.CannotReach}}
		}, "ranks first"},
		{"within the latency", func(_ *testing.T, r *auction.Record) { far(r, 100, 40) }, ""},
		{"round trip changed", func(_ *testing.T, r *auction.Record) { far(r, 100, 40); r.Entries[1].RTTMS = 39 }, "computed"},
		{"latency limit changed", func(_ *testing.T, r *auction.Record) { far(r, 100, 40); r.Latency = 90 }, "computed"},
		{"path changed", func(_ *testing.T, r *auction.Record) { r.Entries[1].Path = market.ReachRelayed }, "computed"},
		{"surcharge changed", func(_ *testing.T, r *auction.Record) { r.Entries[1].SurchargeBP = 1 }, "computed"},
		{"all refused", func(t *testing.T, r *auction.Record) {
			r.Refusals, r.Award = append(r.Refusals, refusal(t, 12, attest.Sum(nil)), refusal(t, 14, attest.Sum(nil))), nil
		}, ""},

		{"runner-up won", func(_ *testing.T, r *auction.Record) { r.Award = key(14) }, "ranks first"},
		{"excluded one won", func(_ *testing.T, r *auction.Record) { r.Award = key(13) }, "ranks first"},
		{"stranger to the auction won", func(_ *testing.T, r *auction.Record) { r.Award = key(99) }, "ranks first"},
		{"nobody won", func(_ *testing.T, r *auction.Record) { r.Award = nil }, "nobody did"},
		{"won without an acceptable offer", func(_ *testing.T, r *auction.Record) { r.Entries = r.Entries[3:] }, "no acceptable offer"},
		{"refusal left out", func(_ *testing.T, r *auction.Record) { r.Refusals = nil }, "ranks first"},
		{"refusal of another", func(t *testing.T, r *auction.Record) {
			r.Refusals = []attest.Envelope{refusal(t, 14, attest.Sum(nil))}
		}, "ranks first"},
		{"decline of the bid as a refusal", func(t *testing.T, r *auction.Record) {
			r.Refusals = []attest.Envelope{refusal(t, 11, r.Bid.ID())}
		}, "no refusal of an award"},
		{"refusal in another's name", func(t *testing.T, r *auction.Record) {
			d := markettest.Decline(*key(11), attest.Sum(nil))
			r.Refusals = []attest.Envelope{markettest.Sign(t, markettest.Signer(1), market.DeclineDomain, d)}
		}, "no refusal of an award"},
		{"forged refusal", func(_ *testing.T, r *auction.Record) { r.Refusals[0].Sig[0] ^= 1 }, "signature"},
		{"winner passed over", func(_ *testing.T, r *auction.Record) { r.Failed = []attest.Key{*key(12)} }, "ranks first"},
		{"score changed", func(_ *testing.T, r *auction.Record) { r.Entries[1].Score-- }, "computed"},
		{"mean changed", func(_ *testing.T, r *auction.Record) { r.Entries[1].MeanBP = 9999 }, "computed"},
		{"exclusion added", func(_ *testing.T, r *auction.Record) { r.Entries[0].Excluded = "excluded" }, "computed"},
		{"exclusion taken away", func(_ *testing.T, r *auction.Record) { r.Entries[3].Excluded = "" }, "computed"},
		{"limit changed", func(_ *testing.T, r *auction.Record) { r.MaxPrice = 350_000 }, "computed"},
		{"theta changed", func(_ *testing.T, r *auction.Record) { r.Theta = 4 }, "computed"},
		{"excluded peers changed", func(_ *testing.T, r *auction.Record) { r.Exclude = []attest.Key{*key(11)} }, "computed"},
		{"providers changed", func(_ *testing.T, r *auction.Record) { r.Providers = []attest.Key{*key(12)} }, "computed"},
		{"latest start changed", func(_ *testing.T, r *auction.Record) { r.StartWithin = 1 }, "computed"},
		{"offer's bytes changed", func(_ *testing.T, r *auction.Record) { r.Entries[2].Envelope.Payload[10] ^= 1 }, "signature"},
		{"offer's signature changed", func(_ *testing.T, r *auction.Record) { r.Entries[2].Envelope.Sig[10] ^= 1 }, "signature"},
		{"offer twice", func(_ *testing.T, r *auction.Record) { r.Entries = append(r.Entries, r.Entries[1]) }, "twice"},
		{"offer to another bid", func(t *testing.T, r *auction.Record) {
			s := markettest.Signer(12)
			r.Entries[1].Envelope = markettest.Sign(t, s, market.OfferDomain, markettest.Offer(s.Key(), attest.Sum(nil)))
		}, "another bid"},
		{"offer in another's name", func(t *testing.T, r *auction.Record) {
			o := r.Entries[1].Offer
			r.Entries[1].Envelope = markettest.Sign(t, markettest.Signer(1), market.OfferDomain, o)
		}, "another peer"},
		{"offer signed as a decline", func(t *testing.T, r *auction.Record) { r.Entries[1].Envelope = r.Declines[0] }, "another object"},
		{"bid changed", func(_ *testing.T, r *auction.Record) { r.Bid.Payload[10] ^= 1 }, "signature"},
		{"bid exchanged", func(t *testing.T, r *auction.Record) {
			b := markettest.Bid(markettest.Signer(1).Key())
			b.Seq = 2
			r.Bid = markettest.Sign(t, markettest.Signer(1), market.BidDomain, b)
		}, "another bid"},
		{"bid is none", func(t *testing.T, r *auction.Record) {
			r.Bid = markettest.Signer(1).SignBytes(market.BidDomain, []byte{0xa0})
		}, "not canonical"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := record(t)
			tt.change(t, &r)
			err := r.Recompute(markettest.NetworkID())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Recompute = %v, want %q", err, tt.want)
			}
		})
	}
	r := record(t)
	if err := r.Recompute(attest.NetworkID("other")); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("on another network: %v, want ErrSignature", err)
	}
}

// An offer that does not answer the bid cannot win, and the record says so.
func TestOfferThatDiffersFromTheBid(t *testing.T) {
	r := record(t)
	r.Award, r.Refusals = nil, nil
	bid := markettest.Bid(markettest.Signer(1).Key())
	bid.Count = 2
	r.Bid = markettest.Sign(t, markettest.Signer(1), market.BidDomain, bid)
	b := auction.NewBook(r.Rules())
	offered(t, b, r.Bid.ID(), 12, 1, 10_000, true)
	r.Entries = b.Entries()
	if len(r.Entries) != 1 || r.Entries[0].Excluded != "differs_from_bid" || len(auction.Clear(r.Bid.ID(), r.Entries)) != 0 {
		t.Errorf("entries %+v", r.Entries)
	}
	if err := r.Recompute(markettest.NetworkID()); err != nil {
		t.Errorf("Recompute = %v", err)
	}
}

// Hostile prices do not decode, so the honest offer of 0.25 wins over 0.30 whatever else is sent.
func TestPricesThatAreNoneDoNotEnter(t *testing.T) {
	renter, liar := markettest.Signer(1), markettest.Signer(30)
	r := auction.Record{Bid: markettest.Sign(t, renter, market.BidDomain, markettest.Bid(renter.Key())), Theta: 3,
		MaxPrice: 500_000, StartWithin: 30_000}
	b := auction.NewBook(r.Rules())
	offered(t, b, r.Bid.ID(), 12, 300_000, 8000, false)
	offered(t, b, r.Bid.ID(), 11, 250_000, 8000, false)
	payload, err := attest.Marshal(markettest.Offer(liar.Key(), r.Bid.ID()))
	if err != nil {
		t.Fatal(err)
	}
	price := "\x05\x1a\x00\x05\x7e\x40" // key 5, 360 000
	if strings.Count(string(payload), price) != 1 {
		t.Fatalf("no price in %x", payload)
	}
	for name, hostile := range map[string]string{
		"NaN": "\x05\xf9\x7e\x00", "infinity": "\x05\xf9\x7c\x00", "-0.01": "\x05\xfb\xbf\x84\x7a\xe1\x47\xae\x14\x7b",
		"-0": "\x05\xf9\x80\x00", "-1": "\x05\x20", "0": "\x05\x00", "0 in two bytes": "\x05\x18\x00", "text": "\x05\x640.10",
		"null": "\x05\xf6", "largest": "\x05\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "missing": "", "twice": price + "\x05\x00",
	} {
		e := liar.SignBytes(market.OfferDomain, []byte(strings.Replace(string(payload), price, hostile, 1)))
		o, err := market.OpenOffer(e, markettest.NetworkID(), r.Bid.ID(), markettest.Start())
		if err == nil {
			t.Errorf("%s was taken for a price: %s", name, o.Price)
			b.Add(auction.Entry{Envelope: e, Offer: o, MeanBP: 8000})
		}
	}
	offered(t, b, r.Bid.ID(), 13, 600_000, 10_000, true) // above the limit
	cleared := auction.Clear(r.Bid.ID(), b.Entries())
	if len(cleared) != 2 || cleared[0].Offer.Price != 250_000 || cleared[1].Offer.Price != 300_000 {
		t.Errorf("%d offers can win, first at %s; want 0.25 and 0.30 USD", len(cleared), cleared[0].Offer.Price)
	}
}

func TestOfferFloodIsCheap(t *testing.T) {
	bid := attest.Sum([]byte("bid"))
	o := markettest.Offer(markettest.Signer(2).Key(), bid)
	o.Price = 250_000
	b := auction.NewBook(auction.Rules{Bid: bid, Theta: 3, MaxPrice: market.USD, StartWithin: time.Minute})
	for range 1000 {
		b.Add(auction.Entry{Offer: o, MeanBP: 8000})
	}
	if got := b.Entries(); len(got) != 1 || b.Received != 1 {
		t.Errorf("one offer sent a thousand times: %d kept, %d received", len(got), b.Received)
	}
}

func FuzzRecord(f *testing.F) {
	b, err := attest.Marshal(record(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		var r auction.Record
		if attest.Unmarshal(in, &r) != nil {
			return
		}
		_ = r.Decode()
		_ = r.Recompute(markettest.NetworkID()) // must not panic
		if again, err := attest.Marshal(r); err != nil || string(again) != string(in) {
			t.Errorf("%x was accepted, its encoding is %x, %v", in, again, err)
		}
	})
}
