package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/node/doctor"
)

func TestALowerFloorIsAdvisedWhereItHelps(t *testing.T) {
	for _, tt := range []struct {
		name        string
		free, floor uint64
		want        bool
	}{
		{"enough is free for a lower floor", 900 << 20, 1 << 30, true},
		{"nothing is left", 1 << 20, 1 << 30, false},
		{"the floor is low already", 100 << 20, 128 << 20, false},
	} {
		f := sound()
		f.Disk.Free, f.Disk.Floor = tt.free, tt.floor
		all := doctor.Judge(f)
		i := slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Check == "disk" })
		if i < 0 || all[i].Next == nil || strings.Contains(*all[i].Next, "store.min_free") != tt.want {
			t.Errorf("%s: %+v, want the floor in the advice: %v", tt.name, all, tt.want)
		}
	}
}
