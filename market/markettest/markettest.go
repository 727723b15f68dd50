// Package markettest builds signed objects of the market for tests: keys from a seed, asks, bids, offers and declines,
// and a whole [Deal] with its chain of receipts and vouchers.
//
// Everything is a function of its arguments: the same calls give the same bytes on any machine. Values that a builder
// fills in are valid, and the caller changes what its test is about before it signs. It reads no clock, [Start] is the
// instant at which all of it happens. Tests of every package to the left of attest may call it; a [Deal] belongs to one
// test and is not safe for concurrent use.
package markettest

import (
	"crypto/ed25519"
	"encoding/binary"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// Network is the name of the network that everything is signed for. It is a test network.
const Network = "test-market"

// NetworkID returns the id of [Network].
func NetworkID() attest.Digest { return attest.NetworkID(Network) }

// Start returns the instant at which bids are made: 2026-11-30 12:00 UTC.
func Start() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// Signer returns the signer on [Network] whose private key is made from the seed.
func Signer(seed uint64) attest.Signer { return SignerOn(seed, NetworkID()) }

// SignerOn returns the signer of the same key on another network.
func SignerOn(seed uint64, network attest.Digest) attest.Signer {
	var b [ed25519.SeedSize]byte
	copy(b[:], "markettest")
	binary.BigEndian.PutUint64(b[24:], seed)
	return attest.NewSigner(ed25519.NewKeyFromSeed(b[:]), network)
}

// FakeKey returns bytes in the place of a public key whose private key nobody has. It costs nothing.
func FakeKey(seed uint64) attest.Key {
	return attest.Key(attest.Sum(binary.BigEndian.AppendUint64([]byte("fake key"), seed)))
}

// Nonce returns a nonce made from the seed; it is never zero.
func Nonce(seed uint64) market.Nonce {
	n := market.Nonce{0: 'n'}
	binary.BigEndian.PutUint64(n[8:], seed)
	return n
}

// Sign signs v and ends the test if v is not valid.
func Sign(tb testing.TB, s attest.Signer, d attest.Domain, v any) attest.Envelope {
	tb.Helper()
	e, err := s.Sign(d, v)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// Ask returns a valid ask with one lot of four cards, good for half an hour.
func Ask(provider attest.Key) market.Ask {
	return market.Ask{Version: 1, Provider: provider, Seq: 7, IssuedAt: Start().UnixMilli(),
		ExpiresAt: Start().Add(30 * time.Minute).UnixMilli(),
		Lots: []market.Lot{{Model: "RTX 4090", Class: "nv-24g", MemBytes: 24564 << 20, Count: 4, Free: 3,
			Price: 360_000, Simulated: true}},
		Place: market.Place{Continent: "eu", Country: "de", City: "berlin"}, Workloads: []market.Workload{market.WASM},
		Tiers: []market.Tier{market.Silver, market.Bronze}, Addrs: []string{"/ip4/192.0.2.7/udp/4001/quic-v1"},
		Agent: "lacuna/1"}
}

// Bid returns a valid bid for one simulated GPU of any kind for an hour.
func Bid(renter attest.Key) market.Bid {
	return market.Bid{Version: 1, Renter: renter, Request: Nonce(1), Seq: 1, IssuedAt: Start().UnixMilli(),
		AnnounceUntil: Start().Add(60 * time.Second).UnixMilli(), ValidUntil: Start().Add(10 * time.Minute).UnixMilli(),
		Workload: market.WASM, Count: 1, Class: "any", HostMemBytes: 512 << 20, DurationMS: 3_600_000, StartWithinMS: 30_000,
		Tier: market.Silver, DeclineBP: 10_000, IntervalMS: 10_000, Simulated: true}
}

// Offer returns a valid offer of one simulated RTX 4090 to the bid with that id, at 100 micro-USD a second.
func Offer(provider attest.Key, bid attest.Digest) market.Offer {
	return market.Offer{Version: 1, Bid: bid, Provider: provider,
		Devices: []market.OfferedDevice{{ID: market.NewDeviceID(provider, "SIM-0"), Name: "NVIDIA GeForce RTX 4090",
			Model: "RTX 4090", MemBytes: 24564 << 20}},
		Price: 360_000, IntervalMS: 10_000, StartInMS: 500, FirmUntil: Start().Add(30 * time.Second).UnixMilli(),
		Nonce: Nonce(2), Place: market.Place{Continent: "eu", Country: "de", City: "berlin"}, Tier: market.Silver,
		Simulated: true}
}

// Decline returns a valid decline of the bid or award with that id.
func Decline(provider attest.Key, about attest.Digest) market.Decline {
	return market.Decline{Version: 1, About: about, Provider: provider, At: Start().UnixMilli(),
		Failures: []market.Failure{{Reason: market.VRAMTooSmall, Wanted: "24GiB", Available: "12GiB", Distance: 12 << 30}}}
}

// Terms returns valid terms of a job with one input, one output folder and checkpoints.
func Terms() market.Terms {
	return market.Terms{Version: 1, Salt: Nonce(3), Module: attest.Sum([]byte("module")), ModuleBytes: 6,
		Args: []string{"train", "--epochs=3"}, Env: []market.EnvVar{{Name: "LANG", Value: "C"}, {Name: "SEED", Value: "1"}},
		Inputs:  []market.File{{Path: "/data/in.csv", Digest: attest.Sum([]byte("input")), Bytes: 5}},
		Outputs: []string{"/out"}, Checkpoint: "/ckpt", CheckpointEveryMS: 1000,
		MemBytes: 512 << 20, LogBytes: 16 << 20, DiskBytes: 1 << 30, Engine: "wazero/1.12"}
}
