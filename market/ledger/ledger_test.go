package ledger_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/ledger"
)

// terms is a lease of one device at 100 micro-USD a second, with receipts each ten seconds and a minute to survive.
func terms() market.Lease {
	return market.Lease{Devices: make([]market.DeviceID, 1), Price: 360_000, IntervalMS: 10_000, SurviveMS: 60_000, Budget: market.USD}
}

func TestAdmit(t *testing.T) {
	limits := ledger.Limits{TrialPerDay: 10_000, TrialDevices: 1}
	for _, tt := range []struct {
		name string
		p    ledger.Position
		gate ledger.Gate // "" = admitted
	}{
		{"first interval of a stranger", ledger.Position{Next: 1000, TrialDevices: 1}, ""},
		{"trial used up to the last", ledger.Position{Next: 1000, TrialToday: 9000}, ""},
		{"trial used up", ledger.Position{Next: 1000, TrialToday: 9001}, ledger.MoneyGate},
		{"trial used up by others", ledger.Position{Next: 1, TrialToday: 10_000}, ledger.MoneyGate},
		{"second device on trial", ledger.Position{Next: 1000, TrialDevices: 2}, ledger.MoneyGate},
		{"trial amounts that wrap", ledger.Position{Next: 1000, TrialToday: math.MaxUint64}, ledger.MoneyGate},

		{"within the line", ledger.Position{Line: 5000, Due: 4000, Next: 1000}, ""},
		{"above the line", ledger.Position{Line: 5000, Due: 4001, Next: 1000}, ledger.MoneyGate},
		{"a line does not count as trial", ledger.Position{Line: 5000, Next: 1000, TrialToday: 10_000, TrialDevices: 9}, ""},
		{"settled makes room", ledger.Position{Line: 5000, Due: 9000, Settled: 5000, Next: 1000}, ""},
		{"settled makes no more room than it is", ledger.Position{Line: 5000, Due: 9000, Settled: 4999, Next: 1000}, ledger.MoneyGate},
		{"prepaid, no line", ledger.Position{Due: 9000, Settled: 10_000, Next: 1000}, ""},
		{"prepaid, used up", ledger.Position{Due: 9001, Settled: 10_000, Next: 1000}, ledger.MoneyGate},
		{"prepaid far ahead", ledger.Position{Settled: 10_000, Next: 1000}, ""},
		{"amounts that wrap", ledger.Position{Line: 5000, Due: math.MaxUint64, Next: 1000}, ledger.MoneyGate},

		{"unacknowledged for a minute", ledger.Position{Line: market.USD, LeaseDue: 5000, Next: 1000}, ""},
		{"unacknowledged for longer", ledger.Position{Line: market.USD, LeaseDue: 5001, Next: 1000}, ledger.AcknowledgementGate},
		{"acknowledged", ledger.Position{Line: market.USD, LeaseDue: 9000, Vouched: 4000, Next: 1000}, ""},
		{"acknowledged too little", ledger.Position{Line: market.USD, LeaseDue: 9000, Vouched: 3999, Next: 1000}, ledger.AcknowledgementGate},
		{"lease's amounts that wrap", ledger.Position{Line: market.USD, LeaseDue: math.MaxUint64, Next: 1000}, ledger.AcknowledgementGate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.Lease = terms()
			r := limits.Admit(tt.p)
			switch {
			case r == nil && tt.gate != "":
				t.Errorf("admitted, want the %s gate", tt.gate)
			case r != nil && (r.Gate != tt.gate || r.Reason == "" || r.Error() != string(r.Gate)+": "+r.Reason):
				t.Errorf("refused by %s: %s, want %q", r.Gate, r.Reason, tt.gate)
			}
		})
	}
}

func TestDefaultLimits(t *testing.T) {
	main, test := ledger.DefaultLimits("main"), ledger.DefaultLimits("test-7")
	if main.TrialPerDay != market.USD || main.TrialDevices != 1 {
		t.Errorf("limits of a network = %+v, want 1 USD a day on one device", main)
	}
	if test.TrialPerDay < 100*market.USD || test.TrialDevices != 0 {
		t.Errorf("limits of a test network = %+v, want room for a demo", test)
	}
}

