//go:build !linux

package wasm

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/lacuna-network/lacuna/node/runner"
)

// isolation is one way to start the child.
type isolation struct{ name string }

// isolations lists the only way there is: a plain process.
func isolations() []isolation { return []isolation{{"no namespaces"}} }

func (isolation) attr() *syscall.SysProcAttr { return nil }

func signalPause(*os.Process, bool) error { return runner.ErrUnsupported }

func processUsage(int) (time.Duration, uint64, error) {
	return 0, 0, errors.New("not measured on this system")
}

func deletedFiles(int) uint64 { return 0 }

func maxRSS() uint64 { return 0 }

func limitProcess() error { return nil }

func limitFiles(uint64) error { return nil }

func reserve(uint64) []byte { return nil }
