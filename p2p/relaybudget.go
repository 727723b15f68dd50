package p2p

import "time"

// budget is how many bytes pass in any 24 hours, to the hour.
type budget struct {
	perDay uint64
	hours  [24]uint64 // by hour since the epoch, modulo 24
	last   int64      // the hour that was counted last
}

func (b *budget) turn(now time.Time) int {
	hour := now.Unix() / 3600
	if hour < b.last {
		hour = b.last // the clock was set back
	}
	for h := max(b.last+1, hour-23); h <= hour; h++ {
		b.hours[h%24] = 0
	}
	b.last = hour
	return int(hour % 24)
}

// spend counts bytes.
func (b *budget) spend(now time.Time, n uint64) { b.hours[b.turn(now)] += n }

// left returns how many bytes may still pass.
func (b *budget) left(now time.Time) uint64 {
	b.turn(now)
	spent := uint64(0)
	for _, n := range b.hours {
		spent += n
	}
	return b.perDay - min(spent, b.perDay)
}
