package receipt_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// chain is a lease with that many receipts of ten seconds.
func chain(tb testing.TB, n int) *markettest.Deal {
	tb.Helper()
	d := markettest.NewDeal(tb, 1, 2, nil)
	for range n {
		d.Run(10 * time.Second)
	}
	return d
}

func TestReceiptGolden(t *testing.T) {
	d := chain(t, 1)
	d.Pay()
	d.Add(d.Next(10*time.Second, receipt.Final))
	e := d.Receipts[1]
	// Signed bytes outlive the version that wrote them.
	want, err := os.ReadFile(filepath.Join("testdata", "receipt.hex"))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(e.Payload) + "\n"; got != string(want) {
		t.Errorf("encoded as\n%sand was before as\n%s", got, want)
	}
	if len(e.Payload) > receipt.MaxBytes {
		t.Errorf("an ordinary receipt has %d bytes, at most %d", len(e.Payload), receipt.MaxBytes)
	}
	got, err := attest.Open[receipt.Receipt](e, markettest.NetworkID(), receipt.Domain)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Tail.Last, got); diff != "" {
		t.Errorf("read back (-signed +read):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*receipt.Receipt)
		want   string // part of the message, "" = valid
	}{
		{"valid", func(*receipt.Receipt) {}, ""},
		{"nothing measured", func(r *receipt.Receipt) { r.Units, r.Cum, r.Tel = nil, nil, nil }, ""},
		{"version", func(r *receipt.Receipt) { r.Version = 2 }, "version 2"},
		{"number 0", func(r *receipt.Receipt) { r.Seq = 0 }, "start at 1"},
		{"no state", func(r *receipt.Receipt) { r.State = 0 }, "state 0"},
		{"unknown state", func(r *receipt.Receipt) { r.State = 5 }, "state 5"},
		{"no time", func(r *receipt.Receipt) { r.T0 = 0 }, "times do not fit"},
		{"no length", func(r *receipt.Receipt) { r.T1 = r.T0 }, "times do not fit"},
		{"negative length", func(r *receipt.Receipt) { r.T1 = r.T0 - 1 }, "times do not fit"},
		{"unknown unit", func(r *receipt.Receipt) { r.Units = gpu.Usage{9: 1} }, "unknown key 9"},
		{"unknown cumulative unit", func(r *receipt.Receipt) { r.Cum = gpu.Usage{0: 1} }, "unknown key 0"},
		{"unknown reading", func(r *receipt.Receipt) { r.Tel = gpu.Telemetry{14: 1} }, "unknown key 14"},
		{"more than all", func(r *receipt.Receipt) { r.Tel = gpu.Telemetry{gpu.UtilAvgBP: 10_001} }, "above 10000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := chain(t, 0).Next(10*time.Second, receipt.Running)
			tt.change(&r)
			err := r.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAccept(t *testing.T) {
	other := attest.Sum([]byte("another"))
	for _, tt := range []struct {
		name   string
		change func(*receipt.Receipt)
		want   error
	}{
		{"next", func(*receipt.Receipt) {}, nil},
		{"next after a gap", func(r *receipt.Receipt) { r.T0 += 60_000; r.T1 += 60_000 }, nil},
		{"paused, nothing billed", func(r *receipt.Receipt) {
			r.State, r.Units = receipt.Paused, gpu.Usage{gpu.BillableDeviceMS: 0}
			r.Cum[gpu.BillableDeviceMS] = 20_000
			r.Cum[gpu.ActiveMS], r.Cum[gpu.EnergyMJ] = 10_000, 6_000_000
		}, nil},
		{"a new counter", func(r *receipt.Receipt) { r.Units[gpu.TokensOut], r.Cum[gpu.TokensOut] = 5, 5 }, nil},
		{"another lease", func(r *receipt.Receipt) { r.Lease = other }, receipt.ErrChain},
		{"number left out", func(r *receipt.Receipt) { r.Seq++ }, receipt.ErrChain},
		{"number again", func(r *receipt.Receipt) { r.Seq-- }, receipt.ErrChain},
		{"number 0", func(r *receipt.Receipt) { r.Seq = 0 }, receipt.ErrChain},
		{"another predecessor", func(r *receipt.Receipt) { r.Prev = other }, receipt.ErrChain},
		{"no predecessor", func(r *receipt.Receipt) { r.Prev = attest.Digest{} }, receipt.ErrChain},
		{"overlaps by 1 ms", func(r *receipt.Receipt) { r.T0-- }, receipt.ErrClock},
		{"ends before it begins", func(r *receipt.Receipt) { r.T1 = r.T0 - 1 }, receipt.ErrClock},
		{"monotonic time stands still", func(r *receipt.Receipt) { r.MonoMS -= 10_000 }, receipt.ErrClock},
		{"monotonic time fell", func(r *receipt.Receipt) { r.MonoMS = 19_999 }, receipt.ErrClock},
		{"monotonic time jumps", func(r *receipt.Receipt) { r.MonoMS = 1<<64 - 1 }, receipt.ErrClock},
		{"monotonic slack used up", func(r *receipt.Receipt) { r.MonoMS += 150 }, nil},
		{"above the monotonic slack", func(r *receipt.Receipt) { r.MonoMS += 151 }, receipt.ErrClock},
		{"below the monotonic slack", func(r *receipt.Receipt) { r.MonoMS -= 152 }, receipt.ErrClock},
		{"cumulative fell", func(r *receipt.Receipt) { r.Cum[gpu.BillableDeviceMS] = 19_999 }, receipt.ErrCounter},
		{"cumulative too high", func(r *receipt.Receipt) { r.Cum[gpu.BillableDeviceMS]++ }, receipt.ErrCounter},
		{"cumulative too low", func(r *receipt.Receipt) { r.Cum[gpu.BillableDeviceMS]-- }, receipt.ErrCounter},
		{"counter vanished", func(r *receipt.Receipt) { delete(r.Cum, gpu.EnergyMJ) }, receipt.ErrCounter},
		{"counter vanished from both", func(r *receipt.Receipt) { delete(r.Cum, gpu.EnergyMJ); delete(r.Units, gpu.EnergyMJ) }, receipt.ErrCounter},
		{"counter from nowhere", func(r *receipt.Receipt) { r.Cum[gpu.BytesIn] = 1 }, receipt.ErrCounter},
		{"interval would wrap the sum", func(r *receipt.Receipt) {
			r.Units[gpu.BillableDeviceMS] = 1<<64 - 10_000
			r.Cum[gpu.BillableDeviceMS] = 10_000
		}, receipt.ErrCounter},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := chain(t, 2)
			r := d.Next(10*time.Second, receipt.Running)
			tt.change(&r)
			id := attest.Sum([]byte("id of r"))
			got, err := d.Tail.Accept(r, id)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Accept = %v, want %v", err, tt.want)
			}
			want := d.Tail
			if tt.want == nil {
				want = receipt.Tail{Lease: d.ID, Seq: 3, ID: id, Last: r}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("tail (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcceptFirst(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*receipt.Receipt)
		want   error
	}{
		{"first", func(*receipt.Receipt) {}, nil},
		{"number 2", func(r *receipt.Receipt) { r.Seq = 2 }, receipt.ErrChain},
		{"number 0", func(r *receipt.Receipt) { r.Seq = 0 }, receipt.ErrChain},
		{"names a predecessor", func(r *receipt.Receipt) { r.Prev[0] = 1 }, receipt.ErrChain},
		{"process started long ago", func(r *receipt.Receipt) { r.MonoMS += 1_000_000 }, receipt.ErrClock},
		{"usage before the lease", func(r *receipt.Receipt) { r.Cum[gpu.BillableDeviceMS] += 5 }, receipt.ErrCounter},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := chain(t, 0)
			r := d.Next(10*time.Second, receipt.Running)
			tt.change(&r)
			if _, err := d.Tail.Accept(r, attest.Sum(nil)); !errors.Is(err, tt.want) {
				t.Errorf("Accept = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestDuplicateChangesNothing(t *testing.T) {
	d := chain(t, 3)
	for range 3 {
		got, err := d.Tail.Accept(d.Tail.Last, d.Tail.ID)
		if !errors.Is(err, receipt.ErrDuplicate) {
			t.Fatalf("Accept = %v, want ErrDuplicate", err)
		}
		if diff := cmp.Diff(d.Tail, got); diff != "" {
			t.Errorf("tail (-before +after):\n%s", diff)
		}
	}
	if _, err := d.Tail.Accept(d.Tail.Last, attest.Sum([]byte("another id"))); !errors.Is(err, receipt.ErrChain) {
		t.Errorf("another receipt of the same number: %v, want ErrChain", err)
	}
}

func TestReplayUnderAnotherLease(t *testing.T) {
	one, two := chain(t, 1), markettest.NewDeal(t, 1, 3, nil)
	if _, err := two.Tail.Accept(one.Tail.Last, one.Tail.ID); !errors.Is(err, receipt.ErrChain) {
		t.Errorf("Accept = %v, want ErrChain", err)
	}
	_, err := attest.Open[receipt.Receipt](one.Receipts[0], attest.NetworkID("other"), receipt.Domain)
	if !errors.Is(err, attest.ErrSignature) {
		t.Errorf("on another network: %v, want ErrSignature", err)
	}
}

func TestNothingFollowsTheEnd(t *testing.T) {
	for _, s := range []receipt.State{receipt.Final, receipt.Failed} {
		t.Run(s.String(), func(t *testing.T) {
			d := chain(t, 1)
			d.Add(d.Next(10*time.Second, s))
			for _, next := range []receipt.State{receipt.Running, receipt.Paused, receipt.Final, receipt.Failed} {
				r := d.Next(10*time.Second, next)
				if _, err := d.Tail.Accept(r, attest.Sum(nil)); !errors.Is(err, receipt.ErrChain) {
					t.Errorf("%s after %s: %v, want ErrChain", next, s, err)
				}
			}
			if _, err := d.Tail.Accept(d.Tail.Last, d.Tail.ID); !errors.Is(err, receipt.ErrDuplicate) {
				t.Errorf("the last one again: %v, want ErrDuplicate", err)
			}
		})
	}
}

// A chain accepted in one order is accepted in no other, whatever is delivered twice in between.
func TestOnlyOneOrder(t *testing.T) {
	d := chain(t, 5)
	open := func(i int) (receipt.Receipt, attest.Digest) {
		r, err := attest.Decode[receipt.Receipt](d.Receipts[i])
		if err != nil {
			t.Fatal(err)
		}
		return r, d.Receipts[i].ID()
	}
	tail := receipt.Tail{Lease: d.ID}
	for n := range d.Receipts {
		for i := range d.Receipts {
			r, id := open(i)
			if _, err := tail.Accept(r, id); (err == nil) != (i == n) {
				t.Errorf("receipt %d after %d: %v", i+1, n, err)
			}
		}
		r, id := open(n)
		var err error
		if tail, err = tail.Accept(r, id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckElapsed(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name    string
		billed  time.Duration // over all devices
		devices int
		elapsed time.Duration
		ok      bool
	}{
		{"as much as passed", 60 * s, 1, 60 * s, true},
		{"within the tolerance", 90 * s, 1, 60 * s, true},
		{"1 ms above the tolerance", 90*s + time.Millisecond, 1, 60 * s, false},
		{"ten times as much", 600 * s, 1, 60 * s, false},
		{"two devices", 180 * s, 2, 60 * s, true},
		{"1 ms above, two devices", 180*s + time.Millisecond, 2, 60 * s, false},
		{"no device", 1 * s, 0, 60 * s, false},
		{"negative devices", 1 * s, -1, 60 * s, false},
		{"just begun", 30 * s, 1, 0, true},
		{"reader's clock set back", 30 * s, 1, -time.Hour, true},
		{"reader's clock set back, more stated", 31 * s, 1, -time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := receipt.Receipt{Seq: 1, Cum: gpu.Usage{gpu.BillableDeviceMS: uint64(tt.billed.Milliseconds())}}
			err := receipt.CheckElapsed(r, tt.devices, tt.elapsed)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, receipt.ErrElapsed) {
				t.Errorf("CheckElapsed = %v, want ok %v or ErrElapsed", err, tt.ok)
			}
		})
	}
}

func FuzzReceipt(f *testing.F) {
	d := chain(f, 2)
	d.Add(d.Next(10*time.Second, receipt.Final))
	for _, e := range d.Receipts {
		f.Add(e.Payload)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r receipt.Receipt
		if attest.Unmarshal(b, &r) != nil {
			_ = r.Validate() // must not panic on what was half decoded
			return
		}
		again, err := attest.Marshal(r)
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%x was accepted, its encoding is %x, %v", b, again, err)
		}
		tail, err := d.Tail.Accept(r, attest.Sum(b))
		if err == nil {
			t.Errorf("a receipt was accepted after the end: %+v", r)
		}
		if diff := cmp.Diff(d.Tail, tail); diff != "" {
			t.Errorf("a refused receipt changed the tail:\n%s", diff)
		}
	})
}
