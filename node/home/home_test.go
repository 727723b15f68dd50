package home_test

import (
	"bufio"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/home"
)

// childVar makes the test binary a process that holds the home it names until its stdin ends.
const childVar = "HOME_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVar); dir != "" {
		h, err := home.At(dir)
		if err == nil {
			_, err = h.Lock()
		}
		fmt.Println(err)
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func at(t *testing.T, dir string) home.Home {
	t.Helper()
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fresh(t *testing.T) home.Home {
	t.Helper()
	h := at(t, filepath.Join(t.TempDir(), "home"))
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestResolve(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("the table is for XDG systems")
	}
	tests := []struct {
		name, flag string
		env        map[string]string
		want       string // "" = an error
	}{
		{"flag", "/a/b", map[string]string{"LACUNA_HOME": "/c", "HOME": "/h"}, "/a/b"},
		{"variable", "", map[string]string{"LACUNA_HOME": "/c", "HOME": "/h"}, "/c"},
		{"xdg", "", map[string]string{"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/lacuna"},
		{"relative xdg does not count", "", map[string]string{"XDG_DATA_HOME": "x", "HOME": "/h"}, "/h/.local/share/lacuna"},
		{"home", "", map[string]string{"HOME": "/h"}, "/h/.local/share/lacuna"},
		{"nothing", "", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := home.Resolve(tt.flag, func(n string) string { return tt.env[n] })
			if h.Dir() != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("Resolve = %q, %v, want %q", h.Dir(), err, tt.want)
			}
		})
	}
}

