package reputation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest/reputation"
)

func TestParamsValidate(t *testing.T) {
	for _, p := range []reputation.Params{reputation.DefaultParams(), reputation.TestParams()} {
		if err := p.Validate(); err != nil {
			t.Errorf("Validate(%+v) = %v, want nil", p, err)
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*reputation.Params)
		want string
	}{
		{"no unit", func(p *reputation.Params) { p.UnitMicroUSD = 0 }, "UnitMicroUSD"},
		{"unit too large", func(p *reputation.Params) { p.UnitMicroUSD = reputation.MaxUnitMicroUSD + 1 }, "UnitMicroUSD"},
		{"cap below a unit", func(p *reputation.Params) { p.CapPerDay = unit - 1 }, "CapPerDay"},
		{"half-life below a day", func(p *reputation.Params) { p.HalfLifeOK = time.Hour }, "HalfLifeOK"},
		{"half-life too long", func(p *reputation.Params) { p.HalfLifeFail = reputation.MaxHalfLife + 1 }, "HalfLifeFail"},
		{"window of a day and a half", func(p *reputation.Params) { p.ShortWindow = 36 * time.Hour }, "ShortWindow"},
		{"no short prior", func(p *reputation.Params) { p.ShortPrior = 0 }, "ShortPrior"},
		{"no weight of failure", func(p *reputation.Params) { p.Rho = 0 }, "Rho"},
		{"quantile of one", func(p *reputation.Params) { p.QuantileBP = reputation.Full }, "QuantileBP"},
		{"no floor", func(p *reputation.Params) { p.FloorBP = 0 }, "FloorBP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := reputation.DefaultParams()
			tc.edit(&p)
			err := p.Validate()
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Validate = %v, want one fault that names %s", err, tc.want)
			}
		})
	}
	err := reputation.Params{}.Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n != 9 {
		t.Errorf("Validate of the zero value reports %d faults, want 9: %v", n, err)
	}
}

func TestScorePanicsOnInvalidParams(t *testing.T) {
	defer func() {
		if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "reputation: ") {
			t.Errorf("recovered %v, want a panic of this package", r)
		}
	}()
	reputation.Score(reputation.Params{}, nil, noon)
}

func TestUnits(t *testing.T) {
	u := 12*unit + 345_999
	if got := u.String(); got != "12.345" {
		t.Errorf("String() = %q, want 12.345", got)
	}
	if got := u.Milli(); got != 12_345 {
		t.Errorf("Milli() = %d, want 12345", got)
	}
}
