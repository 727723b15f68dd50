package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

func TestHelloModule(t *testing.T) {
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	var out bytes.Buffer
	if _, err := r.InstantiateWithConfig(ctx, helloModule(), wazero.NewModuleConfig().WithStdout(&out)); err != nil {
		t.Fatal(err)
	}
	if out.String() != "hello\n" {
		t.Errorf("the module prints %q, want hello", out.String())
	}
}

func TestQuantile(t *testing.T) {
	twenty := make([]float64, 20)
	for i := range twenty {
		twenty[i] = float64(20 - i)
	}
	for _, tt := range []struct {
		name   string
		values []float64
		q      float64
		want   float64
	}{
		{"one", []float64{7}, 0.5, 7},
		{"odd", []float64{3, 1, 2}, 0.5, 2},
		{"even takes the lower", []float64{4, 1, 3, 2}, 0.5, 2},
		{"tail", twenty, 0.95, 19},
		{"least", twenty, 0, 1},
		{"most", twenty, 1, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := quantile(tt.values, tt.q); got != tt.want {
				t.Errorf("quantile(%v, %v) = %v, want %v", tt.values, tt.q, got, tt.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	var r report
	r.add("fast enough", "ms", []float64{90, 110, 100}, &aim{AtMost: 100}, "What it is.")
	r.add("too few", "", []float64{0.5}, &aim{AtLeast: 0.8}, "Another.")
	r.add("no aim", "MB", []float64{1234.5}, nil, "What it is.")
	r.add("not measured", "MB", nil, nil, "Nothing.")
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := `FIGURE       MEDIAN  P95  UNIT  N  AIM     MET  NOTE
fast enough  100     –    ms    3  ≤ 100   yes  1
too few      0.50    –    ×     1  ≥ 0.80  no   2
no aim       1234    –    MB    1  –       –    1

 1  What it is.
 2  Another.
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestParseBenchmark(t *testing.T) {
	const out = `goos: linux
BenchmarkRatioOther-2   	       1	         9 ns/op	         9 durable/raw
BenchmarkRatio-2   	       7	 506245539 ns/op	         0.8020 durable/raw	     45561 receipts/s
PASS
`
	want := map[string]float64{"ns/op": 506245539, "durable/raw": 0.802, "receipts/s": 45561}
	got, err := parseBenchmark([]byte(out), "BenchmarkRatio")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "BenchmarkRatio-2 7 much ns/op\n", "FAIL\n"} {
		if v, err := parseBenchmark([]byte(bad), "BenchmarkRatio"); err == nil {
			t.Errorf("parseBenchmark(%q) = %v, want an error", bad, v)
		}
	}
}

func TestChoose(t *testing.T) {
	for list, want := range map[string][]string{
		"": {"jobs", "rates", "memory", "peers", "bulk", "punched", "auctions", "gossip", "asks", "crowds", "program"}, "memory": {"memory"}, "program,jobs": {"program", "jobs"},
	} {
		got, err := choose(list)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range got {
			names = append(names, s.name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("choose(%q) (-want +got):\n%s", list, diff)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-only", "nothing"}, {"-peers", "0"}, {"-jobs", "-1"}, {"-unknown"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("run(%v) = nil, want an error", args)
		}
	}
	if err := run(context.Background(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("run(-h) = %v, want flag.ErrHelp", err)
	}
}

// The figures of offers need neither network nor disk.
func TestMeasureOffers(t *testing.T) {
	b := &bench{progress: io.Discard}
	if err := b.measureOffers(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.report.Figures); n != 2 {
		t.Fatalf("%d figures, want 2", n)
	}
	if f := b.report.Figures[0]; f.Median <= 0 || f.Median > 2 || f.N != offerRounds {
		t.Errorf("ratio %v of %d turns, want one between 0 and 2 of %d", f.Median, f.N, offerRounds)
	}
}
