package gpu

import (
	"slices"
	"strconv"
	"strings"
)

// Vendor names who makes a device. The zero value is unset.
type Vendor string

// The vendors that have classes.
const (
	NVIDIA Vendor = "nv"
	AMD    Vendor = "amd"
	Intel  Vendor = "intel"
	CPU    Vendor = "cpu"
)

// ClassCPU is the class of every CPU slot.
const ClassCPU = "cpu"

// GiB is 2^30 bytes.
const GiB = 1 << 30

// sizesGiB are the memory sizes that have a class of their own, ascending. They
// are few on purpose: each is a gossip topic per place.
var sizesGiB = [...]uint64{8, 12, 16, 24, 32, 48, 80, 96, 141, 192}

// reaches reports whether memBytes counts as a card sold with gib. Drivers
// report less than the box says: an A10G sold with 24 GB shows 22 731 MiB
// (92.5 %), a T4 15 360 MiB of 16 (93.8 %), a B200 183 359 MiB of 192 (93.3 %),
// and decimal gigabytes are 93.1 %; the closest different card is an 11 GB one
// against 12 (91.7 %). So the border lies at 92 %.
func reaches(memBytes, gib uint64) bool { return memBytes >= gib*GiB/100*92 }

// sizeIndex returns the index in sizesGiB of the largest size that memBytes
// reaches; smaller cards and unknown memory (0) count as the first.
func sizeIndex(memBytes uint64) int {
	at := 0
	for i, gib := range sizesGiB {
		if reaches(memBytes, gib) {
			at = i
		}
	}
	return at
}

func (v Vendor) known() bool { return v == NVIDIA || v == AMD || v == Intel || v == CPU }

func className(v Vendor, i int) string {
	return string(v) + "-" + strconv.FormatUint(sizesGiB[i], 10) + "g"
}

// ClassOf returns the class in which a device is traded: vendor and memory,
// rounded to the card that people mean (24 564 MiB is "nv-24g"). Cards below
// 8 GB and cards of unknown memory (0) are in the lowest class, since a bid
// without a memory demand reaches every class. A size between two classes
// belongs to the lower one. It returns "" for an unknown vendor. A class routes
// bids; it never proves that a demand is met.
func ClassOf(v Vendor, memBytes uint64) string {
	switch {
	case v == CPU:
		return ClassCPU
	case !v.known():
		return ""
	}
	return className(v, sizeIndex(memBytes))
}

// ClassesFrom returns, in ascending order, the classes to which a bid for a
// device with memBytes or more is published: that of memBytes and those above.
// Every device with at least memBytes is in one of them. It returns nil for an
// unknown vendor and "cpu" alone for [CPU].
func ClassesFrom(v Vendor, memBytes uint64) []string {
	switch {
	case v == CPU:
		return []string{ClassCPU}
	case !v.known():
		return nil
	}
	var classes []string
	for i := sizeIndex(memBytes); i < len(sizesGiB); i++ {
		classes = append(classes, className(v, i))
	}
	return classes
}

// Classes returns every class, vendor by vendor, each in ascending order.
func Classes() []string {
	return slices.Concat(ClassesFrom(NVIDIA, 0), ClassesFrom(AMD, 0), ClassesFrom(Intel, 0), ClassesFrom(CPU, 0))
}

// KnownClass reports whether class is one of [Classes].
func KnownClass(class string) bool {
	_, ok := MemBytesForClass(class)
	return ok
}

// MemBytesForClass returns the memory that a class is named after: 24 GiB for
// "nv-24g", and 0 for "cpu", which says nothing about memory. The cards in it
// may report a few percent less (see [NominalMemBytes]), and those of the lowest
// class any amount. It reports false for an unknown class.
func MemBytesForClass(class string) (uint64, bool) {
	if class == ClassCPU {
		return 0, true
	}
	vendor, _, _ := strings.Cut(class, "-")
	if v := Vendor(vendor); v.known() && v != CPU {
		for i, gib := range sizesGiB {
			if className(v, i) == class {
				return gib * GiB, true
			}
		}
	}
	return 0, false
}

// NominalMemBytes rounds what a driver reports up to the size on the box when it
// is less than 8 % short of a class size, and returns it unchanged otherwise:
// 24 564 MiB is 24 GiB, 10 240 MiB stays. It lets a demand for 24 GiB accept the
// cards that are sold as 24 GB. 0 stays 0, unknown.
func NominalMemBytes(memBytes uint64) uint64 {
	for _, gib := range sizesGiB {
		if memBytes < gib*GiB && reaches(memBytes, gib) {
			return gib * GiB
		}
	}
	return memBytes
}
