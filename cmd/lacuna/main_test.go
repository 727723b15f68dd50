package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/runner/wasm"
	"github.com/lacuna-network/lacuna/node/testnet"
)

// TestMain lets the test binary be the command, which scripts run as lacuna, and the sandbox of the jobs that it runs.
func TestMain(m *testing.M) {
	if code, ok := wasm.ChildMain(); ok {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){"lacuna": main})
}

// clearHomes ends the daemons that a script left running and removes their homes.
func clearHomes(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		h, err := home.At(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := testnet.Down(h.Dir()); err != nil && !errors.Is(err, testnet.ErrNoNet) {
			t.Error(err)
		}
		c, _, _ := newTestCLI()
		if code := c.execute(context.Background(), []string{"down", "--home", h.Dir()}); code != exitDone && code != exitNotRunning {
			t.Errorf("down of %s ended with %d", h.Dir(), code)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// TestScripts runs the stories in testdata/script, one file each.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			// The home must be short: a path in it is a socket's.
			dir, err := os.MkdirTemp("", "lac")
			if err != nil {
				return err
			}
			e.Defer(func() { clearHomes(t, dir) })
			e.Setenv("HOMES", dir)
			e.Setenv("LACUNA_HOME", filepath.Join(dir, "h"))
			digits, err := filepath.Abs(filepath.Join("..", "..", "scripts", "examples", "digits"))
			if err != nil {
				return err
			}
			e.Setenv("DIGITS", digits)
			files := receiptFiles(t)
			files["hello.wasm"], files["fail.wasm"] = module("hello\n", exit(0)), module("bye\n", exit(7))
			files["loop.wasm"] = module("round\n", forever())
			for i, name := range []string{"key.pem", "other.pem"} {
				if files[name], err = home.MarshalKey(privateKey(byte(i + 1))); err != nil {
					return err
				}
			}
			for name, data := range files {
				if err := os.WriteFile(filepath.Join(e.WorkDir, name), data, 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
