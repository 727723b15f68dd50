package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/store"
)

func TestJobsAndAuctions(t *testing.T) {
	s := openDir(t, t.TempDir())
	for _, id := range []string{"b", "a", "aa"} {
		if err := s.SaveJob(id, []byte("job "+id)); err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{300, 2} {
			if err := s.SaveAuction(id, n, []byte(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v, err := s.Job("a"); string(v) != "job a" || err != nil {
		t.Errorf("Job = %q, %v", v, err)
	}
	if _, err := s.Job("c"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Job = %v, want ErrNotFound", err)
	}
	var got []string
	if err := s.Jobs(func(id string, v []byte) error { got = append(got, id+":"+string(v)); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a:job a", "aa:job aa", "b:job b"}, got); d != "" {
		t.Error(d)
	}
	got = nil
	err := s.Auctions("a", func(n uint64, v []byte) error { got = append(got, fmt.Sprint(n, string(v))); return nil })
	if d := cmp.Diff([]string{"2a", "300a"}, got); d != "" || err != nil {
		t.Errorf("Auctions(a): %v %s", err, d)
	}
	if err := s.SaveAuction(strings.Repeat("x", store.MaxName+1), 1, nil); !errors.Is(err, store.ErrTooBig) {
		t.Errorf("SaveAuction = %v, want ErrTooBig", err)
	}
}

func TestEvidence(t *testing.T) {
	s := openDir(t, t.TempDir())
	low, high := attest.Key{1}, attest.Key{0xff, 0xff}
	ref := attest.Digest{9}
	for _, at := range []int64{300, 2} {
		for _, peer := range []attest.Key{high, low} {
			if err := s.AddEvidence(peer, at, ref, []byte{peer[0]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.AddEvidence(low, 2, ref, []byte("again")); err != nil {
		t.Fatal(err)
	}
	if err := s.AddEvidence(low, -1, ref, nil); err == nil {
		t.Error("AddEvidence before 1970 = nil")
	}
	got, err := s.Evidence(low)
	want := []store.Evidence{{At: 2, Ref: ref, Value: []byte("again")}, {At: 300, Ref: ref, Value: []byte{1}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("Evidence: %v %s", err, d)
	}
	peers, err := s.EvidencePeers()
	if d := cmp.Diff([]attest.Key{low, high}, peers); d != "" || err != nil {
		t.Errorf("EvidencePeers: %v %s", err, d)
	}
}

func TestPrices(t *testing.T) {
	s := openDir(t, t.TempDir())
	for _, p := range []store.Price{{At: 300, Micro: 3}, {At: 2, Micro: 1}, {At: 2, Micro: 1}, {At: 5, Micro: 2}} {
		if err := s.AddPrice("h100", p.At, p.Micro); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddPrice("h100-x", 4, 9); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		n    int
		want []store.Price
	}{
		{"all", 0, []store.Price{{300, 3}, {5, 2}, {2, 1}, {2, 1}}},
		{"two", 2, []store.Price{{300, 3}, {5, 2}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Prices("h100", tt.n)
			if d := cmp.Diff(tt.want, got); d != "" || err != nil {
				t.Errorf("Prices: %v %s", err, d)
			}
		})
	}
	if got, err := s.Prices("none", 3); len(got) != 0 || err != nil {
		t.Errorf("Prices of an unknown class = %v, %v", got, err)
	}
}

func TestMeta(t *testing.T) {
	s := openDir(t, t.TempDir())
	if err := s.SaveMeta("anchor", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Meta("anchor"); string(v) != "1" || err != nil {
		t.Errorf("Meta = %q, %v", v, err)
	}
	if _, err := s.Meta("none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Meta = %v, want ErrNotFound", err)
	}
}
