package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
)

func (b *bench) measureRates(ctx context.Context) error {
	b.say("receipts made durable, in turns with bare Badger")
	if err := b.measureReceipts(ctx); err != nil {
		return err
	}
	b.say("offers checked, in turns with bare Ed25519")
	return b.measureOffers()
}

// storeRounds is how often the store and its bound take turns.
const storeRounds = 15

// measureReceipts runs the benchmark of the store, which alone may open Badger.
func (b *bench) measureReceipts(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkRatio$", "-benchtime", fmt.Sprint(storeRounds, "x"), "./node/store")
	cmd.Dir = b.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run the store's benchmark: %w\n%s", err, out)
	}
	v, err := parseBenchmark(out, "BenchmarkRatio")
	if err != nil {
		return err
	}
	def := fmt.Sprintf("Receipts of 64 leases at once, each durable when the call returns, over bare Badger in synced batches of the same bytes from the "+
		"same 64 writers; median of %d turns. It is node/store's BenchmarkRatio.", storeRounds)
	b.report.add("durable receipts / bare Badger", "", []float64{v["durable/raw"]}, &aim{AtLeast: 0.8}, def)
	b.report.add("durable receipts", "1/s", []float64{v["receipts/s"]}, nil, def)
	return nil
}

// parseBenchmark returns the values of one benchmark by their unit, from what go test prints.
func parseBenchmark(out []byte, name string) (map[string]float64, error) {
	for line := range bytes.Lines(out) {
		f := strings.Fields(string(line))
		if len(f) < 2 || strings.SplitN(f[0], "-", 2)[0] != name {
			continue
		}
		values := map[string]float64{}
		for i := 2; i+1 < len(f); i += 2 { // name, count, then pairs
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("read benchmark: %w", err)
			}
			values[f[i+1]] = v
		}
		return values, nil
	}
	return nil, fmt.Errorf("read benchmark: no line of %s in:\n%s", name, out)
}

const (
	offerCount  = 256
	offerRounds = 15
)

// measureOffers times the way of an offer from the wire to the auction against the one signature check in it.
func (b *bench) measureOffers() error {
	bid, network, now := attest.Sum([]byte("bid")), markettest.NetworkID(), markettest.Start()
	type sample struct {
		env          attest.Envelope
		wire, signed []byte
	}
	samples := make([]sample, offerCount)
	for i := range samples {
		s := markettest.Signer(uint64(i) + 2)
		o := markettest.Offer(s.Key(), bid)
		e, err := s.Sign(market.OfferDomain, o)
		if err != nil {
			return err
		}
		wire, err := attest.MarshalEnvelope(e)
		if err != nil {
			return err
		}
		// What is signed: domain, zero byte, network, payload.
		signed := append(append(append([]byte(market.OfferDomain), 0), network[:]...), e.Payload...)
		samples[i] = sample{e, wire, signed}
	}
	open := func() error {
		for _, s := range samples {
			e, err := attest.ParseEnvelope(s.wire, market.MaxOfferBytes)
			if err != nil {
				return err
			}
			if _, err := market.OpenOffer(e, network, bid, now); err != nil {
				return err
			}
		}
		return nil
	}
	verify := func() error {
		for _, s := range samples {
			if !ed25519.Verify(s.env.Signer[:], s.signed, s.env.Sig[:]) {
				return errors.New("a signature does not hold")
			}
		}
		return nil
	}
	var ratios, rates []float64
	for range offerRounds {
		raw, err := timed(verify)
		if err != nil {
			return err
		}
		ours, err := timed(open)
		if err != nil {
			return err
		}
		ratios, rates = append(ratios, raw.Seconds()/ours.Seconds()), append(rates, offerCount/ours.Seconds())
	}
	def := fmt.Sprintf("Offers from the wire to the auction (parse, verify, strict decoding, checks) on one core, over ed25519.Verify of the same signed "+
		"bytes; %d offers of as many providers a turn, in turns.", offerCount)
	b.report.add("offers checked / bare Ed25519", "", ratios, &aim{AtLeast: 0.8}, def)
	b.report.add("offers checked", "1/s", rates, nil, def)
	return nil
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
