package main

import "encoding/binary"

// exit is how a module ends with an exit code of at most 63: proc_exit(code).
func exit(code byte) []byte { return []byte{0x41, code, 0x10, 1} }

// forever is how a module never ends: loop br 0 end.
func forever() []byte { return []byte{0x03, 0x40, 0x0c, 0, 0x0b} }

// module returns a WebAssembly module that writes a text to stdout and then ends as last says. It is put together by
// hand (WebAssembly core specification 2.0, chapter 5), so that the tests need no compiler; texts of at most 100 bytes
// keep every number in one byte.
func module(text string, last []byte) []byte {
	section := func(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }
	name := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	imported := func(field string, typ byte) []byte {
		return append(append(name("wasi_snapshot_preview1"), name(field)...), 0, typ)
	}
	// Memory: at 0 the one buffer (address 16, length), at 8 the count of what was written, at 16 the text.
	data := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 16), uint32(len(text)))
	data = append(append(data, make([]byte, 8)...), text...)
	start := []byte{0, // no locals
		0x41, 1, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a} // fd_write(1, 0, 1, 8), its result dropped
	start = append(append(start, last...), 0x0b)
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, section(1, 3, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 0, 0x60, 0, 0)...) // types
	imports := append([]byte{2}, append(imported("fd_write", 0), imported("proc_exit", 1)...)...)
	m = append(m, section(2, imports...)...)
	m = append(m, section(3, 1, 2)...)    // one function of type 2
	m = append(m, section(5, 1, 0, 1)...) // one page of memory
	exports := append(append([]byte{2}, append(name("memory"), 2, 0)...), append(name("_start"), 0, 2)...)
	m = append(m, section(7, exports...)...)
	m = append(m, section(10, append([]byte{1, byte(len(start))}, start...)...)...)
	return append(m, section(11, append([]byte{1, 0, 0x41, 0, 0x0b, byte(len(data))}, data...)...)...)
}
