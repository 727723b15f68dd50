package market_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden holds b against testdata/<name>.hex: signed bytes outlive the version that wrote them.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(file, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != strings.TrimSpace(string(text)) {
		t.Errorf("%s is encoded as\n%s\nand was before as\n%s", name, got, text)
	}
}

// paid is a lease of one device with three receipts, two of which a voucher accepts, and an outcome.
func paid(tb testing.TB) *markettest.Deal {
	tb.Helper()
	d := markettest.NewDeal(tb, 1, 2, nil)
	d.Run(10 * time.Second)
	d.Run(10 * time.Second)
	d.Pay()
	d.Run(7 * time.Second)
	d.End(market.CodeDone)
	return d
}

// roundTrip decodes b as a T and compares it with v and its encoding with b.
func roundTrip[T any](t *testing.T, b []byte, v T) {
	t.Helper()
	var got T
	if err := attest.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, got); diff != "" {
		t.Errorf("read back (-encoded +read):\n%s", diff)
	}
}

func TestGolden(t *testing.T) {
	renter, provider := markettest.Signer(1), markettest.Signer(2)
	d := paid(t)
	check := func(name string, max int, e attest.Envelope, domain attest.Domain) {
		t.Helper()
		golden(t, name, e.Payload)
		if err := e.Verify(markettest.NetworkID(), domain); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := attest.MarshalEnvelope(e); err != nil || len(b) > max {
			t.Errorf("%s: envelope of %d bytes, %v, at most %d", name, len(b), err, max)
		}
	}
	ask := markettest.Ask(provider.Key())
	e := markettest.Sign(t, provider, market.AskDomain, ask)
	check("ask", market.MaxAskBytes, e, "lacuna/ask/provider/1")
	roundTrip(t, e.Payload, ask)
	check("bid", market.MaxBidBytes, d.Bid, "lacuna/bid/renter/1")
	roundTrip(t, d.Bid.Payload, markettest.Bid(renter.Key()))
	check("offer", market.MaxOfferBytes, d.Offer, "lacuna/offer/provider/1")
	roundTrip(t, d.Offer.Payload, markettest.Offer(provider.Key(), d.Bid.ID()))
	decline := markettest.Decline(provider.Key(), d.Bid.ID())
	e = markettest.Sign(t, provider, market.DeclineDomain, decline)
	check("decline", market.MaxDeclineBytes, e, "lacuna/decline/provider/1")
	roundTrip(t, e.Payload, decline)
	check("lease", market.MaxLeaseBytes, d.Award, "lacuna/lease/renter/1")
	check("lease", market.MaxLeaseBytes, d.Accept, "lacuna/lease/provider/1")
	roundTrip(t, d.Award.Payload, d.Lease)
	check("voucher", market.MaxVoucherBytes, d.Vouchers[0], "lacuna/voucher/renter/1")
	roundTrip(t, d.Vouchers[0].Payload, *d.Last)
	check("outcome", market.MaxOutcomeBytes, d.Outcomes[0], "lacuna/outcome/renter/1")
	check("outcome", market.MaxOutcomeBytes, d.Outcomes[1], "lacuna/outcome/provider/1")
	roundTrip(t, d.Outcomes[0].Payload, d.Outcome(market.CodeDone))

	terms, err := attest.Marshal(d.Terms)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "terms", terms)
	roundTrip(t, terms, d.Terms)
	if attest.Sum(terms) != d.Lease.Work {
		t.Error("the lease does not bind its terms")
	}
}

func TestLargestOfferFits(t *testing.T) {
	d := markettest.NewDeal(t, 1, 2, func(o *market.Offer) {
		one := o.Devices[0]
		o.Devices = nil
		for i := range market.MaxDevices {
			one.ID = market.NewDeviceID(o.Provider, string(rune('A'+i)))
			o.Devices = append(o.Devices, one)
		}
	})
	for name, e := range map[string]attest.Envelope{"offer": d.Offer, "lease": d.Award} {
		limit := map[string]int{"offer": market.MaxOfferBytes, "lease": market.MaxLeaseBytes}[name]
		b, err := attest.MarshalEnvelope(e)
		if err != nil || len(b) > limit {
			t.Errorf("%s of %d devices: %d bytes, %v, at most %d", name, market.MaxDevices, len(b), err, limit)
		}
		if _, err := attest.ParseEnvelope(b, limit); err != nil {
			t.Error(err)
		}
	}
}

// fuzzObject decodes b as a T: what is accepted has one encoding and is valid, and nothing makes Validate panic.
func fuzzObject[T attest.Validator](t *testing.T, b []byte) {
	t.Helper()
	var v T
	if attest.Unmarshal(b, &v) != nil {
		_ = v.Validate() // half decoded or invalid; it must not panic
		return
	}
	again, err := attest.Marshal(v)
	if err != nil || !bytes.Equal(b, again) {
		t.Errorf("%x was accepted as a %T, its encoding is %x, %v", b, v, again, err)
	}
	if err := v.Validate(); err != nil {
		t.Errorf("%x was accepted as a %T: %v", b, v, err)
	}
}

