// Command digits is the example job: it trains a small neural network to read
// handwritten digits and measures it on digits it has not seen.
//
// The network has 784 inputs, 64 hidden units (ReLU) and 10 outputs (softmax)
// and is trained by plain stochastic gradient descent, one image at a time.
// The data are part of the MNIST set in its IDX format, gzip-compressed.
//
// It is built for WASI (see digits.wasm and the go:generate line in
// examples.go) but is ordinary Go and also runs on any host. It reads no clock
// and no random source: the same data and flags give the same bytes in
// weights.bin and metrics.json, also when the run was cut off and resumed from
// a checkpoint. After each epoch it writes its state to a hidden file in the
// checkpoint folder and renames it, so that a reader never sees half of one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

type options struct {
	epochs          int
	images          int
	data, out, ckpt string
}

func main() {
	var o options
	flag.IntVar(&o.epochs, "epochs", 6, "passes over the training images")
	flag.IntVar(&o.images, "images", 0, "train on the first `N` images only (0 = all)")
	flag.StringVar(&o.data, "data", "/data", "`folder` with the four IDX files")
	flag.StringVar(&o.out, "out", "/out", "`folder` for weights.bin and metrics.json")
	flag.StringVar(&o.ckpt, "ckpt", "/ckpt", "`folder` for the checkpoint (empty = none)")
	flag.Parse()
	if flag.NArg() > 0 || o.epochs < 1 || o.images < 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "digits:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	train, err := readSet(o.data, "train")
	if err != nil {
		return err
	}
	test, err := readSet(o.data, "test")
	if err != nil {
		return err
	}
	if o.images > 0 && o.images < len(train) {
		train = train[:o.images]
	}
	t, err := loadOrNew(o.ckpt, len(train))
	if err != nil {
		return err
	}
	if t.epoch > 0 {
		fmt.Printf("resumed after epoch %d\n", t.epoch)
	}
	for t.epoch < o.epochs {
		t.trainEpoch(train)
		// Saved before it is told, so that an epoch once seen is not lost.
		if o.ckpt != "" {
			if err := replace(filepath.Join(o.ckpt, "state"), t.marshal()); err != nil {
				return fmt.Errorf("save checkpoint: %w", err)
			}
		}
		fmt.Printf("epoch %d/%d  loss %.3f  accuracy %.3f\n", t.epoch, o.epochs, t.loss, t.net.accuracy(test))
	}
	return writeResults(o, t, train, test)
}

// loadOrNew takes up the checkpoint if there is one for as many images.
func loadOrNew(dir string, images int) (*training, error) {
	t := newTraining(images)
	if dir == "" {
		return t, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, "state"))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = t.unmarshal(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return t, nil
}

// writeResults writes the weights and, as one line of JSON, how good they are:
// the share of test images read rightly (0 to 1) and the mean cross-entropy of
// the last epoch (nats). The line is put together by hand, since the JSON
// package would make the module a sixth larger.
func writeResults(o options, t *training, train, test []sample) error {
	m := fmt.Sprintf(`{"accuracy":%v,"epochs":%d,"train_images":%d,"test_images":%d,"loss":%v}`+"\n",
		t.net.accuracy(test), t.epoch, len(train), len(test), t.loss)
	if err := replace(filepath.Join(o.out, "weights.bin"), t.net.marshal()); err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	if err := replace(filepath.Join(o.out, "metrics.json"), []byte(m)); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// replace writes a file under a hidden name beside it and renames it.
func replace(name string, b []byte) error {
	dir, base := filepath.Split(name)
	hidden := filepath.Join(dir, "."+base)
	if err := os.WriteFile(hidden, b, 0o600); err != nil {
		return err
	}
	return os.Rename(hidden, name)
}
