package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p"
)

// untilStatus asks a peer for its status until it is as f wants.
func untilStatus(t *testing.T, p *nodetest.Peer, what string, f func(api.Status) bool) api.Status {
	t.Helper()
	ctx := within(t, time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := p.Client.Status(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if f(st) {
			return st
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute; peers %v", what, st.Peers)
		}
	}
}

func connectedTo(keys ...attest.Key) func(api.Status) bool {
	return func(st api.Status) bool {
		for _, k := range keys {
			if !slices.ContainsFunc(st.Peers, func(p api.PeerView) bool { return p.Peer == k }) {
				return false
			}
		}
		return true
	}
}

func TestPeersThatKnowOneLightPeerMeet(t *testing.T) {
	t.Parallel()
	first := nodetest.Start(t, nil)
	const gpus = `[{"model":"RTX 4090","price":"0.21 USD/h"}]`
	others := []*nodetest.Peer{nodetest.StartProvider(t, gpus, nil), nodetest.StartProvider(t, gpus, nil), nodetest.StartProvider(t, gpus, nil)}
	nodetest.Join(t, first, others...)
	for i, p := range others {
		var rest []attest.Key
		for j, o := range others {
			if i != j {
				rest = append(rest, o.Node.Key())
			}
		}
		st := untilStatus(t, p, "peers that were told of each other", connectedTo(rest...))
		if st.Reachability.Verdict != "direct" || len(st.Listen) != 2 || st.Twin != nil || st.Relaying != nil {
			t.Errorf("status is %+v", st)
		}
	}
	first.Stop()
	late := nodetest.Start(t, nil)
	nodetest.Join(t, others[0], late)
	untilStatus(t, late, "a late peer", connectedTo(others[0].Node.Key(), others[1].Node.Key(), others[2].Node.Key()))
}

func TestAnOldInviteLeadsInWhileOneOfItsPeersLives(t *testing.T) {
	t.Parallel()
	var five []*nodetest.Peer
	for range 5 {
		five = append(five, nodetest.Start(t, nil))
	}
	nodetest.Join(t, five[0], five[1:]...)
	all := func(st api.Status) bool { return len(st.Peers) == 4 }
	untilStatus(t, five[0], "the first", all)
	line, err := five[0].Client.Invite(within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if i, err := p2p.ParseInvite(line); err != nil || len(i.Peers) != 5 {
		t.Fatalf("the invite names %d peers, %v, want 5", len(i.Peers), err)
	}
	for _, p := range five[:4] {
		p.Stop()
	}
	late := nodetest.Start(t, nil)
	joined, err := late.Client.Join(within(t, time.Minute), []string{line})
	if err != nil {
		t.Fatal(err)
	}
	if len(joined.Joined) != 1 || joined.Joined[0].Peer != five[4].Node.Key() {
		t.Errorf("joined %v, want the one peer that lives", joined.Joined)
	}
}

func TestAPeerFindsItsNetworkAgain(t *testing.T) {
	t.Parallel()
	a, b := nodetest.Start(t, nil), nodetest.Start(t, nil)
	nodetest.Join(t, a, b)
	untilStatus(t, a, "the first", connectedTo(b.Node.Key()))
	b.Restart()
	untilStatus(t, b, "the other, after a restart", connectedTo(a.Node.Key()))
	h, err := home.At(b.Home)
	if err != nil {
		t.Fatal(err)
	}
	known, err := h.LoadPeers("test-node")
	if err != nil || len(known) != 1 || known[0].DialedAt.IsZero() {
		t.Errorf("known peers are %v, %v, want the first, which was dialled", known, err)
	}
}

func TestJoinRefuses(t *testing.T) {
	t.Parallel()
	p := nodetest.Start(t, nil)
	other := p2p.Invite{Network: "test-other", Peers: []p2p.InvitePeer{{Key: attest.Key{1}, Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}}}
	private := other
	private.Network, private.NetworkKey = "test-node", make([]byte, 32)
	for _, tt := range []struct{ name, target, code string }{
		{"another network", other.String(), "other_network"},
		{"a private network", private.String(), "no_network_key"},
		{"a line that is cut off", other.String()[:40], "bad_invite"},
		{"an address without a peer", "/ip4/127.0.0.1/tcp/1", "bad_target"},
		{"itself", p.Node.Addrs()[0] + "/p2p/" + p.Node.Key().String(), "own_invite"},
	} {
		_, err := p.Client.Join(within(t, time.Minute), []string{tt.target})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != tt.code {
			t.Errorf("%s: %v, want code %s", tt.name, err, tt.code)
		}
	}
}

// prepare sets up a home and returns what it then says, or the error.
func prepare(t *testing.T, dir string, targets ...string) (config.Config, error) {
	t.Helper()
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	load := func() config.Config {
		c, err := config.Load(dir, func(string) string { return "" }, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, err = node.Prepare(h, load(), targets)
	return load(), err
}

func TestPrepare(t *testing.T) {
	invite := func(network string, key []byte) string {
		return p2p.Invite{Network: network, NetworkKey: key, Peers: []p2p.InvitePeer{{Key: attest.Key{1}, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}}}.String()
	}
	key := []byte(strings.Repeat("k", 32))
	dir := filepath.Join(t.TempDir(), "home")
	c, err := prepare(t, dir, invite("our-lab", key))
	if err != nil {
		t.Fatal(err)
	}
	if c.Network.Name != "our-lab" || !cmp.Equal(c.Network.Bootstrap, []string{invite("our-lab", nil)}) || c.Network.KeyFile != home.DefaultNetworkKey {
		t.Errorf("the config says %q, %q, %q; want the network, the invite without its key, and the file of the key", c.Network.Name, c.Network.Bootstrap, c.Network.KeyFile)
	}
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.NetworkKey(c.Network.KeyFile); err != nil || string(got) != string(key) {
		t.Errorf("the key is %q, %v", got, err)
	}
	if c, err = prepare(t, dir, invite("our-lab", key), "/ip4/192.0.2.9/tcp/9/p2p/"+(attest.Key{2}).String()); err != nil || len(c.Network.Bootstrap) != 2 {
		t.Errorf("a second time: %q, %v, want one more peer", c.Network.Bootstrap, err)
	}
	before, err := os.ReadFile(h.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, target string
		want         error
	}{
		{"another network", invite("their-lab", nil), node.ErrOtherNetwork},
		{"another key", invite("our-lab", []byte(strings.Repeat("x", 32))), home.ErrNetworkKeyExists},
		{"no invite", "lacuna1x", p2p.ErrInvite},
		{"no peer", "/ip4/192.0.2.1/tcp/1", node.ErrTarget},
	} {
		if _, err := prepare(t, dir, tt.target); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if after, err := os.ReadFile(h.ConfigFile()); err != nil || string(after) != string(before) {
		t.Errorf("a refused join changed the config: %v", err)
	}
	if _, err := prepare(t, filepath.Join(t.TempDir(), "home"), invite("a", nil), invite("b", nil)); !errors.Is(err, node.ErrOtherNetwork) {
		t.Errorf("invites of two networks: %v", err)
	}
	used := t.TempDir()
	if err := os.Mkdir(filepath.Join(used, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(t, used, invite("our-lab", nil)); !errors.Is(err, node.ErrOtherNetwork) {
		t.Errorf("a home with records of the main network: %v", err)
	}
}

// withKnown returns a home with that config file, which has been on its network if known is true.
func withKnown(t *testing.T, file, network string, known bool) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	if known {
		if err := h.SavePeers(network, []home.KnownPeer{{Peer: attest.Key{3}, Addrs: []string{"/ip4/192.0.2.3/tcp/1"}}}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPrepareTellsNetworksOfOneNameApart(t *testing.T) {
	invite := func(key string) string {
		i := p2p.Invite{Network: "our-lab", Peers: []p2p.InvitePeer{{Key: attest.Key{1}, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}}}
		if key != "" {
			i.NetworkKey = []byte(strings.Repeat(key, 32))
		}
		return i.String()
	}
	const open, private, key = "network:\n  name: our-lab\n", "network:\n  name: our-lab\n  key_file: my.key\n", "/my.key"
	bootstrap := "  bootstrap: [" + invite("") + "]\n"
	for _, tt := range []struct {
		name, file string
		known      bool
		targets    []string
		want       error // nil = it is set up
	}{
		{"private, where peers are known without a key", open, true, []string{invite("k")}, node.ErrOtherNetwork},
		{"private, where peers are named without a key", open + bootstrap, false, []string{invite("k")}, node.ErrOtherNetwork},
		{"private, where only the name is set", open, false, []string{invite("k")}, nil},
		{"without a key, where peers are known with one", private, true, []string{invite("")}, node.ErrOtherNetwork},
		{"without a key, which the owner has set", private, false, []string{invite("")}, nil},
		{"the same key once more", private, true, []string{invite("k")}, nil},
		{"another key", private, true, []string{invite("x")}, home.ErrNetworkKeyExists},
		{"two keys", "", false, []string{invite("k"), invite("x")}, node.ErrOtherNetwork},
		{"one key twice, and none", "", false, []string{invite("k"), invite(""), invite("k")}, nil},
	} {
		dir := withKnown(t, tt.file, "our-lab", tt.known)
		if tt.file == private {
			if err := os.WriteFile(dir+key, []byte(strings.Repeat("6b", 32)+"\n"), 0o600); err != nil { // k
				t.Fatal(err)
			}
		}
		if _, err := prepare(t, dir, tt.targets...); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if after, err := os.ReadFile(filepath.Join(dir, config.FileName)); err != nil || tt.want != nil && string(after) != tt.file {
			t.Errorf("%s: a refused join changed the config: %v", tt.name, err)
		}
	}
}

func TestPrepareIsDoneAsAWhole(t *testing.T) {
	private := p2p.Invite{Network: "our-lab", NetworkKey: make([]byte, 32), Peers: []p2p.InvitePeer{{Key: attest.Key{1}, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}}}.String()
	dir := withKnown(t, "network: {name: our-lab}\n", "", false)
	if _, err := prepare(t, dir, private); !errors.Is(err, config.ErrByHand) {
		t.Errorf("a config that only a person can change: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	id := (attest.Key{2}).String()
	absent := filepath.Join(t.TempDir(), "home")
	for _, s := range []string{"/p2p/" + id, "/p2p/" + id + "/p2p-circuit/p2p/" + id, "/ip4/192.0.2.1/tcp/1/p2p-circuit/p2p/" + id, "/ip4/192.0.2.1/tcp/1/p2p/x/p2p-circuit/p2p/" + id} {
		if _, err := prepare(t, absent, s); !errors.Is(err, node.ErrTarget) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a home was left behind: %v", err)
	}
	relayed := "/ip4/192.0.2.1/udp/1/quic-v1/p2p/" + id + "/p2p-circuit/p2p/" + id
	if c, err := prepare(t, absent, relayed); err != nil || !slices.Equal(c.Network.Bootstrap, []string{relayed}) {
		t.Errorf("a peer behind a relay: %q, %v", c.Network.Bootstrap, err)
	}
}

func TestAJoinThatFailsSaysWhyInALineForEachPeer(t *testing.T) {
	t.Parallel()
	p, other := nodetest.Start(t, nil), nodetest.Start(t, nil)
	_, err := p.Client.Join(within(t, time.Minute), []string{"/ip4/127.0.0.1/tcp/1/p2p/" + (attest.Key{1}).String(), other.Node.Addrs()[0] + "/p2p/" + (attest.Key{2}).String()})
	if err == nil {
		t.Fatal("joined through nobody")
	}
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines[1:])
	want := []string{(attest.Key{1}).Short() + ": refused: /ip4/127.0.0.1/tcp/1", (attest.Key{2}).Short() + ": another peer answered: " + other.Node.Addrs()[0]}
	slices.Sort(want)
	if !cmp.Equal(lines[1:], want) {
		t.Errorf("it says %q, want %q", lines, want)
	}
}

// TestCountersOfAStatus holds the names by which a status finds what a hub relays; where one is wrong it would say 0.
func TestCountersOfAStatus(t *testing.T) {
	t.Parallel()
	p := nodetest.Start(t, nil)
	text, err := p.Client.Metrics(within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lacuna_p2p_relay_circuits", "lacuna_p2p_relay_reservations", "lacuna_p2p_relay_bytes_total"} {
		if !strings.Contains(string(text), "\n"+name+" ") {
			t.Errorf("there is no counter %s", name)
		}
	}
}
