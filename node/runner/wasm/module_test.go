package wasm_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lacuna-network/lacuna/node/runner"
)

// section and str assemble the binary format; all lengths here are under 128.
func section(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }

func str(s string) []byte { return append([]byte{byte(len(s))}, s...) }

// command returns a module that exports a memory of one page and a _start
// with this body, and imports no function, or the one that is named.
func command(importModule, importName string, maxPages byte, body ...byte) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	b = append(b, section(1, 1, 0x60, 0, 0)...) // type 0: no parameters, no results
	index := byte(0)
	if importModule != "" {
		b = append(b, section(2, slices.Concat([]byte{1}, str(importModule), str(importName), []byte{0, 0})...)...)
		index = 1
	}
	b = append(b, section(3, 1, 0)...)
	if maxPages == 0 {
		b = append(b, section(5, 1, 0, 1)...)
	} else {
		b = append(b, section(5, 1, 1, 1, maxPages)...)
	}
	b = append(b, section(7, slices.Concat([]byte{2}, str("memory"), []byte{2, 0}, str("_start"), []byte{0, index})...)...)
	code := slices.Concat([]byte{0}, body, []byte{0x0b})
	return append(b, section(10, slices.Concat([]byte{1, byte(len(code))}, code)...)...)
}

// Instructions.
const (
	unreachable = 0x00
	loop        = 0x03
	br          = 0x0c
	drop        = 0x1a
	i32Const    = 0x41
	i32Load     = 0x28
	i32DivS     = 0x6d
	memGrow     = 0x40
	block       = 0x40 // type of a block without a value
	end         = 0x0b
)

func TestSmallModules(t *testing.T) {
	growForever := []byte{loop, block, i32Const, 1, memGrow, 0, drop, br, 0, end}
	tests := []struct {
		name   string
		module []byte
		state  runner.State
		reason string
	}{
		{"nothing", command("", "", 0), runner.Exited, ""},
		{"unreachable", command("", "", 0, unreachable), runner.Trapped, "wasm error: unreachable"},
		{"division by zero", command("", "", 0, i32Const, 1, i32Const, 0, i32DivS, drop), runner.Trapped, "wasm error: integer divide by zero"},
		{"out of bounds", command("", "", 0, i32Const, 0x7f, i32Load, 0, 0, drop), runner.Trapped, "wasm error: out of bounds memory access"},
		{"grows by pages", command("", "", 0, growForever...), runner.MemoryLimit, "16777216 bytes of memory"},
		{"grows at once", command("", "", 0, i32Const, 0x80, 0x08, memGrow, 0, drop), runner.MemoryLimit, "16777216 bytes of memory"},
		{"grows within its limit", command("", "", 0, i32Const, 0x80, 0x01, memGrow, 0, drop), runner.Exited, ""},
		{"meets its own maximum", command("", "", 2, i32Const, 8, memGrow, 0, drop), runner.Exited, ""},
		{"no module", []byte("#!/bin/sh\n"), runner.Invalid, "module does not compile: invalid magic number"},
		{"empty", nil, runner.Invalid, "module does not compile: "},
		{"cut off", command("", "", 0, unreachable)[:20], runner.Invalid, "module does not compile: "},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), runner.Invalid, "module does not compile: invalid version"},
		{"library", append([]byte("\x00asm\x01\x00\x00\x00"), section(1, 1, 0x60, 0, 0)...), runner.Invalid, "exports no function _start"},
		{"other host", command("env", "emscripten_x", 0), runner.Invalid, `imports "emscripten_x" from "env"`},
		{"unknown function", command("wasi_snapshot_preview1", "no_such", 0), runner.Invalid, "module does not link: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, _ := newJob(t)
			j.Module, j.MemBytes = filepath.Join(j.Dir, "m.wasm"), 16<<20
			if err := os.WriteFile(j.Module, tt.module, 0o600); err != nil {
				t.Fatal(err)
			}
			want(t, run(t, j), tt.state, 0, tt.reason)
		})
	}
	t.Run("missing", func(t *testing.T) {
		j, _ := newJob(t)
		j.Module = filepath.Join(j.Dir, "missing.wasm")
		want(t, run(t, j), runner.Invalid, 0, "module can not be read: ")
	})
}
