// Package examples holds ready-made jobs, built and with their data, for the
// demo, the documentation and tests: at present Digits.
//
// The source of a job lies in the folder of its name; "go generate" builds its
// module anew. The package runs nothing. Its functions return data that is
// compiled in, may be called by anybody and are safe for concurrent use.
package examples

import (
	"embed"
	"io/fs"
)

//go:generate ./digits/build.sh

//go:embed digits/digits.wasm digits/data
var files embed.FS

// Digits returns a job that trains a small neural network on handwritten
// digits: the WebAssembly module (WASI preview 1) and the folder it expects at
// /data, four gzip-compressed IDX files with 4,000 images to train on and
// 1,000 to test. It writes weights.bin and metrics.json to /out and its state
// after each epoch to /ckpt/state, and goes on from there when that file
// exists. The caller may change the module's bytes; each call returns a copy.
func Digits() (module []byte, data fs.FS) {
	module, err := files.ReadFile("digits/digits.wasm")
	if err != nil {
		panic("examples: embedded module is missing: " + err.Error())
	}
	data, err = fs.Sub(files, "digits/data")
	if err != nil {
		panic("examples: embedded data are missing: " + err.Error())
	}
	return module, data
}
