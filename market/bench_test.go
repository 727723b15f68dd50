package market_test

import (
	"crypto/ed25519"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// BenchmarkVerifyOffer holds the whole way of an offer from the wire (parse, verify, strict decoding, checks) against
// the one signature in it: raw/open is to stay above 0.8.
func BenchmarkVerifyOffer(b *testing.B) {
	bid := attest.Sum([]byte("bid"))
	s := markettest.Signer(2)
	o := markettest.Offer(s.Key(), bid)
	e := markettest.Sign(b, s, market.OfferDomain, o)
	wire, err := attest.MarshalEnvelope(e)
	if err != nil {
		b.Fatal(err)
	}
	network, now := markettest.NetworkID(), markettest.Start()
	b.Run("raw", func(b *testing.B) {
		// What is signed: domain, zero byte, network, payload. Written out here, as the package does not export it.
		signed := append(append([]byte(market.OfferDomain), 0), network[:]...)
		signed = append(signed, e.Payload...)
		for b.Loop() {
			if !ed25519.Verify(e.Signer[:], signed, e.Sig[:]) {
				b.Fatal("the signature does not hold")
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := market.OpenOffer(e, network, bid, now); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) { // the part of open that is not the signature
		for b.Loop() {
			if _, err := attest.Decode[market.Offer](e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("wire", func(b *testing.B) {
		for b.Loop() {
			got, err := attest.ParseEnvelope(wire, market.MaxOfferBytes)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := market.OpenOffer(got, network, bid, now); err != nil {
				b.Fatal(err)
			}
		}
	})
}
