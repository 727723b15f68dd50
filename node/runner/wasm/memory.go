package wasm

import "github.com/tetratelabs/wazero/experimental"

// allocator gives a guest its linear memory and ends the guest by a panic
// with errMemory when it asks for more than limit bytes. wazero's own limit
// only makes memory.grow fail, after which a guest ends in its own way (a Go
// program with exit code 2) that can not be told from any other end. A wish
// beyond the maximum that the module itself declares, or beyond the 4 GiB it
// can address, does not get here and fails inside the guest as the standard
// says.
type allocator struct {
	limit uint64
	used  uint64 // by all memories of the guest
}

// Allocate implements experimental.MemoryAllocator.
func (a *allocator) Allocate(_, max uint64) experimental.LinearMemory {
	return &linear{a: a, buf: reserve(min(max, a.limit))}
}

// linear is one memory. Its address space is reserved up to the limit from
// the start, so growing never copies and pages count only once touched.
type linear struct {
	a    *allocator
	buf  []byte // length 0; its capacity is the reserve
	size uint64
}

// Reallocate implements experimental.LinearMemory.
func (l *linear) Reallocate(size uint64) []byte {
	if l.a.used-l.size+size > l.a.limit {
		panic(errMemory)
	}
	l.a.used += size - l.size
	l.size = size
	if size > uint64(cap(l.buf)) { // nothing reserved on this system
		grown := make([]byte, size, max(size, min(2*size, l.a.limit)))
		copy(grown, l.buf[:cap(l.buf)])
		l.buf = grown
	}
	return l.buf[:size]
}

// Free does nothing: the process ends with the guest.
func (l *linear) Free() {}
