package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/lacuna-network/lacuna/node/runner"
)

// The child's ends of the pipes; see the package comment.
const (
	fdSpec = 3 + iota
	fdReport
	fdStdout
	fdStderr
)

// heapBytes is the soft limit of the child's own heap. The guest's memory is
// not on it.
const heapBytes = 256 << 20

// Limits that the guest meets by panics, since neither a host function nor an
// allocator can end it otherwise. wazero hands them back wrapped.
var (
	errMemory = errors.New("memory limit")
	errDisk   = errors.New("disk limit")
)

// ChildMain runs a job if this process was started as a sandbox. Then ok is
// true and the program has to exit with the code at once. Call it first thing
// in main, and in TestMain of tests that start jobs:
//
//	if code, ok := wasm.ChildMain(); ok {
//		os.Exit(code)
//	}
func ChildMain() (code int, ok bool) {
	if len(os.Args) == 0 || os.Args[0] != ChildName {
		return 0, false
	}
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(heapBytes)
	var s spec
	in := os.NewFile(fdSpec, "spec")
	out := os.NewFile(fdReport, "report")
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		fmt.Fprintln(os.Stderr, "read spec:", err)
		return 1, true
	}
	rep := report{Probe: true}
	if !s.Probe {
		rep = runJob(s)
		rep.Reason, rep.MaxRSSBytes = firstLine(rep.Reason), maxRSS()
	}
	if err := json.NewEncoder(out).Encode(rep); err != nil {
		fmt.Fprintln(os.Stderr, "write report:", err)
		return 1, true
	}
	return 0, true
}

// runJob compiles and runs the module and says how it ended.
func runJob(s spec) (rep report) {
	defer func() {
		// The first allocation of a memory is not guarded by wazero. Any other
		// panic is a fault of the sandbox.
		switch v := recover(); {
		case v == nil:
		case v == errMemory:
			rep = report{State: runner.MemoryLimit}
		default:
			rep = report{State: runner.Crashed, Reason: fmt.Sprint("sandbox: ", v)}
		}
	}()
	if err := limitProcess(); err != nil {
		return report{State: runner.Crashed, Reason: "limit process: " + err.Error()}
	}
	code, err := os.ReadFile(s.Module)
	if err != nil {
		return invalid("module can not be read: %v", err)
	}
	ctx := experimental.WithMemoryAllocator(context.Background(), &allocator{limit: s.MemBytes})
	rt, mod, err := compile(ctx, code, s.CacheDir)
	if err != nil {
		return invalid("module does not compile: %v", err)
	}
	if rep, ok := check(mod); !ok {
		return rep
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return report{State: runner.Crashed, Reason: "set up WASI: " + err.Error()}
	}
	config, err := moduleConfig(s)
	if err != nil {
		return report{State: runner.Crashed, Reason: err.Error()}
	}
	// The compiler writes its cache above, so files are limited only now.
	if err := limitFiles(s.DiskBytes); err != nil {
		return report{State: runner.Crashed, Reason: "limit files: " + err.Error()}
	}
	inst, err := rt.InstantiateModule(ctx, mod, config)
	if err != nil {
		if rep := outcome(err); rep.State != runner.Trapped || strings.Contains(err.Error(), "wasm error: ") {
			return rep
		}
		return invalid("module does not link: %v", err)
	}
	_, err = inst.ExportedFunction("_start").Call(ctx)
	return outcome(err)
}

func invalid(format string, err error) report {
	return report{State: runner.Invalid, Reason: fmt.Sprintf(format, err)}
}

// compile uses the cache, and does without it where the cache is damaged or
// can not be written.
func compile(ctx context.Context, code []byte, cacheDir string) (wazero.Runtime, wazero.CompiledModule, error) {
	// The check that would let a context end the guest costs a factor of ten
	// in loops (measured) and does not stop a sleep, so it stays off.
	config := wazero.NewRuntimeConfig()
	if cacheDir != "" {
		if cache, err := wazero.NewCompilationCacheWithDir(cacheDir); err == nil {
			rt := wazero.NewRuntimeWithConfig(ctx, config.WithCompilationCache(cache))
			if mod, err := rt.CompileModule(ctx, code); err == nil {
				return rt, mod, nil
			}
		}
	}
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	mod, err := rt.CompileModule(ctx, code)
	return rt, mod, err
}

// check tells apart modules that are no WASI preview 1 commands.
func check(mod wazero.CompiledModule) (report, bool) {
	for _, f := range mod.ImportedFunctions() {
		if module, name, _ := f.Import(); module != wasi_snapshot_preview1.ModuleName {
			return invalid("%v", fmt.Errorf("module is not WASI preview 1: it imports %q from %q", name, module)), false
		}
	}
	start, ok := mod.ExportedFunctions()["_start"]
	if !ok || len(start.ParamTypes())+len(start.ResultTypes()) > 0 {
		return report{State: runner.Invalid, Reason: "module is not a WASI command: it exports no function _start"}, false
	}
	return report{}, true
}

// moduleConfig sets up all that the guest can see. The random source is left
// at wazero's default, which is a constant seed.
func moduleConfig(s spec) (wazero.ModuleConfig, error) {
	mounts := wazero.NewFSConfig().(sysfs.FSConfig)
	for _, m := range s.Mounts {
		root, err := os.OpenRoot(m.Host)
		if err != nil {
			return nil, fmt.Errorf("open mount %s: %w", m.Guest, err)
		}
		mounts = mounts.WithSysFSMount(&guestFS{root: root, guest: m.Guest, readOnly: m.ReadOnly}, m.Guest).(sysfs.FSConfig)
	}
	c := &clock{}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithArgs(s.Args...).
		WithStdin(strings.NewReader("")).
		WithStdout(pipeWriter(fdStdout)).WithStderr(pipeWriter(fdStderr)).
		WithFSConfig(mounts.(wazero.FSConfig)).
		WithWalltime(c.wall, clockStep).WithNanotime(c.nano, clockStep).WithNanosleep(c.sleep)
	for _, kv := range s.Env {
		config = config.WithEnv(kv[0], kv[1])
	}
	return config, nil
}

// pipeWriter hides that the stream is a file, whose times and inode wazero
// would show to the guest.
func pipeWriter(fd uintptr) io.Writer {
	return struct{ io.Writer }{os.NewFile(fd, "guest output")}
}

// outcome turns the end of a call into a report.
func outcome(err error) report {
	var exit *sys.ExitError
	switch {
	case err == nil:
		return report{State: runner.Exited}
	case errors.As(err, &exit):
		return report{State: runner.Exited, ExitCode: int(exit.ExitCode())}
	case errors.Is(err, errMemory):
		return report{State: runner.MemoryLimit}
	case errors.Is(err, errDisk):
		return report{State: runner.DiskLimit}
	}
	msg := firstLine(err.Error())
	if _, after, ok := strings.Cut(msg, "] failed: "); ok {
		msg = after // wazero puts the name of the function in front
	}
	return report{State: runner.Trapped, Reason: msg}
}
