package main

import (
	"path/filepath"
	"testing"
)

func TestAbsolute(t *testing.T) {
	got, err := absolute("a")
	if want, _ := filepath.Abs("a"); err != nil || got != want {
		t.Errorf("absolute(a) = %q, %v, want %q", got, err, want)
	}
	if got, err := absolute("a\xff"); err == nil {
		t.Errorf("absolute of no UTF-8 = %q, want an error", got)
	}
}
