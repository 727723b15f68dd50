// Package requiretest says what becomes of a test whose counterpart is missing: another program, a device, something
// that the system must allow. It skips with the reason, unless the counterpart is named in the environment variable
// LACUNA_REQUIRE, a list separated by commas; then it fails. So a machine that is meant to have everything cannot pass
// by skipping. Tests of all folders call [Skip].
package requiretest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Skip ends a test that needs the counterpart, which is missing for that reason.
func Skip(tb testing.TB, counterpart, reason string) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv("LACUNA_REQUIRE"), ","), counterpart) {
		tb.Fatalf("%s: %s, and LACUNA_REQUIRE names it", counterpart, reason)
	}
	tb.Skipf("needs %s: %s", counterpart, reason)
}
