package market_test

import (
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/markettest"
)

// fault is one change to a valid object that makes it invalid, or not.
type fault[T any] struct {
	name   string
	change func(*T)
	ok     bool
}

// validate holds Validate against each change of a valid object, which make gives anew.
func validate[T attest.Validator](t *testing.T, object string, make func() T, faults []fault[T]) {
	t.Helper()
	if err := make().Validate(); err != nil {
		t.Fatalf("%s: the valid one: %v", object, err)
	}
	for _, f := range faults {
		t.Run(object+"/"+f.name, func(t *testing.T) {
			v := make()
			f.change(&v)
			if err := v.Validate(); (err == nil) != f.ok {
				t.Errorf("Validate = %v, want ok %v", err, f.ok)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	renter, provider := markettest.Signer(1).Key(), markettest.Signer(2).Key()
	long := func(n int) string { return strings.Repeat("x", n) }
	nowhere := market.Place{Continent: "xx"}

	validate(t, "ask", func() market.Ask { return markettest.Ask(provider) }, []fault[market.Ask]{
		{"version", func(a *market.Ask) { a.Version = 2 }, false},
		{"an hour", func(a *market.Ask) { a.ExpiresAt = a.IssuedAt + 3_600_000 }, true},
		{"longer than an hour", func(a *market.Ask) { a.ExpiresAt = a.IssuedAt + 3_600_001 }, false},
		{"ends before it begins", func(a *market.Ask) { a.ExpiresAt = a.IssuedAt }, false},
		{"no time", func(a *market.Ask) { a.IssuedAt = 0 }, false},
		{"nothing to sell", func(a *market.Ask) { a.Lots = nil }, false},
		{"too many lots", func(a *market.Ask) { a.Lots = make([]market.Lot, 17) }, false},
		{"a lot of none", func(a *market.Ask) { a.Lots[0].Count, a.Lots[0].Free = 0, 0 }, false},
		{"more free than there are", func(a *market.Ask) { a.Lots[0].Free = 5 }, false},
		{"price of 0", func(a *market.Ask) { a.Lots[0].Price = 0 }, false},
		{"price out of range", func(a *market.Ask) { a.Lots[0].Price = market.MaxAmount + 1 }, false},
		{"long model", func(a *market.Ask) { a.Lots[0].Model = long(65) }, false},
		{"long address", func(a *market.Ask) { a.Addrs[0] = long(201) }, false},
		{"long agent", func(a *market.Ask) { a.Agent = long(65) }, false},
		{"place", func(a *market.Ask) { a.Place = nowhere }, false},
	})
	validate(t, "bid", func() market.Bid { return markettest.Bid(renter) }, []fault[market.Bid]{
		{"version", func(b *market.Bid) { b.Version = 0 }, false},
		{"no request", func(b *market.Bid) { b.Request = market.Nonce{} }, false},
		{"number 0", func(b *market.Bid) { b.Seq = 0 }, false},
		{"announced for 90 s", func(b *market.Bid) { b.AnnounceUntil = b.IssuedAt + 90_000 }, true},
		{"announced longer", func(b *market.Bid) { b.AnnounceUntil = b.IssuedAt + 90_001 }, false},
		{"valid shorter than announced", func(b *market.Bid) { b.ValidUntil = b.AnnounceUntil - 1 }, false},
		{"valid for ever", func(b *market.Bid) { b.ValidUntil = 1<<63 - 1 }, false},
		{"workload", func(b *market.Bid) { b.Workload = 2 }, false},
		{"no device", func(b *market.Bid) { b.Count = 0 }, false},
		{"64 devices", func(b *market.Bid) { b.Count = 64 }, true},
		{"65 devices", func(b *market.Bid) { b.Count = 65 }, false},
		{"no duration", func(b *market.Bid) { b.DurationMS = 0 }, false},
		{"duration out of range", func(b *market.Bid) { b.DurationMS = 1 << 63 }, false},
		{"start out of range", func(b *market.Bid) { b.StartWithinMS = 1 << 63 }, false},
		{"no tier", func(b *market.Bid) { b.Tier = 0 }, false},
		{"unknown tier", func(b *market.Bid) { b.Tier = 4 }, false},
		{"memory out of range", func(b *market.Bid) { b.MemBytes = market.MaxBytes + 1 }, false},
		{"grace out of range", func(b *market.Bid) { b.GraceMS = 3_600_001 }, false},
		{"interval too short", func(b *market.Bid) { b.IntervalMS = 199 }, false},
		{"interval too long", func(b *market.Bid) { b.IntervalMS = 600_001 }, false},
		{"declines from more than all", func(b *market.Bid) { b.DeclineBP = 10_001 }, false},
		{"empty model", func(b *market.Bid) { b.Models = []string{""} }, false},
		{"too many models", func(b *market.Bid) { b.Models = strings.Split(long(9), "") }, false},
		{"long reply address", func(b *market.Bid) { b.ReplyTo = []string{long(201)} }, false},
		{"place", func(b *market.Bid) { b.Require = []market.Place{nowhere} }, false},
	})
	validate(t, "offer", func() market.Offer { return markettest.Offer(provider, attest.Sum(nil)) }, []fault[market.Offer]{
		{"version", func(o *market.Offer) { o.Version = 2 }, false},
		{"no bid", func(o *market.Offer) { o.Bid = attest.Digest{} }, false},
		{"no nonce", func(o *market.Offer) { o.Nonce = market.Nonce{} }, false},
		{"no device", func(o *market.Offer) { o.Devices = nil }, false},
		{"a device twice", func(o *market.Offer) { o.Devices = append(o.Devices, o.Devices[0]) }, false},
		{"long name", func(o *market.Offer) { o.Devices[0].Name = long(97) }, false},
		{"price of 0", func(o *market.Offer) { o.Price = 0 }, false},
		{"price out of range", func(o *market.Offer) { o.Price = market.MaxAmount + 1 }, false},
		{"interval", func(o *market.Offer) { o.IntervalMS = 0 }, false},
		{"start out of range", func(o *market.Offer) { o.StartInMS = 1<<64 - 1 }, false},
		{"not firm", func(o *market.Offer) { o.FirmUntil = 0 }, false},
		{"no tier", func(o *market.Offer) { o.Tier = 0 }, false},
		{"place", func(o *market.Offer) { o.Place = nowhere }, false},
	})
	validate(t, "decline", func() market.Decline { return markettest.Decline(provider, attest.Sum(nil)) }, []fault[market.Decline]{
		{"version", func(d *market.Decline) { d.Version = 2 }, false},
		{"about nothing", func(d *market.Decline) { d.About = attest.Digest{} }, false},
		{"no time", func(d *market.Decline) { d.At = 0 }, false},
		{"no reason", func(d *market.Decline) { d.Failures = nil }, false},
		{"reason 0", func(d *market.Decline) { d.Failures[0].Reason = 0 }, false},
		{"a reason to come", func(d *market.Decline) { d.Failures[0].Reason = 999 }, true},
		{"long text", func(d *market.Decline) { d.Failures[0].Wanted = long(65) }, false},
	})
	lease := markettest.NewDeal(t, 1, 2, nil).Lease
	validate(t, "lease", func() market.Lease { return lease }, []fault[market.Lease]{
		{"version", func(l *market.Lease) { l.Version = 2 }, false},
		{"with oneself", func(l *market.Lease) { l.Renter = l.Provider }, false},
		{"no work", func(l *market.Lease) { l.Work = attest.Digest{} }, false},
		{"no device", func(l *market.Lease) { l.Devices = nil }, false},
		{"price of 0", func(l *market.Lease) { l.Price = 0 }, false},
		{"budget out of range", func(l *market.Lease) { l.Budget = market.MaxAmount + 1 }, false},
		{"interval", func(l *market.Lease) { l.IntervalMS = 199 }, false},
		{"no duration", func(l *market.Lease) { l.DurationMS = 0 }, false},
		{"survives for ever", func(l *market.Lease) { l.SurviveMS = 1 << 63 }, false},
		{"no class", func(l *market.Lease) { l.Class = 0 }, false},
		{"opaque", func(l *market.Lease) { l.Class = market.Opaque }, true},
		{"no tier", func(l *market.Lease) { l.Tier = 0 }, false},
		{"grace", func(l *market.Lease) { l.GraceMS = 3_600_001 }, false},
		{"no time", func(l *market.Lease) { l.IssuedAt = 0 }, false},
	})
	validate(t, "terms", markettest.Terms, []fault[market.Terms]{
		{"version", func(m *market.Terms) { m.Version = 2 }, false},
		{"no module", func(m *market.Terms) { m.Module = attest.Digest{} }, false},
		{"module of no bytes", func(m *market.Terms) { m.ModuleBytes = 0 }, false},
		{"no memory", func(m *market.Terms) { m.MemBytes = 0 }, false},
		{"argument with a zero byte", func(m *market.Terms) { m.Args = []string{"a\x00b"} }, false},
		{"environment not sorted", func(m *market.Terms) { m.Env[0].Name = "ZZ" }, false},
		{"variable twice", func(m *market.Terms) { m.Env[0].Name = m.Env[1].Name }, false},
		{"variable without a name", func(m *market.Terms) { m.Env[0].Name = "" }, false},
		{"variable with =", func(m *market.Terms) { m.Env[0].Name = "A=B" }, false},
		{"input above the root", func(m *market.Terms) { m.Inputs[0].Path = "/data/../../etc/passwd" }, false},
		{"input twice", func(m *market.Terms) { m.Inputs = append(m.Inputs, m.Inputs[0]) }, false},
		{"input without a digest", func(m *market.Terms) { m.Inputs[0].Digest = attest.Digest{} }, false},
		{"output in the checkpoint", func(m *market.Terms) { m.Outputs[0] = m.Checkpoint + "/x" }, false},
		{"output that is relative", func(m *market.Terms) { m.Outputs[0] = "out" }, false},
		{"checkpoint at the root", func(m *market.Terms) { m.Checkpoint = "/" }, false},
		{"no checkpoint", func(m *market.Terms) { m.Checkpoint, m.CheckpointEveryMS = "", 0 }, true},
		{"resume", func(m *market.Terms) { m.Resume = []market.File{{Path: "a/b", Digest: attest.Sum(nil)}} }, true},
		{"resume from elsewhere", func(m *market.Terms) { m.Resume = []market.File{{Path: "../b", Digest: attest.Sum(nil)}} }, false},
	})
	d := paid(t)
	validate(t, "voucher", func() market.Voucher { return *d.Last }, []fault[market.Voucher]{
		{"version", func(v *market.Voucher) { v.Version = 2 }, false},
		{"number 0", func(v *market.Voucher) { v.Seq = 0 }, false},
		{"acknowledges nothing", func(v *market.Voucher) { v.AckSeq = 0 }, false},
		{"acknowledges no receipt", func(v *market.Voucher) { v.Ack = attest.Digest{} }, false},
		{"no lease", func(v *market.Voucher) { v.Lease = attest.Digest{} }, false},
		{"no time", func(v *market.Voucher) { v.At = 0 }, false},
		{"total of 0", func(v *market.Voucher) { v.Total = 0 }, true},
		{"out of range", func(v *market.Voucher) { v.Total = market.MaxAmount + 1 }, false},
	})
	validate(t, "outcome", func() market.Outcome { return d.Outcome(market.CodeDone) }, []fault[market.Outcome]{
		{"version", func(o *market.Outcome) { o.Version = 2 }, false},
		{"no lease", func(o *market.Outcome) { o.Lease = attest.Digest{} }, false},
		{"no time", func(o *market.Outcome) { o.EndedAt = 0 }, false},
		{"no code", func(o *market.Outcome) { o.Code = 0 }, false},
		{"unknown code", func(o *market.Outcome) { o.Code = market.CodeUnpaid + 1 }, false},
		{"more vouched than due", func(o *market.Outcome) { o.Vouched = o.Due + 1 }, false},
		{"due out of range", func(o *market.Outcome) { o.Due = market.MaxAmount + 1 }, false},
		{"unknown unit", func(o *market.Outcome) { o.Cum = gpu.Usage{99: 1} }, false},
		{"long reason", func(o *market.Outcome) { o.Reason = long(65) }, false},
	})
}

func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		path            string
		guest, relative bool
	}{
		{"/data", true, false}, {"/data/a b/ü", true, false}, {"/", false, false}, {"", false, false}, {"data", false, true},
		{"/data/", false, false}, {"//data", false, false}, {"/data/../x", false, false}, {"/..", false, false}, {".", false, false},
		{"..", false, false}, {"../x", false, false}, {"a/../x", false, false}, {"./a", false, false}, {"a/..", false, false},
		{"..a", false, true}, {"a\\b", false, true}, {"a\rb", false, false}, {"/a\x1b", false, false}, {"/\xff", false, false}, {"\xff", false, false}, {"/a\x00", false, false}, {"a\nb", false, false}, {"/" + strings.Repeat("a", 512), false, false},
	} {
		if err := market.CheckGuestPath(tt.path); (err == nil) != tt.guest {
			t.Errorf("CheckGuestPath(%.20q) = %v, want ok %v", tt.path, err, tt.guest)
		}
		if err := market.CheckRelativePath(tt.path); (err == nil) != tt.relative {
			t.Errorf("CheckRelativePath(%.20q) = %v, want ok %v", tt.path, err, tt.relative)
		}
	}
}

func TestGuestPaths(t *testing.T) {
	for _, tt := range []struct {
		name  string
		paths []string
		want  string // parts of the message; empty = fine
	}{
		{"none", nil, ""},
		{"side by side", []string{"/a", "/a b", "/ab", "/b/c", "/b/d"}, ""},
		{"no guest path", []string{"/a", "b"}, `"b"`},
		{"the same", []string{"/a", "/a"}, `"/a": it is there`},
		{"in one another", []string{"/out", "/out/deep/ckpt"}, `"/out/deep/ckpt" lies in "/out"`},
		{"in one another, the other way round", []string{"/out/ckpt", "/out"}, `"/out/ckpt" lies in "/out"`},
		{"scratch folder", []string{"/tmp"}, `"/tmp": it is there`},
		{"in the scratch folder", []string{"/tmp/x"}, `"/tmp/x" lies in "/tmp"`},
	} {
		if err := market.CheckGuestPaths(tt.paths); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: CheckGuestPaths = %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestPlace(t *testing.T) {
	for _, tt := range []struct {
		in, want string // want "" = refused
	}{
		{"eu", "eu"}, {"EU/DE/Berlin", "eu/de/berlin"}, {" eu/de ", "eu/de"}, {"eu/de/frankfurt am main", "eu/de/frankfurt am main"},
		{"", "unknown"}, {"europe", ""}, {"de", ""}, {"eu/deu", ""}, {"eu/d1", ""}, {"eu//berlin", ""}, {"eu/de/berlin/mitte", ""}, {"eu na", ""}, {" /de", ""},
	} {
		p, err := market.ParsePlace(tt.in)
		if (err == nil) != (tt.want != "") || err == nil && p.String() != tt.want {
			t.Errorf("ParsePlace(%q) = %s, %v, want %q", tt.in, p, err, tt.want)
		}
	}
	berlin := market.Place{Continent: "eu", Country: "de", City: "berlin"}
	for _, tt := range []struct {
		p, area market.Place
		want    bool
	}{
		{berlin, market.Place{}, true}, {berlin, market.Place{Continent: "eu"}, true}, {berlin, berlin, true},
		{berlin, market.Place{Continent: "eu", Country: "fr"}, false}, {berlin, market.Place{Continent: "na"}, false},
		{market.Place{Continent: "eu"}, berlin, false}, {market.Place{}, market.Place{Continent: "eu"}, false}, {market.Place{}, market.Place{}, true},
	} {
		if got := tt.p.Within(tt.area); got != tt.want {
			t.Errorf("%s within %s: %v, want %v", tt.p, tt.area, got, tt.want)
		}
	}
}
