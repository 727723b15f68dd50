package main

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxImages bounds what a file may claim to hold; MNIST has 60,000.
const maxImages = 100_000

// The first numbers of an IDX file: unsigned bytes in three dimensions and in
// one.
const (
	magicImages = 0x0803
	magicLabels = 0x0801
)

// sample is one image as the list of its pixels that are not white.
type sample struct {
	label uint8 // 0 to 9
	ink   []dot
}

type dot struct {
	pixel uint16  // row by row, 0 to 783
	value float32 // above 0, to 1
}

// readSet reads the images and labels called name, "train" or "test".
func readSet(dir, name string) ([]sample, error) {
	images, n, err := readIDX(filepath.Join(dir, name+"-images-idx3-ubyte.gz"), magicImages)
	if err != nil {
		return nil, err
	}
	labels, m, err := readIDX(filepath.Join(dir, name+"-labels-idx1-ubyte.gz"), magicLabels)
	if err != nil {
		return nil, err
	}
	if n == 0 || n != m {
		return nil, fmt.Errorf("%s set has %d images and %d labels", name, n, m)
	}
	set := make([]sample, n)
	for i := range set {
		if set[i].label = labels[i]; labels[i] >= classes {
			return nil, fmt.Errorf("%s set has the label %d", name, labels[i])
		}
		for pixel, v := range images[i*pixels : (i+1)*pixels] {
			if v != 0 {
				set[i].ink = append(set[i].ink, dot{uint16(pixel), float32(v) / 255})
			}
		}
	}
	return set, nil
}

// readIDX returns the bytes after the header and the number of items.
func readIDX(name string, magic uint32) ([]byte, int, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	body, n, err := parseIDX(z, magic)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	return body, n, nil
}

func parseIDX(r io.Reader, magic uint32) ([]byte, int, error) {
	var head [16]byte
	size := 1
	length := 8
	if magic == magicImages {
		size, length = pixels, 16
	}
	if _, err := io.ReadFull(r, head[:length]); err != nil {
		return nil, 0, err
	}
	number := func(i int) uint32 { return binary.BigEndian.Uint32(head[4*i:]) }
	if number(0) != magic || number(1) > maxImages {
		return nil, 0, fmt.Errorf("no IDX file of the kind %#x", magic)
	}
	if magic == magicImages && (number(2) != 28 || number(3) != 28) {
		return nil, 0, fmt.Errorf("images of %d by %d pixels", number(2), number(3))
	}
	n := int(number(1))
	body := make([]byte, n*size)
	_, err := io.ReadFull(r, body)
	return body, n, err
}
