package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/blob"
)

const (
	bulkBytes  = 64 << 20
	bulkRounds = 7
	bulkWait   = time.Minute
)

// sinkProtocol takes what it gets and answers with one byte at its end.
var sinkProtocol = p2p.Protocol{Name: "bench-sink", Major: 1, Timeout: bulkWait, MaxIn: 8, MaxPerPeer: 8, PerMinute: 600, Bulk: true}

const rawProtocol protocol.ID = "/bench/raw/1"

// measureBulk sends the same bytes over a stream of p2p, as a blob, and over a bare stream of the library, in turns.
func (b *bench) measureBulk(ctx context.Context) error {
	for _, over := range []struct{ name, listen string }{{"TCP", "/ip4/127.0.0.1/tcp/0"}, {"QUIC", "/ip4/127.0.0.1/udp/0/quic-v1"}} {
		b.say("%d MB from peer to peer over %s", bulkBytes>>20, over.name)
		if err := b.measureBulkOver(ctx, over.name, over.listen); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureBulkOver(ctx context.Context, name, listen string) (err error) {
	var hosts []*p2p.Host
	defer func() {
		for _, h := range hosts {
			err = errors.Join(err, h.Close())
		}
	}()
	for i := range 2 {
		h, err := p2p.New(p2p.Options{Key: benchKey(i), Network: "test-bench", Listen: []string{listen}})
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
	}
	to, from := hosts[0], hosts[1]
	to.Handle(sinkProtocol, func(_ context.Context, s *p2p.Stream) { _ = drain(s) })
	to.Libp2p().SetStreamHandler(rawProtocol, func(s network.Stream) { _ = drain(s) })
	if err := from.Connect(ctx, to.Key(), to.Addrs()); err != nil {
		return err
	}
	data := make([]byte, bulkBytes)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	files, err := newBlobPair(filepath.Join(b.dir, "blobs-"+name), to, from)
	if err != nil {
		return err
	}
	defer files.close()
	var ratios, rates, blobs []float64
	for round := range bulkRounds {
		raw, err := timed(func() error {
			s, err := from.Libp2p().NewStream(ctx, p2p.PeerID(to.Key()), rawProtocol)
			if err != nil {
				return err
			}
			return fill(s, data)
		})
		if err != nil {
			return fmt.Errorf("raw stream: %w", err)
		}
		ours, err := timed(func() error {
			s, err := from.Open(ctx, to.Key(), nil, sinkProtocol)
			if err != nil {
				return err
			}
			return fill(s, data)
		})
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		data[0] = byte(round) // another file
		asBlob, err := files.send(ctx, from, data)
		if err != nil {
			return fmt.Errorf("blob: %w", err)
		}
		ratios, rates = append(ratios, raw.Seconds()/ours.Seconds()), append(rates, bulkBytes/1e6/ours.Seconds())
		blobs = append(blobs, raw.Seconds()/asBlob.Seconds())
	}
	def := fmt.Sprintf("%d MiB between two hosts of one process over loopback: a stream of p2p, or a blob (which is also hashed and written to a file), over a bare "+
		"libp2p stream on the same connection; median of %d turns.", bulkBytes>>20, bulkRounds)
	b.report.add("stream / bare libp2p stream, "+name, "", ratios, &aim{AtLeast: 0.9}, def)
	b.report.add("stream, "+name, "MB/s", rates, nil, def)
	b.report.add("blob / bare libp2p stream, "+name, "", blobs, nil, def)
	return nil
}

type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// fill sends data and waits until the other side has all of it.
func fill(s halfCloser, data []byte) error {
	if _, err := io.Copy(struct{ io.Writer }{s}, bytes.NewReader(data)); err != nil {
		return err
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	var done [1]byte
	if _, err := io.ReadFull(s, done[:]); err != nil {
		return err
	}
	return s.Close()
}

// drain is the other side of fill.
func drain(s halfCloser) error {
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{s}); err != nil {
		return err
	}
	if _, err := s.Write([]byte{1}); err != nil {
		return err
	}
	return s.Close()
}

// blobPair is a blob service on both sides.
type blobPair struct {
	stores   [2]*blob.Store
	services [2]*blob.Service
}

func newBlobPair(dir string, to, from *p2p.Host) (*blobPair, error) {
	p := &blobPair{}
	for i, h := range []*p2p.Host{to, from} {
		var err error
		if p.stores[i], err = blob.OpenStore(filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return nil, err
		}
		if p.services[i], err = blob.New(blob.Options{Host: h, Store: p.stores[i], Allow: func(attest.Key, attest.Digest) bool { return true }}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *blobPair) close() {
	for _, s := range p.services {
		s.Close()
	}
}

// send puts data into the second store, and times how long the first takes to fetch it.
func (p *blobPair) send(ctx context.Context, from *p2p.Host, data []byte) (time.Duration, error) {
	d, _, err := p.stores[1].Put(ctx, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	took, err := timed(func() error { return p.services[0].Fetch(ctx, from.Key(), nil, d, 2*bulkBytes, nil) })
	return took, errors.Join(err, p.stores[0].Remove(d), p.stores[1].Remove(d))
}
