package main

// helloModule returns a WebAssembly module (WASI preview 1) that prints "hello" and a line feed and ends: the smallest
// job with an output, so that what is measured is ours.
func helloModule() []byte {
	section := func(id byte, content string) []byte { return append([]byte{id, byte(len(content))}, content...) }
	text := "hello\n"
	vector := "\x08\x00\x00\x00" + string(rune(len(text))) + "\x00\x00\x00" // at 0: where the text lies, and its length
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, section(1, "\x02\x60\x04\x7f\x7f\x7f\x7f\x01\x7f\x60\x00\x00")...)              // types: (i32 ×4) → i32, () → ()
	m = append(m, section(2, "\x01\x16wasi_snapshot_preview1\x08fd_write\x00\x00")...)            // import
	m = append(m, section(3, "\x01\x01")...)                                                      // one function, of the second type
	m = append(m, section(5, "\x01\x00\x01")...)                                                  // memory of one page
	m = append(m, section(7, "\x02\x06memory\x02\x00\x06_start\x00\x01")...)                      // exports
	m = append(m, section(10, "\x01\x0d\x00\x41\x01\x41\x00\x41\x01\x41\x20\x10\x00\x1a\x0b")...) // fd_write(1, 0, 1, 32); drop
	return append(m, section(11, "\x01\x00\x41\x00\x0b"+string(rune(len(vector+text)))+vector+text)...)
}
