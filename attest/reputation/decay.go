package reputation

import "time"

// dayMS is a day in milliseconds.
const dayMS = uint64(Day / time.Millisecond)

// exp2Table holds 2^(-k/64) for k = 0 to 64, in units of 2^-32, rounded to nearest.
// It is written out, and not computed at start, because two machines' floating
// point may differ in the last bit.
var exp2Table = [65]uint64{
	0x100000000, 0x0fd3e0c0d, 0x0fa83b2db, 0x0f7d0df73, 0x0f5257d15, 0x0f281773c, 0x0efe4b99c, 0x0ed4f301f,
	0x0eac0c6e8, 0x0e8396a50, 0x0e5b906e7, 0x0e33f8973, 0x0e0ccdeec, 0x0de60f482, 0x0dbfbb798, 0x0d99d15c2,
	0x0d744fccb, 0x0d4f35aac, 0x0d2a81d92, 0x0d06333db, 0x0ce248c15, 0x0cbec14ff, 0x0c9b9bd86, 0x0c78d74c9,
	0x0c5672a11, 0x0c346ccda, 0x0c12c4cca, 0x0bf1799b6, 0x0bd08a39f, 0x0baff5ab2, 0x0b8fbaf47, 0x0b6fd91e3,
	0x0b504f334, 0x0b311c413, 0x0b123f582, 0x0af3b78ad, 0x0ad583eea, 0x0ab7a39b6, 0x0a9a15ab5, 0x0a7cd93b5,
	0x0a5fed6aa, 0x0a43515ae, 0x0a2704303, 0x0a0b05110, 0x09ef53261, 0x09d3ed9a7, 0x09b8d39ba, 0x099e04593,
	0x09837f052, 0x096942d37, 0x094f4efa9, 0x0935a2b2f, 0x091c3d374, 0x09031dc43, 0x08ea4398b, 0x08d1adf5b,
	0x08b95c1e4, 0x08a14d575, 0x088980e81, 0x0871f6197, 0x085aac368, 0x0843a28c4, 0x082cd8699, 0x08164d1f4,
	0x080000000,
}

// decay returns 2^(-age/halfLife) in units of 2^-32, off by at most 2^-16 and never
// more for a greater age. Between the entries of exp2Table it goes straight.
func decay(ageDays int64, halfLife time.Duration) uint64 {
	half := uint64(halfLife / time.Millisecond)
	// Past 64 half-lives nothing is left; the test also keeps the product small.
	if uint64(ageDays) >= 64*half/dayMS+1 {
		return 0
	}
	age := uint64(ageDays) * dayMS
	whole, rest := age/half, age%half
	// 6 bits of index, 16 bits of the way to the next entry. MaxHalfLife is below
	// 2^39 ms, so the shift stays below 2^61.
	pos := rest << 22 / half
	i, frac := pos>>16, pos&0xffff
	w := exp2Table[i] - (exp2Table[i]-exp2Table[i+1])*frac>>16
	return w >> whole
}

// scale returns u times the weight w, which is in units of 2^-32, rounded down.
func scale(u Units, w uint64) Units { return Units(mulDiv(uint64(u), w, 1<<32)) }

// bpOf returns the weight w, which is in units of 2^-32, in basis points, rounded
// to nearest.
func bpOf(w uint64) int { return int((w*Full + 1<<31) >> 32) }

// dayOf returns the number of the UTC day that t lies in, 0 for 1 January 1970.
func dayOf(t time.Time) int64 {
	const perDay = int64(Day / time.Second)
	s := t.Unix()
	d := s / perDay
	if s%perDay < 0 {
		d--
	}
	return d
}
