//go:build linux

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// TestLab runs four jobs. The whole lab is the command's: it wants the machine for itself, and tests of other packages run
// beside this one.
func TestLab(t *testing.T) {
	if reason := lacking(t.Context()); reason != "" {
		requiretest.Skip(t, "netns", reason)
	}
	pairs := []pair{{"public", "home"}, {"home", "home"}, {"home", "symmetric"}, {"no-udp", "no-udp"}}
	l, err := newLab(t.Context(), "../..", "", t.Output())
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.measure(t.Context(), pairs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.print(t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.faults() {
		t.Error(f)
	}
}

func TestExpect(t *testing.T) {
	for _, tt := range []struct{ provider, renter, want string }{
		{"public", "symmetric", straight},
		{"symmetric", "cone", straight},
		{"home", "cgnat", straight},
		{"no-udp", "home", straight},
		{"home", "symmetric", refused},
		{"symmetric", "symmetric", refused},
		{"ipv6", "ipv6", straight},
		{"ipv6", "public", refused},
		{"proxy", "public", refused},
	} {
		p, _ := kindOf(tt.provider)
		r, _ := kindOf(tt.renter)
		for range 2 { // who sells and who rents makes no difference to physics
			if got, why := expect(p, r); got != tt.want {
				t.Errorf("expect(%s, %s) = %s, %s; want %s", p.name, r.name, got, why, tt.want)
			}
			p, r = r, p
		}
	}
}

func TestChoose(t *testing.T) {
	pairs, stories, err := choose("moved,home,public")
	if err != nil {
		t.Fatal(err)
	}
	want := []pair{{"home", "home"}, {"public", "public"}, {"public", "home"}, {"home", "public"}}
	if diff := cmp.Diff(want, pairs, cmp.AllowUnexported(pair{})); diff != "" || len(stories) != 1 || stories[0].name != "moved" {
		t.Errorf("pairs (-want +got)\n%s, %d scenes", diff, len(stories))
	}
	if _, _, err := choose("home,hom"); err == nil {
		t.Error("no error for an unknown name")
	}
}