// seeds adds the golden bytes of every object, since one object read as another is the commonest mistake.
func seeds(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.hex")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

func FuzzObjects(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzObject[market.Ask](t, b)
		fuzzObject[market.Bid](t, b)
		fuzzObject[market.Offer](t, b)
		fuzzObject[market.Decline](t, b)
		fuzzObject[market.Lease](t, b)
		fuzzObject[market.Terms](t, b)
		fuzzObject[market.Voucher](t, b)
		fuzzObject[market.Outcome](t, b)
	})
}

// Every golden object decodes as itself and as nothing else.
func TestObjectsAreTold(t *testing.T) {
	accepts := map[string]func([]byte) error{
		"ask": decodes[market.Ask], "bid": decodes[market.Bid], "offer": decodes[market.Offer],
		"decline": decodes[market.Decline], "lease": decodes[market.Lease], "terms": decodes[market.Terms],
		"voucher": decodes[market.Voucher], "outcome": decodes[market.Outcome],
	}
	for file := range accepts {
		text, err := os.ReadFile(filepath.Join("testdata", file+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		for name, decode := range accepts {
			if err := decode(b); (err == nil) != (name == file) {
				t.Errorf("%s read as %s: %v", file, name, err)
			}
		}
	}
}

func decodes[T any](b []byte) error {
	var v T
	return attest.Unmarshal(b, &v)
}

// wire is an offer whose price is whatever a hostile peer writes there.
type wire struct {
	Version    any                    `cbor:"1,keyasint"`
	Bid        attest.Digest          `cbor:"2,keyasint"`
	Provider   attest.Key             `cbor:"3,keyasint"`
	Devices    []market.OfferedDevice `cbor:"4,keyasint"`
	Price      any                    `cbor:"5,keyasint,omitempty"`
	IntervalMS uint64                 `cbor:"6,keyasint"`
	StartInMS  uint64                 `cbor:"7,keyasint"`
	FirmUntil  int64                  `cbor:"8,keyasint"`
	Nonce      market.Nonce           `cbor:"11,keyasint"`
	Place      market.Place           `cbor:"12,keyasint"`
	Tier       market.Tier            `cbor:"13,keyasint"`
	Simulated  bool                   `cbor:"14,keyasint,omitempty"`
}

func TestOfferPricesThatAreNone(t *testing.T) {
	provider := markettest.Signer(2)
	bid := attest.Sum([]byte("bid"))
	o := markettest.Offer(provider.Key(), bid)
	for _, tt := range []struct {
		name  string
		price any
		ok    bool
	}{
		{"0.25 USD", uint64(250_000), true},
		{"smallest", uint64(1), true},
		{"largest", uint64(market.MaxAmount), true},
		{"NaN", math.NaN(), false},
		{"infinity", math.Inf(1), false},
		{"negative", -10_000, false},
		{"negative zero", math.Copysign(0, -1), false},
		{"tiny float", 1e-30, false},
		{"a float that is whole", 250_000.0, false},
		{"largest int64", int64(1<<63 - 1), false},
		{"largest uint64", uint64(1<<64 - 1), false},
		{"above the largest", uint64(market.MaxAmount + 1), false},
		{"zero", uint64(0), false},
		{"missing", nil, false},
		{"text", "0.10", false},
		{"bytes", []byte{1}, false},
		{"list", []uint64{1}, false},
		{"true", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			payload, err := attest.Marshal(wire{o.Version, o.Bid, o.Provider, o.Devices, tt.price, o.IntervalMS, o.StartInMS,
				o.FirmUntil, o.Nonce, o.Place, o.Tier, o.Simulated})
			if err != nil {
				t.Fatal(err)
			}
			e := provider.SignBytes(market.OfferDomain, payload)
			got, err := market.OpenOffer(e, markettest.NetworkID(), bid, markettest.Start())
			if (err == nil) != tt.ok {
				t.Errorf("OpenOffer = price %s, %v, want ok %v", got.Price, err, tt.ok)
			}
		})
	}
	t.Run("price twice", func(t *testing.T) {
		payload, _ := attest.Marshal(o)
		at := bytes.Index(payload, []byte{0x05, 0x1a}) // key 5, 32-bit integer
		twice := append(bytes.Clone(payload[:at+6]), payload[at:]...)
		twice[0]++
		e := provider.SignBytes(market.OfferDomain, twice)
		if _, err := market.OpenOffer(e, markettest.NetworkID(), bid, markettest.Start()); !errors.Is(err, attest.ErrEncoding) {
			t.Errorf("OpenOffer = %v, want ErrEncoding", err)
		}
	})
}
