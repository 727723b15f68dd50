package blob_test

import (
	"bytes"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/blob"
	"github.com/lacuna-network/lacuna/p2p/p2ptest"
)

// BenchmarkFetch moves files of 64 MiB over TCP on the loopback interface, from disk to disk.
func BenchmarkFetch(b *testing.B) {
	var hosts [2]*p2p.Host
	var stores [2]*blob.Store
	var services [2]*blob.Service
	for i := range hosts {
		h, err := p2p.New(p2p.Options{Key: p2ptest.Key(i), Network: "test-blob", Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := h.Close(); err != nil {
				b.Error(err)
			}
		})
		hosts[i] = h
		stores[i], _ = openStore(b)
		services[i], err = blob.New(blob.Options{Host: h, Store: stores[i], Allow: func(attest.Key, attest.Digest) bool { return true }})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(services[i].Close)
	}
	d, size, err := stores[0].Put(b.Context(), bytes.NewReader(content(64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		if err := services[1].Fetch(b.Context(), hosts[0].Key(), hosts[0].Addrs(), d, size, nil); err != nil {
			b.Fatal(err)
		}
		if err := stores[1].Remove(d); err != nil {
			b.Fatal(err)
		}
	}
}