func TestAckLimit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*market.Lease)
		want   market.MicroUSD
	}{
		{"a minute", func(*market.Lease) {}, 6000},
		{"two intervals at least", func(l *market.Lease) { l.SurviveMS = 0 }, 2002},
		{"two devices", func(l *market.Lease) { l.Devices = make([]market.DeviceID, 2) }, 12_000},
		{"so cheap that an interval is free", func(l *market.Lease) { l.Price, l.SurviveMS = 1, 0 }, 2},
	} {
		l := terms()
		tt.change(&l)
		if got := ledger.AckLimit(l); got != tt.want {
			t.Errorf("%s: AckLimit = %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestCheckBudget(t *testing.T) {
	l := terms()
	if !ledger.CheckBudget(l, market.USD-1000, 1000) || ledger.CheckBudget(l, market.USD-999, 1000) ||
		ledger.CheckBudget(l, math.MaxUint64, 1000) {
		t.Error("a lease costs more than its budget, or may not use it up")
	}
}

// account is one renter's lease as the model below knows it.
type account struct {
	renter   int
	terms    market.Lease
	usage    uint64          // device-ms that receipts state
	due      market.MicroUSD // of usage
	vouched  market.MicroUSD
	running  market.MicroUSD // price of the interval under way, 0 = none
	runMS    uint64
	ackLimit market.MicroUSD
}

// Whatever receipts, vouchers and settlements come in whatever order, over several leases of several renters, nobody
// owes more than its limits, and amounts never fall.
func TestExposureStaysWithinLimits(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		limits := ledger.Limits{TrialPerDay: market.MicroUSD(rng.IntN(20_000))}
		line := [4]market.MicroUSD{0, 0, 1 + market.MicroUSD(rng.IntN(30_000)), 1 + market.MicroUSD(rng.IntN(30_000))} // 0 and 1 are strangers
		var settled [4]market.MicroUSD
		leases := make([]account, 8)
		for i := range leases {
			l := terms()
			l.Price, l.SurviveMS = market.MicroUSD(1+rng.IntN(2_000_000)), uint64(rng.IntN(40_000))
			leases[i] = account{renter: i % 4, terms: l, ackLimit: ledger.AckLimit(l)}
		}
		stranger := func(r int) bool { return line[r] == 0 && settled[r] == 0 }
		open := func(r int) (due market.MicroUSD) { // due, with what runs already
			for _, a := range leases {
				if a.renter == r {
					due += a.due + a.running
				}
			}
			return due
		}
		admitted := 0
		for range 400 {
			a := &leases[rng.IntN(len(leases))]
			switch rng.IntN(4) {
			case 0: // the next interval
				if a.running > 0 {
					continue
				}
				p := ledger.Position{Line: line[a.renter], Due: open(a.renter), Settled: settled[a.renter], Lease: a.terms,
					LeaseDue: a.due, Vouched: a.vouched, Next: a.terms.IntervalCost() + 1}
				for r := range line {
					if stranger(r) {
						p.TrialToday += open(r)
					}
				}
				if limits.Admit(p) == nil {
					a.running, a.runMS = p.Next, a.terms.IntervalMS-uint64(rng.IntN(2000))
					admitted++
				}
			case 1: // its receipt
				if a.running == 0 {
					continue
				}
				a.usage += a.runMS
				due, err := market.Due(a.terms.Price, gpu.Usage{gpu.BillableDeviceMS: a.usage})
				if err != nil || due < a.due || due-a.due > a.running {
					t.Fatalf("seed %d: due %d after %d, %v, an interval of at most %d", seed, due, a.due, err, a.running)
				}
				a.due, a.running = due, 0
			case 2: // a voucher over all that is due
				a.vouched = a.due
			case 3: // a settlement, perhaps ahead of what is due; strangers stay strangers
				if a.renter >= 2 {
					settled[a.renter] += market.MicroUSD(rng.IntN(2000))
				}
			}
			var trial market.MicroUSD
			for r := range line {
				if stranger(r) {
					trial += open(r)
				} else if open(r) > settled[r]+line[r] {
					t.Fatalf("seed %d: renter %d owes %d, settled %d, line %d", seed, r, open(r), settled[r], line[r])
				}
			}
			if trial > limits.TrialPerDay {
				t.Fatalf("seed %d: strangers owe %d, the cap is %d", seed, trial, limits.TrialPerDay)
			}
			for i, a := range leases {
				if a.due+a.running-a.vouched > a.ackLimit || a.vouched > a.due {
					t.Fatalf("seed %d: lease %d: due %d, running %d, vouched %d, limit %d", seed, i, a.due, a.running, a.vouched, a.ackLimit)
				}
			}
		}
		if admitted == 0 && limits.TrialPerDay > 10_000 {
			t.Errorf("seed %d: nothing was ever admitted", seed)
		}
	}
}

// All never-settled keys share one cap: a thousand new keys get no more than one.
func TestNewKeysShareTheTrial(t *testing.T) {
	limits := ledger.Limits{TrialPerDay: 10_000}
	owed := func(keys int) (sum market.MicroUSD) {
		for range keys {
			l := terms()
			for due := market.MicroUSD(0); ; due += 1000 {
				if limits.Admit(ledger.Position{TrialToday: sum, Lease: l, LeaseDue: due, Vouched: due, Next: 1000}) != nil {
					break
				}
				sum += 1000
			}
		}
		return sum
	}
	if one, many := owed(1), owed(1000); one != 10_000 || many != one {
		t.Errorf("one key may owe %d, a thousand %d, want 10000 both", one, many)
	}
}

// A renter that stops to acknowledge costs the provider no more than the time that it may survive.
func TestSilentRenter(t *testing.T) {
	limits := ledger.Limits{TrialPerDay: market.USD}
	l := terms()
	l.SurviveMS = uint64((20 * time.Second).Milliseconds())
	var due market.MicroUSD
	intervals := 0
	for limits.Admit(ledger.Position{Lease: l, TrialToday: due, LeaseDue: due, Next: l.IntervalCost()}) == nil {
		due += l.IntervalCost()
		intervals++
	}
	if intervals != 2 || due > ledger.AckLimit(l) {
		t.Errorf("%d intervals ran unacknowledged, %s due; want 2", intervals, due)
	}
}
