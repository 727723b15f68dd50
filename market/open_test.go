package market_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// errAny stands for an error that no caller tells apart.
var errAny = errors.New("any error")

func holds(err, want error) bool {
	if errors.Is(want, errAny) {
		return err != nil
	}
	return errors.Is(err, want)
}

func TestOpenAsk(t *testing.T) {
	now := markettest.Start()
	for _, tt := range []struct {
		name   string
		change func(*market.Ask)
		now    time.Time
		signer uint64
		want   error
	}{
		{"good", func(*market.Ask) {}, now, 2, nil},
		{"signed by another", func(*market.Ask) {}, now, 3, attest.ErrSignature},
		{"last moment", func(*market.Ask) {}, now.Add(30*time.Minute - time.Millisecond), 2, nil},
		{"expired", func(*market.Ask) {}, now.Add(30 * time.Minute), 2, market.ErrExpired},
		{"clock 120 s ahead", func(*market.Ask) {}, now.Add(-120 * time.Second), 2, nil},
		{"from the future", func(*market.Ask) {}, now.Add(-121 * time.Second), 2, errAny},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := markettest.Ask(markettest.Signer(2).Key())
			tt.change(&a)
			e := markettest.Sign(t, markettest.Signer(tt.signer), market.AskDomain, a)
			if _, err := market.OpenAsk(e, markettest.NetworkID(), tt.now); !holds(err, tt.want) {
				t.Errorf("OpenAsk = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOpenBid(t *testing.T) {
	now := markettest.Start()
	for _, tt := range []struct {
		name   string
		now    time.Time
		signer uint64
		want   error
	}{
		{"good", now, 1, nil},
		{"signed by another", now, 3, attest.ErrSignature},
		{"announced, within the tolerance", now.Add(180 * time.Second), 1, nil},
		{"announced too long ago", now.Add(180*time.Second + time.Millisecond), 1, market.ErrExpired},
		{"from the future", now.Add(-121 * time.Second), 1, errAny},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := markettest.Sign(t, markettest.Signer(tt.signer), market.BidDomain, markettest.Bid(markettest.Signer(1).Key()))
			if _, err := market.OpenBid(e, markettest.NetworkID(), tt.now); !holds(err, tt.want) {
				t.Errorf("OpenBid = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOpenOffer(t *testing.T) {
	now, bid := markettest.Start(), attest.Sum([]byte("bid"))
	for _, tt := range []struct {
		name   string
		bid    attest.Digest
		now    time.Time
		signer uint64
		want   error
	}{
		{"good", bid, now, 2, nil},
		{"signed by another", bid, now, 3, attest.ErrSignature},
		{"to another bid", attest.Sum(nil), now, 2, errAny},
		{"last moment", bid, now.Add(30 * time.Second), 2, nil},
		{"firm by its provider's clock, which lags", bid, now.Add(30*time.Second + market.ClockTolerance), 2, nil},
		{"no longer firm", bid, now.Add(30*time.Second + market.ClockTolerance + time.Millisecond), 2, market.ErrExpired},
		{"binds for ever", bid, now.Add(-12 * time.Minute), 2, errAny},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := markettest.Sign(t, markettest.Signer(tt.signer), market.OfferDomain, markettest.Offer(markettest.Signer(2).Key(), bid))
			if _, err := market.OpenOffer(e, markettest.NetworkID(), tt.bid, tt.now); !holds(err, tt.want) {
				t.Errorf("OpenOffer = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOpenDecline(t *testing.T) {
	bid := attest.Sum([]byte("bid"))
	d := markettest.Decline(markettest.Signer(2).Key(), bid)
	good := markettest.Sign(t, markettest.Signer(2), market.DeclineDomain, d)
	if _, err := market.OpenDecline(good, markettest.NetworkID(), bid); err != nil {
		t.Error(err)
	}
	if _, err := market.OpenDecline(good, markettest.NetworkID(), attest.Sum(nil)); err == nil {
		t.Error("a decline of something else was accepted")
	}
	forged := markettest.Sign(t, markettest.Signer(3), market.DeclineDomain, d)
	if _, err := market.OpenDecline(forged, markettest.NetworkID(), bid); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("a decline in another's name: %v", err)
	}
}

func TestOpenLease(t *testing.T) {
	d := markettest.NewDeal(t, 1, 2, nil)
	network := markettest.NetworkID()
	wrongNetwork := d.Lease
	wrongNetwork.Network = attest.NetworkID("other")
	for _, tt := range []struct {
		name   string
		e      attest.Envelope
		domain attest.Domain
		want   error
	}{
		{"award", d.Award, market.AwardDomain, nil},
		{"accept", d.Accept, market.AcceptDomain, nil},
		{"award as accept", d.Award, market.AcceptDomain, attest.ErrDomain},
		{"accept as award", d.Accept, market.AwardDomain, attest.ErrDomain},
		{"provider signs the award", d.Provider.SignBytes(market.AwardDomain, d.Award.Payload), market.AwardDomain, attest.ErrSignature},
		{"renter signs the accept", d.Renter.SignBytes(market.AcceptDomain, d.Award.Payload), market.AcceptDomain, attest.ErrSignature},
		{"names another network", markettest.Sign(t, d.Renter, market.AwardDomain, wrongNetwork), market.AwardDomain, attest.ErrSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := market.OpenLease(tt.e, network, tt.domain); !holds(err, tt.want) {
				t.Errorf("OpenLease = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestLeaseAnswersItsOffer(t *testing.T) {
	d := markettest.NewDeal(t, 1, 2, nil)
	o, err := attest.Decode[market.Offer](d.Offer)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*market.Lease)
		ok     bool
	}{
		{"same", func(*market.Lease) {}, true},
		{"renter's own terms", func(l *market.Lease) { l.Budget, l.SurviveMS, l.DurationMS = 5, 1, 1 }, true},
		{"other offer", func(l *market.Lease) { l.Offer[0]++ }, false},
		{"other bid", func(l *market.Lease) { l.Bid[0]++ }, false},
		{"other provider", func(l *market.Lease) { l.Provider[0]++ }, false},
		{"lower price", func(l *market.Lease) { l.Price-- }, false},
		{"other interval", func(l *market.Lease) { l.IntervalMS++ }, false},
		{"other mark", func(l *market.Lease) { l.OfferMark[0]++ }, false},
		{"other tier", func(l *market.Lease) { l.Tier = market.Gold }, false},
		{"real devices", func(l *market.Lease) { l.Simulated = false }, false},
		{"other device", func(l *market.Lease) { l.Devices = []market.DeviceID{{1}} }, false},
		{"one device more", func(l *market.Lease) { l.Devices = append(l.Devices[:1:1], market.DeviceID{1}) }, false},
		{"no device", func(l *market.Lease) { l.Devices = nil }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := d.Lease
			tt.change(&l)
			if err := l.CheckOffer(o, d.Offer.ID()); (err == nil) != tt.ok {
				t.Errorf("CheckOffer = %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func TestOfferAnswersItsBid(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bid   func(*market.Bid)
		offer func(*market.Offer)
		want  string
	}{
		{"same", func(*market.Bid) {}, func(*market.Offer) {}, ""},
		{"all that it asks", func(b *market.Bid) {
			b.Models, b.MemBytes, b.Require = []string{"A100", "rtx4090"}, 24*gpu.GiB, []market.Place{{Continent: "na"}, {Continent: "eu"}}
		}, func(*market.Offer) {}, ""},
		{"fewer devices", func(b *market.Bid) { b.Count = 2 }, func(*market.Offer) {}, "1 devices"},
		{"other tier", func(*market.Bid) {}, func(o *market.Offer) { o.Tier = market.Bronze }, "tier bronze"},
		{"simulated", func(b *market.Bid) { b.Simulated = false }, func(*market.Offer) {}, "simulated"},
		{"real ones are as good", func(*market.Bid) {}, func(o *market.Offer) { o.Simulated = false }, ""},
		{"elsewhere", func(b *market.Bid) { b.Require = []market.Place{{Continent: "na"}} }, func(*market.Offer) {}, "place"},
		{"nowhere", func(b *market.Bid) { b.Require = []market.Place{{Continent: "eu"}} }, func(o *market.Offer) { o.Place = market.Place{} }, "place"},
		{"other model", func(b *market.Bid) { b.Models = []string{"RTX 4090 Laptop"} }, func(*market.Offer) {}, "model"},
		{"label against product", func(b *market.Bid) { b.Models = []string{"H100"} }, func(o *market.Offer) { o.Devices[0].Model = "H100 SXM5 80GB" }, "model"},
		{"less memory", func(b *market.Bid) { b.MemBytes = 25 * gpu.GiB }, func(*market.Offer) {}, "memory"},
		{"unknown memory", func(b *market.Bid) { b.MemBytes = 1 }, func(o *market.Offer) { o.Devices[0].MemBytes = 0 }, "memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := markettest.Bid(markettest.Signer(1).Key())
			tt.bid(&b)
			o := markettest.Offer(markettest.Signer(2).Key(), attest.Sum([]byte("bid")))
			tt.offer(&o)
			err := o.Answers(b)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Answers = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOpenOutcome(t *testing.T) {
	d := paid(t)
	network := markettest.NetworkID()
	for _, e := range d.Outcomes {
		if _, err := market.OpenOutcome(e, network, d.ID, d.Lease); err != nil {
			t.Error(err)
		}
	}
	stranger := markettest.Signer(3).SignBytes(market.OutcomeRenterDomain, d.Outcomes[0].Payload)
	if _, err := market.OpenOutcome(stranger, network, d.ID, d.Lease); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("a stranger's outcome: %v", err)
	}
	role := d.Renter.SignBytes(market.OutcomeProviderDomain, d.Outcomes[0].Payload)
	if _, err := market.OpenOutcome(role, network, d.ID, d.Lease); !errors.Is(err, attest.ErrDomain) {
		t.Errorf("the renter in the provider's role: %v", err)
	}
	if _, err := market.OpenOutcome(d.Outcomes[0], network, attest.Sum(nil), d.Lease); err == nil {
		t.Error("the outcome of another lease was accepted")
	}
}