func TestCreateShutsOthersOut(t *testing.T) {
	h := fresh(t)
	if err := os.Chmod(h.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(h.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v, want 0700", info.Mode(), err)
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	h := fresh(t)
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, err = h.Lock()
	var inUse *home.InUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("second lock: %v, want InUseError", err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("refused after %v, want within 3 s", took)
	}
	if inUse.PID != os.Getpid() || inUse.Dir != h.Dir() {
		t.Errorf("in use by %d in %s, want %d in %s", inUse.PID, inUse.Dir, os.Getpid(), h.Dir())
	}
	for _, want := range []string{"in use", h.Dir(), fmt.Sprint(os.Getpid()), "lacuna down", "--home"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	again, err := h.Lock()
	if err != nil {
		t.Fatalf("lock after Close: %v", err)
	}
	_ = again.Close()
}

func TestRunning(t *testing.T) {
	h := fresh(t)
	if pid, held := h.Running(); held {
		t.Errorf("an empty home is held by %d", pid)
	}
	if entries, err := os.ReadDir(h.Dir()); err != nil || len(entries) > 0 {
		t.Errorf("Running made %v, %v", entries, err)
	}
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if pid, held := h.Running(); !held || pid != os.Getpid() {
		t.Errorf("Running = %d, %v, want %d and true", pid, held, os.Getpid())
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, held := h.Running(); held {
		t.Error("held after Close")
	}
	done := make(chan struct{})
	looked := make(chan struct{})
	go func() { // somebody who looks all the time keeps no daemon out
		defer close(looked)
		for {
			select {
			case <-done:
				return
			default:
				h.Running()
				runtime.Gosched()
			}
		}
	}()
	for range 50 {
		lock, err := h.Lock()
		if err != nil {
			t.Errorf("lock while somebody looks: %v", err)
			break
		}
		_ = lock.Close()
	}
	close(done)
	<-looked
}

func TestAKilledDaemonLeavesNoLock(t *testing.T) {
	h := fresh(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+h.Dir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "<nil>\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	var inUse *home.InUseError
	if _, err := h.Lock(); !errors.As(err, &inUse) || inUse.PID != cmd.Process.Pid {
		t.Errorf("lock while the child has it: %v, want in use by %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	lock, err := h.Lock()
	if err != nil {
		t.Fatalf("lock after kill: %v", err)
	}
	_ = lock.Close()
}

func TestIdentity(t *testing.T) {
	h := fresh(t)
	if _, err := h.Identity(""); !errors.Is(err, home.ErrNoIdentity) {
		t.Errorf("Identity of an empty home: %v, want ErrNoIdentity", err)
	}
	key, created, err := h.EnsureIdentity("")
	if err != nil || !created {
		t.Fatalf("EnsureIdentity = %v, %v", created, err)
	}
	again, created, err := h.EnsureIdentity("")
	if err != nil || created || !again.Equal(key) {
		t.Errorf("second EnsureIdentity: created %v, equal %v, %v", created, again.Equal(key), err)
	}
	p := h.IdentityFile("")
	if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if err := os.Chmod(p, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err = h.Identity("")
	for _, want := range []string{p, "0640", "0600"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("readable key: %v, want %q in it", err, want)
		}
	}
}

func TestExportAndImport(t *testing.T) {
	from, to := fresh(t), at(t, filepath.Join(t.TempDir(), "new"))
	key, _, err := from.EnsureIdentity("")
	if err != nil {
		t.Fatal(err)
	}
	pem, err := from.Export("")
	if err != nil {
		t.Fatal(err)
	}
	public, err := to.Import("", pem, false)
	if err != nil || public != attest.Key(key.Public().(ed25519.PublicKey)) {
		t.Fatalf("Import = %v, %v", public, err)
	}
	if imported, err := to.Imported(); !imported || err != nil {
		t.Errorf("Imported = %v, %v, want true", imported, err)
	}
	if got, err := to.Identity(""); err != nil || !got.Equal(key) {
		t.Errorf("imported identity differs: %v", err)
	}
	if err := to.ClearImported(); err != nil {
		t.Fatal(err)
	}
	if imported, err := to.Imported(); imported || err != nil {
		t.Errorf("Imported after ClearImported = %v, %v", imported, err)
	}
	if _, err := to.Import("", pem, false); err != nil {
		t.Errorf("the same key again: %v", err)
	}
	if imported, _ := to.Imported(); imported {
		t.Error("the same key again counts as an import")
	}

	other := append([]byte("\x08\x01\x12\x40"), ed25519.NewKeyFromSeed(make([]byte, 32))...)
	if _, err := to.Import("", other, false); !errors.Is(err, home.ErrIdentityExists) {
		t.Errorf("import over a key: %v, want ErrIdentityExists", err)
	}
	if got, err := to.Identity(""); err != nil || !got.Equal(key) {
		t.Errorf("a refused import changed the key: %v", err)
	}
	if _, err := to.Import("", other, true); err != nil {
		t.Fatal(err)
	}
	if got, err := to.Identity("identity.key.old"); err != nil || !got.Equal(key) {
		t.Errorf("the replaced key is not kept: %v", err)
	}
	lock, err := to.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	var inUse *home.InUseError
	if _, err := to.Import("", pem, true); !errors.As(err, &inUse) {
		t.Errorf("import under a running daemon: %v, want InUseError", err)
	}
}

func TestParseKey(t *testing.T) {
	key := ed25519.NewKeyFromSeed([]byte("0123456789abcdef0123456789abcdef"))
	pem, err := home.MarshalKey(key)
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte("\x08\x01\x12\x40"), key...)
	wrong := append([]byte("\x08\x01\x12\x40"), key...)
	wrong[40]++
	tests := []struct {
		name string
		in   []byte
		ok   bool
	}{
		{"pem", pem, true},
		{"libp2p", raw, true},
		{"libp2p in base64", []byte(base64.StdEncoding.EncodeToString(raw) + "\n"), true},
		{"public half of another key", wrong, false},
		{"cut off", raw[:60], false},
		{"two pem blocks", append(append([]byte{}, pem...), pem...), false},
		{"another pem block", []byte(strings.ReplaceAll(string(pem), "PRIVATE", "PUBLIC")), false},
		{"text", []byte("hello"), false},
		{"nothing", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := home.ParseKey(tt.in)
			if tt.ok && (err != nil || !got.Equal(key)) || !tt.ok && !errors.Is(err, home.ErrKeyFormat) {
				t.Errorf("ParseKey = %v, %v, want ok %v", got != nil, err, tt.ok)
			}
		})
	}
}

func TestSocketPathIsShortEnough(t *testing.T) {
	short := at(t, "/tmp/x")
	if short.Socket() != "/tmp/x/api.sock" {
		t.Errorf("Socket = %s, want it in the home", short.Socket())
	}
	t.Setenv("TMPDIR", t.TempDir())
	a, b := at(t, "/tmp/"+strings.Repeat("x", 120)+"/a"), at(t, "/tmp/"+strings.Repeat("x", 120)+"/b")
	if a.Socket() == b.Socket() {
		t.Error("two homes share a socket")
	}
	if len(a.Socket()) > 103 {
		t.Skipf("the temporary folder is too long for sockets: %s", os.TempDir())
	}
	if err := a.PrepareSocket(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(a.Socket())
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the fallback folder: %v, %v, want 0700", info.Mode(), err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := a.PrepareSocket(); err == nil {
		t.Error("a folder open to others is taken")
	}
	a.RemoveSocket()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("fallback folder is left behind: %v", err)
	}
}

func TestSocketPathWhereTheTemporaryFolderIsDeep(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no /tmp")
	}
	t.Setenv("TMPDIR", "/tmp/"+strings.Repeat("t", 120))
	h := at(t, "/tmp/"+strings.Repeat("x", 120))
	if p := h.Socket(); len(p) > home.MaxSocket || !strings.HasPrefix(p, "/tmp/lacuna-") {
		t.Errorf("Socket = %s, want a short path below /tmp", p)
	}
}

func TestKnownPeers(t *testing.T) {
	h := fresh(t)
	if got, err := h.LoadPeers("main"); got != nil || err != nil {
		t.Errorf("LoadPeers without a file = %v, %v", got, err)
	}
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	var many []home.KnownPeer
	for i := range home.MaxPeers + 10 {
		many = append(many, home.KnownPeer{Peer: attest.Key{1, byte(i), byte(i >> 8)}, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}, SeenAt: day(1).Add(time.Duration(i) * time.Minute)})
	}
	few := []home.KnownPeer{{Peer: attest.Key{2}, Addrs: []string{"/ip4/192.0.2.2/tcp/1"}, SeenAt: day(2)}}
	if err := errors.Join(h.SavePeers("main", many), h.SavePeers("test-a", few)); err != nil {
		t.Fatal(err)
	}
	got, err := h.LoadPeers("main")
	if err != nil || len(got) != home.MaxPeers || got[0].Peer != many[len(many)-1].Peer {
		t.Errorf("kept %d peers, %v; want the last %d, newest first", len(got), err, home.MaxPeers)
	}
	if got, err := h.LoadPeers("test-a"); err != nil || !cmp.Equal(few, got) {
		t.Errorf("peers of the other network: %v, %v", got, err)
	}
	if err := os.WriteFile(h.PeersFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.LoadPeers("main"); err == nil {
		t.Error("a broken file is read without an error")
	}
	if err := h.SavePeers("main", few); err != nil {
		t.Errorf("a broken file cannot be replaced: %v", err)
	}
	if entries, err := os.ReadDir(h.Dir()); err != nil || len(entries) != 1 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

func FuzzParseKey(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	pem, err := home.MarshalKey(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pem)
	f.Add(append([]byte("\x08\x01\x12\x40"), key...))
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := home.ParseKey(data)
		if err != nil {
			return
		}
		again, err := home.MarshalKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := home.ParseKey(again); err != nil || !back.Equal(key) {
			t.Errorf("key does not survive: %v", err)
		}
	})
}
