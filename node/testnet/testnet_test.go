package testnet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/testnet"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// The test binary plays two programs: a peer, and a starter of a net.
const (
	peerVar    = "TESTNET_PEER"    // "ok", "fails", "deaf" (to SIGTERM), "never" (ready)
	starterVar = "TESTNET_STARTER" // "keep" or "hold"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(peerVar) != "":
		os.Exit(peer(os.Getenv(peerVar), os.Args[1:]))
	case os.Getenv(starterVar) != "":
		os.Exit(starter(os.Getenv(starterVar)))
	}
	os.Exit(m.Run())
}

// peer is a daemon that does nothing but answer.
func peer(mode string, args []string) int {
	fmt.Println("peer starts:", strings.Join(args, " "))
	if mode == "fails" {
		fmt.Println("no luck today")
		return 1
	}
	if err := runPeer(mode, args); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func runPeer(mode string, args []string) error {
	if len(args) < 3 || args[0] != "up" || args[1] != "--home" {
		return fmt.Errorf("unknown flags %v", args)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if mode == "deaf" {
		ctx = context.Background()
	}
	h, err := home.At(args[2])
	if err != nil {
		return err
	}
	lock, err := h.Lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	c, err := config.Load(h.Dir(), os.Getenv, nil)
	if err != nil {
		return err
	}
	s, err := api.New(api.Options{Backend: api.Backend{
		Ready: func() error {
			if mode == "never" {
				return errors.New("not today")
			}
			return nil
		},
		Status: func(context.Context) (api.Status, error) {
			return api.Status{PID: os.Getpid(), Network: c.Network.Name, Role: strings.Join(args[3:], " ")}, nil
		},
		Invite: func(context.Context, bool) (string, error) { return "lacuna1" + filepath.Base(h.Dir()), nil },
		Join: func(_ context.Context, targets []string) (api.Joined, error) {
			err := os.WriteFile(filepath.Join(h.Dir(), "joined"), []byte(strings.Join(targets, " ")), 0o600)
			return api.Joined{Joined: []api.JoinedPeer{{Peer: attest.Key{1}}}}, err
		},
		Config: c.Explain,
	}})
	if err != nil {
		return err
	}
	if err := h.PrepareSocket(); err != nil {
		return err
	}
	l, err := api.Listen(h.Socket())
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// starter brings a net up in the folder of its first argument and prints that it did.
func starter(mode string) int {
	n, err := testnet.Up(context.Background(), testnet.Options{Dir: os.Args[1], Binary: os.Args[0], Network: "test-s", Keep: mode == "keep",
		Peers: []testnet.PeerSpec{{Name: "a"}, {Name: "b"}}, Env: []string{peerVar + "=ok"}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if mode == "hold" {
		fmt.Println("up")
		_, _ = os.Stdin.Read(make([]byte, 1))
		return 0
	}
	if err := n.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up")
	return 0
}

func self(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		requiretest.Skip(t, "processes", "the checks read /proc")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func options(t *testing.T, mode string, peers ...testnet.PeerSpec) testnet.Options {
	t.Helper()
	return testnet.Options{Dir: filepath.Join(t.TempDir(), "net"), Binary: self(t), Network: "test-a", Peers: peers,
		Env: []string{peerVar + "=" + mode}, Timeout: 30 * time.Second}
}

func alive(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}

// watch returns a channel that is closed when the process behind the socket is gone: its connections end with it.
func watch(t *testing.T, socket string) <-chan struct{} {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1))
	}()
	return gone
}

func TestUpAndClose(t *testing.T) {
	t.Setenv("LACUNA_NETWORK_NAME", "main") // must not reach the peers
	o := options(t, "ok",
		testnet.PeerSpec{Name: "hub"},
		testnet.PeerSpec{Name: "seller", Provide: true, GPUs: `[{"model":"RTX 4090"}]`, Args: []string{"--x"}},
		testnet.PeerSpec{Name: "renter", Config: map[string]string{"rent.interval": "1s"}})
	n, err := testnet.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var pids []int
	for _, p := range n.Peers() {
		st, err := p.Client.Status(t.Context())
		if err != nil || st.PID != p.PID || st.Network != "test-a" {
			t.Errorf("peer %s: status %+v, %v, want pid %d on test-a", p.Name, st, err, p.PID)
		}
		if group, err := syscall.Getpgid(p.PID); err != nil || group != p.PID {
			t.Errorf("peer %s is in group %d, %v, want its own", p.Name, group, err)
		}
		pids = append(pids, p.PID)
		joined, err := os.ReadFile(filepath.Join(p.Home, "joined"))
		if want := "lacuna1hub"; p.Name != "hub" && string(joined) != want {
			t.Errorf("peer %s joined %q, %v, want %q", p.Name, joined, err, want)
		}
	}
	seller, err := n.Peer("seller")
	if err != nil {
		t.Fatal(err)
	}
	st, err := seller.Client.Status(t.Context())
	if want := "--provide --simulate-gpus " + filepath.Join(seller.Home, "gpus.json") + " --x"; err != nil || st.Role != want {
		t.Errorf("flags %q, %v, want %q", st.Role, err, want)
	}
	renter, err := n.Peer("renter")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := renter.Client.Config(t.Context())
	got := map[string]string{}
	for _, e := range entries {
		got[e.Key] = e.Value
	}
	if err != nil || got["rent.interval"] != "1s" || got["network.listen"] != "/ip4/127.0.0.1/tcp/0, /ip4/127.0.0.1/udp/0/quic-v1" {
		t.Errorf("config of renter: %v, %v", got, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder is left: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestKillStopStart(t *testing.T) {
	o := options(t, "ok", testnet.PeerSpec{Name: "a"}, testnet.PeerSpec{Name: "b"})
	n, err := testnet.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for name, end := range map[string]func(string) error{"a": n.Kill, "b": n.Stop} {
		before, err := n.Peer(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context(), name); err == nil {
			t.Errorf("%s is started twice", name)
		}
		if err := end(name); err != nil {
			t.Fatal(err)
		}
		if after, err := n.Peer(name); err != nil || after.PID != 0 || alive(before.PID) {
			t.Errorf("%s after its end: pid %d, alive %v, %v", name, after.PID, alive(before.PID), err)
		}
		if err := before.Client.Healthy(t.Context()); !errors.Is(err, api.ErrNotRunning) {
			t.Errorf("%s answers after its end: %v", name, err)
		}
		if err := end(name); err != nil {
			t.Errorf("%s ended twice: %v", name, err)
		}
		if err := n.Start(t.Context(), name); err != nil {
			t.Fatalf("start %s again: %v", name, err)
		}
		if again, err := n.Peer(name); err != nil || again.PID == 0 || again.PID == before.PID {
			t.Errorf("%s started again: pid %d, %v", name, again.PID, err)
		}
	}
	if err := n.Kill("c"); !errors.Is(err, testnet.ErrNoPeer) {
		t.Errorf("Kill of a stranger: %v, want ErrNoPeer", err)
	}
}

func TestADeafPeerIsKilled(t *testing.T) {
	o := options(t, "deaf", testnet.PeerSpec{Name: "a"})
	o.Grace = 200 * time.Millisecond
	n, err := testnet.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	pid := n.Peers()[0].PID
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the process is left")
	}
}

func TestAFailedUpLeavesNothing(t *testing.T) {
	tests := []struct {
		name, mode string
		change     func(*testnet.Options)
		want       []string
	}{
		{"peer dies", "fails", nil, []string{"peer a ended before it was ready", "no luck today"}},
		{"peer is never ready", "never", func(o *testnet.Options) { o.Timeout = 2 * time.Second }, []string{"is not ready", "not today"}},
		{"no such binary", "ok", func(o *testnet.Options) { o.Binary += "-gone" }, []string{"no such file"}},
		{"bad config", "ok", func(o *testnet.Options) { o.Peers[0].Config = map[string]string{"rent.x": "1"} }, []string{"rent.x: no such key"}},
		{"public network", "ok", func(o *testnet.Options) { o.Network = "main" }, []string{"begins with test"}},
		{"bad name", "ok", func(o *testnet.Options) { o.Peers[0].Name = "../a" }, []string{"want a name of letters"}},
		{"one name twice", "ok", func(o *testnet.Options) { o.Peers[1].Name = "a" }, []string{"that no other has"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t, tt.mode, testnet.PeerSpec{Name: "a"}, testnet.PeerSpec{Name: "b"})
			if tt.change != nil {
				tt.change(&o)
			}
			n, err := testnet.Up(t.Context(), o)
			if err == nil {
				_ = n.Close()
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
			if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("folder is left: %v", err)
			}
		})
	}
	o := options(t, "ok", testnet.PeerSpec{Name: "a"})
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(o.Dir, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := testnet.Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("Up in a folder with files: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("a file of someone else is gone: %v", err)
	}
}

// startNet runs the starter until it has said that its net is up.
func startNet(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(self(t), dir)
	cmd.Env = append(os.Environ(), starterVar+"="+mode)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	if n, err := out.Read(buf); err != nil || string(buf[:n]) != "up\n" {
		t.Fatalf("starter says %q, %v", buf[:n], err)
	}
	return cmd
}

func TestPeersDieWithAKilledStarter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net")
	cmd := startNet(t, "hold", dir)
	s, err := testnet.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var gone []<-chan struct{}
	for _, p := range s.Peers {
		if !p.Running {
			t.Errorf("peer %s is not told as running", p.Name)
		}
		h, err := home.At(filepath.Join(dir, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, watch(t, h.Socket()))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for _, g := range gone {
		select {
		case <-g:
		case <-time.After(10 * time.Second):
			t.Fatal("a peer outlives its starter")
		}
	}
	// What is left is a folder; Down clears it away.
	if err := testnet.Down(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder is left: %v", err)
	}
}

func TestAKeptNetIsFoundAndEnded(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "kept")
	if err := startNet(t, "keep", dir).Wait(); err != nil {
		t.Fatal(err)
	}
	list, err := testnet.List(root)
	if err != nil || len(list) != 1 || list[0].Network != "test-s" || !list[0].Kept || len(list[0].Peers) != 2 {
		t.Fatalf("List = %+v, %v", list, err)
	}
	var pids []int
	for _, p := range list[0].Peers {
		if !p.Running {
			t.Errorf("peer %s does not outlive its starter", p.Name)
		}
		h, err := home.At(filepath.Join(dir, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := api.Dial(h.Socket())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		pids = append(pids, p.PID)
	}
	if err := testnet.Down(dir); err != nil {
		t.Fatal(err)
	}
	after, err := testnet.List(root)
	if err != nil || len(after) != 0 {
		t.Errorf("List after Down = %+v, %v", after, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder is left: %v", err)
	}
	for _, pid := range pids {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %d is left", pid)
		}
	}
	if err := testnet.Down(dir); !errors.Is(err, testnet.ErrNoNet) {
		t.Errorf("second Down: %v, want ErrNoNet", err)
	}
	if list, err := testnet.List(filepath.Join(root, "none")); list != nil || err != nil {
		t.Errorf("List of no folder = %v, %v", list, err)
	}
}

func TestDownLeavesForeignProcessesAlone(t *testing.T) {
	_ = self(t) // skips where there is no /proc
	foreign := exec.Command("sleep", "1000")
	if err := foreign.Start(); err != nil {
		requiretest.Skip(t, "processes", err.Error())
	}
	ended := make(chan error, 1)
	go func() { ended <- foreign.Wait() }()
	defer func() {
		_ = foreign.Process.Kill()
		<-ended
	}()
	dir := t.TempDir()
	state := fmt.Sprintf(`{"version":1,"network":"test-x","peers":[{"name":"a","pid":%d,"started":"another boot 1"},{"name":"b","pid":%d,"started":""}]}`,
		foreign.Process.Pid, foreign.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, "testnet.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := testnet.Read(dir)
	if err != nil || s.Peers[0].Running || s.Peers[1].Running {
		t.Fatalf("Read = %+v, %v; a reused pid counts as the peer", s, err)
	}
	if err := testnet.Down(dir); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the foreign process was ended: %v", err)
	}
}

func TestDownLeavesAHomeThatIsHeld(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "testnet.json"), []byte(`{"version":1,"network":"test-x","peers":[{"name":"a","pid":0,"started":""}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := home.At(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	lock, err := h.Lock() // as a peer that somebody started again by hand
	if err != nil {
		t.Fatal(err)
	}
	if err := testnet.Down(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("Down = %v, want an error that names process %d", err, os.Getpid())
	}
	if _, err := os.Stat(h.Dir()); err != nil {
		t.Errorf("the home is gone: %v", err)
	}
	if err := errors.Join(lock.Close(), testnet.Down(dir)); err != nil {
		t.Errorf("Down once it is free: %v", err)
	}
}

func TestReadRefusesNamesThatLeadOut(t *testing.T) {
	root := t.TempDir()
	dir, other := filepath.Join(root, "net"), filepath.Join(root, "other")
	for _, d := range []string{dir, other} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "testnet.json"), []byte(`{"version":1,"peers":[{"name":"../other"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Down(dir); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the other folder is gone: %v", err)
	}
}
