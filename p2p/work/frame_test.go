package work_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p/work"
)

func envelope() *attest.Envelope {
	return &attest.Envelope{Domain: "lacuna/x/y/1", Payload: []byte{1}, Signer: attest.Key{2}}
}

// goodFrames returns one frame of each kind by its name.
func goodFrames() map[string]work.Frame {
	return map[string]work.Frame{
		"start": {Start: &work.Start{Lease: attest.Digest{1}, Challenge: receipt.Challenge{2}, Receipt: 3, LogOffset: 4,
			Checkpoint: 5, Resume: true}},
		"ready":   {Ready: &work.Ready{StartedAt: 1, Resumed: true}},
		"log":     {Log: &work.Log{Stream: work.Stderr, Offset: 1 << 33, Data: []byte("hello")}},
		"receipt": {Receipt: envelope()},
		"voucher": {Voucher: envelope()},
		"checkpoint": {Checkpoint: &work.Checkpoint{Seq: 1, Files: []market.File{
			{Path: "a/b", Digest: attest.Digest{1}, Bytes: 9}, {Path: "c", Digest: attest.Digest{2}}}}},
		"ack":     {Ack: &work.Ack{LogOffset: 1, Checkpoint: 2}},
		"cancel":  {Cancel: &work.Cancel{Reason: "renter_cancel"}},
		"outcome": {Outcome: envelope()},
		"ping":    {Ping: &work.Ping{}},
	}
}

// badFrames returns frames that Validate, or the size limit, must refuse, by what is wrong with them.
func badFrames() map[string]work.Frame {
	file := market.File{Path: "a", Digest: attest.Digest{1}}
	checkpoint := func(seq uint64, files ...market.File) work.Frame {
		return work.Frame{Checkpoint: &work.Checkpoint{Seq: seq, Files: files}}
	}
	var many []market.File
	for i := range work.MaxCheckpointFiles {
		f := file
		f.Path = fmt.Sprintf("%s%d", strings.Repeat("x", 400), i)
		many = append(many, f)
	}
	return map[string]work.Frame{
		"nothing":                      {},
		"two things":                   {Ping: &work.Ping{}, Ack: &work.Ack{}},
		"start without a lease":        {Start: &work.Start{}},
		"first start with a receipt":   {Start: &work.Start{Lease: attest.Digest{1}, Receipt: 1}},
		"ready without a time":         {Ready: &work.Ready{}},
		"log of no stream":             {Log: &work.Log{Data: []byte{1}}},
		"log of a third stream":        {Log: &work.Log{Stream: 3, Data: []byte{1}}},
		"log without data":             {Log: &work.Log{Stream: 1}},
		"log too long":                 {Log: &work.Log{Stream: 1, Data: make([]byte, work.MaxLogData+1)}},
		"log far out":                  {Log: &work.Log{Stream: 1, Offset: market.MaxBytes + 1, Data: []byte{1}}},
		"empty receipt":                {Receipt: &attest.Envelope{}},
		"voucher too long":             {Voucher: &attest.Envelope{Payload: make([]byte, attest.MaxEnvelope+1)}},
		"empty outcome":                {Outcome: &attest.Envelope{}},
		"checkpoint 0":                 checkpoint(0, file),
		"checkpoint without files":     checkpoint(1),
		"checkpoint with a file twice": checkpoint(1, file, file),
		"checkpoint that leads up":     checkpoint(1, market.File{Path: "../a", Digest: attest.Digest{1}}),
		"checkpoint without a digest":  checkpoint(1, market.File{Path: "a"}),
		"checkpoint above 64 KiB":      checkpoint(1, many...),
		"cancel with a story":          {Cancel: &work.Cancel{Reason: strings.Repeat("x", work.MaxReason+1)}},
	}
}

func TestFrameValidate(t *testing.T) {
	for name, f := range goodFrames() {
		if err := f.Validate(); err != nil {
			t.Errorf("%s: Validate = %v", name, err)
		}
		if f.Kind() != name {
			t.Errorf("%s: Kind = %q", name, f.Kind())
		}
	}
	for name, f := range badFrames() {
		if name == "checkpoint above 64 KiB" {
			continue // the size is the encoder's business
		}
		if err := f.Validate(); err == nil {
			t.Errorf("%s: Validate = nil", name)
		}
	}
}

// TestFrameBytes holds the encoding: both sides of a stream may be of different versions.
func TestFrameBytes(t *testing.T) {
	for name, want := range map[string]string{
		"ping":   "a10aa0",
		"ready":  "a102a2010102f5",
		"log":    "a103a30102021b0000000200000000034568656c6c6f",
		"ack":    "a107a201010202",
		"cancel": "a108a1016d72656e7465725f63616e63656c",
		"start": "a101a6015820" + "01" + strings.Repeat("00", 31) + "0250" + "02" + strings.Repeat("00", 15) +
			"03030404050506f5",
	} {
		b, err := attest.Marshal(goodFrames()[name])
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, good := range goodFrames() {
		b, err := attest.Marshal(good)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xa1, 0x0a, 0xf6}) // ping: null
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame work.Frame
		if attest.Unmarshal(b, &frame) != nil {
			return
		}
		if frame.Kind() == "empty" {
			t.Fatalf("%x decodes to a frame that carries nothing", b)
		}
		again, err := attest.Marshal(frame)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("%x encodes to %x, %v", b, again, err)
		}
		var twice work.Frame
		if err := attest.Unmarshal(again, &twice); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(frame, twice); diff != "" {
			t.Error(diff)
		}
	})
}
