package main

import (
	"crypto/ed25519"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// t0 is when the lease of the fixtures began, Unix ms.
const t0 = int64(1_790_000_000_000)

func privateKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append(make([]byte, 31), seed))
}

func signer(seed byte) attest.Signer {
	return attest.NewSigner(privateKey(seed), attest.NetworkID("testnet"))
}

// receiptFiles returns a good receipt file, and files that each break one promise.
func receiptFiles(t *testing.T) map[string][]byte {
	good := encode(t, leaseFile(t, nil))
	changed := append([]byte(nil), good...)
	changed[len(changed)/2] ^= 1
	return map[string][]byte{
		"good.receipts":    good,
		"changed.receipts": changed,
		"cheat.receipts": encode(t, leaseFile(t, func(l *ledger.LeaseFile) {
			l.Receipts = append(l.Receipts[:1:1], l.Receipts[2]) // one is missing
		})),
		"open.receipts": encode(t, leaseFile(t, func(l *ledger.LeaseFile) {
			l.Vouchers, l.Outcomes = l.Vouchers[:1], nil // the last interval is not paid yet
		})),
	}
}

func encode(t *testing.T, l ledger.LeaseFile) []byte {
	t.Helper()
	b, err := ledger.File{Network: "testnet", Leases: []ledger.LeaseFile{l}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// leaseFile returns a lease of three intervals of 10 s on two devices at 0.36 USD/h: 2,000 micro-USD an interval.
func leaseFile(t *testing.T, change func(*ledger.LeaseFile)) ledger.LeaseFile {
	t.Helper()
	renter, provider := signer(1), signer(2)
	sign := func(s attest.Signer, d attest.Domain, v any) attest.Envelope {
		e, err := s.Sign(d, v)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	devices := []market.OfferedDevice{
		{ID: market.NewDeviceID(provider.Key(), "SIM-a"), Name: "NVIDIA GeForce RTX 4090", Model: "RTX 4090", MemBytes: 24 << 30},
		{ID: market.NewDeviceID(provider.Key(), "SIM-b"), Name: "NVIDIA GeForce RTX 4090", Model: "RTX 4090", MemBytes: 24 << 30},
	}
	offer := market.Offer{Version: 1, Bid: attest.Sum([]byte("bid")), Provider: provider.Key(), Devices: devices, Price: 360_000,
		IntervalMS: 10_000, FirmUntil: t0 + 60_000, Nonce: market.Nonce{1}, Tier: market.Silver, Simulated: true}
	var file ledger.LeaseFile
	file.Offer = sign(provider, market.OfferDomain, offer)
	lease := market.Lease{Version: 1, Network: renter.Network(), Renter: renter.Key(), Provider: provider.Key(), Bid: offer.Bid,
		Offer: file.Offer.ID(), Work: attest.Sum([]byte("work")), Devices: []market.DeviceID{devices[0].ID, devices[1].ID},
		Class: market.Deterministic, Price: offer.Price, IntervalMS: offer.IntervalMS, SurviveMS: 60_000, Budget: market.USD,
		IssuedAt: t0, RenterMark: market.Nonce{2}, OfferMark: offer.Nonce, Tier: market.Silver, DurationMS: 3_600_000, Simulated: true}
	file.Award = sign(renter, market.AwardDomain, lease)
	file.Accept = provider.SignBytes(market.AcceptDomain, file.Award.Payload)
	tail := receipt.Tail{Lease: file.Award.ID()}
	var last *market.Voucher
	for i := range int64(3) {
		r := receipt.Receipt{Version: 1, Lease: tail.Lease, Seq: tail.Seq + 1, Prev: tail.ID, T0: t0 + i*10_000, T1: t0 + (i+1)*10_000,
			MonoMS: uint64(i+1) * 10_000, State: receipt.Running, Units: gpu.Usage{gpu.BillableDeviceMS: 20_000},
			Cum: tail.Last.Cum.Add(gpu.Usage{gpu.BillableDeviceMS: 20_000}), Tel: gpu.Telemetry{gpu.UtilAvgBP: 9_500}, Simulated: true}
		if i == 2 {
			r.State = receipt.Final
		}
		e := sign(provider, receipt.Domain, r)
		var err error
		if tail, err = tail.Accept(r, e.ID()); err != nil {
			t.Fatal(err)
		}
		v, err := market.NewVoucher(lease, tail, last, r.T1+100, receipt.Challenge{})
		if err != nil {
			t.Fatal(err)
		}
		last = &v
		file.Receipts = append(file.Receipts, e)
		file.Vouchers = append(file.Vouchers, sign(renter, market.VoucherDomain, v))
	}
	zero := uint64(0)
	o := market.Outcome{Version: 1, Lease: tail.Lease, LastSeq: tail.Seq, Head: tail.ID, Due: last.Total, Vouched: last.Total, Cum: tail.Last.Cum,
		EndedAt: t0 + 30_200, Code: market.CodeDone, LastVoucher: file.Vouchers[2].ID(), ExitCode: &zero}
	first := sign(renter, market.OutcomeRenterDomain, o)
	file.Outcomes = []attest.Envelope{first, provider.SignBytes(market.OutcomeProviderDomain, first.Payload)}
	if change != nil {
		change(&file)
	}
	return file
}
