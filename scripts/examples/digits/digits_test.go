package main // a command can not be imported

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func idx(magic uint32, dims []uint32, body int) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, make([]byte, body)...)
}

func TestParseIDX(t *testing.T) {
	tests := []struct {
		name  string
		magic uint32
		file  []byte
		n     int // items, -1 for an error
	}{
		{"labels", magicLabels, idx(magicLabels, []uint32{3}, 3), 3},
		{"images", magicImages, idx(magicImages, []uint32{2, 28, 28}, 2*pixels), 2},
		{"other kind", magicLabels, idx(magicImages, []uint32{2, 28, 28}, 2*pixels), -1},
		{"other size", magicImages, idx(magicImages, []uint32{2, 28, 27}, 2*pixels), -1},
		{"cut off", magicLabels, idx(magicLabels, []uint32{3}, 2), -1},
		{"claims too much", magicLabels, idx(magicLabels, []uint32{1 << 31}, 9), -1},
		{"empty", magicLabels, nil, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, n, err := parseIDX(bytes.NewReader(tt.file), tt.magic)
			if (err != nil) != (tt.n < 0) || err == nil && n != tt.n {
				t.Errorf("parseIDX() = %d bytes, %d items, %v, want %d items", len(body), n, err, tt.n)
			}
		})
	}
}

func FuzzParseIDX(f *testing.F) {
	f.Add(idx(magicLabels, []uint32{3}, 3))
	f.Add(idx(magicImages, []uint32{1, 28, 28}, pixels))
	f.Fuzz(func(t *testing.T, b []byte) {
		for magic, size := range map[uint32]int{magicLabels: 1, magicImages: pixels} {
			body, n, err := parseIDX(bytes.NewReader(b), magic)
			if err == nil && len(body) != n*size {
				t.Errorf("%d items in %d bytes", n, len(body))
			}
		}
	})
}

// twoKinds returns images that are dark on the left (label 0) or right (1).
func twoKinds(n int) []sample {
	set := make([]sample, n)
	r := rng(7)
	for i := range set {
		set[i].label = uint8(i % 2)
		for range 40 {
			pixel := uint16(r.next()%28*28 + r.next()%14 + uint64(14*(i%2)))
			set[i].ink = append(set[i].ink, dot{pixel, 0.5})
		}
	}
	return set
}

func TestTrainingLearnsAndResumes(t *testing.T) {
	set := twoKinds(60)
	whole := newTraining(len(set))
	before := whole.net.accuracy(set)
	for range 4 {
		whole.trainEpoch(set)
	}
	if after := whole.net.accuracy(set); after != 1 || before > 0.9 {
		t.Errorf("accuracy went from %v to %v, want 1", before, after)
	}

	half := newTraining(len(set))
	half.trainEpoch(set)
	half.trainEpoch(set)
	resumed := newTraining(len(set))
	if err := resumed.unmarshal(half.marshal()); err != nil {
		t.Fatal(err)
	}
	resumed.trainEpoch(set)
	resumed.trainEpoch(set)
	if !bytes.Equal(resumed.marshal(), whole.marshal()) {
		t.Error("resumed training went another way")
	}
	if err := newTraining(len(set) + 1).unmarshal(half.marshal()); err == nil {
		t.Error("state of a run with fewer images was taken")
	}
}

func FuzzState(f *testing.F) {
	t := newTraining(3)
	t.trainEpoch(twoKinds(3))
	state := t.marshal()
	// The weights may be anything, so the fuzzer sees the part before them.
	tail := state[28+4*3:]
	f.Add(state[:28+4*3])
	f.Fuzz(func(t *testing.T, head []byte) {
		got := newTraining(3)
		b := append(bytes.Clone(head), tail...)
		if err := got.unmarshal(b); err != nil {
			return
		}
		if again := got.marshal(); !bytes.Equal(again, b) {
			t.Error("state changed by reading and writing it")
		}
		got.trainEpoch(twoKinds(3)) // must not meet an index out of range
	})
}
