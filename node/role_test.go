package node_test

import (
	"testing"

	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

func TestRole(t *testing.T) {
	for _, tt := range []struct {
		name    string
		values  map[string]string
		profile p2p.Profile
		role    string
	}{
		{"sells nothing", map[string]string{"network.name": "lab"}, p2p.Provider, "light"},
		{"sells", map[string]string{"network.name": "lab", "provide.enabled": "true"}, p2p.Provider, "provider"},
		{"is to be light", map[string]string{"network.name": "lab", "network.profile": "light"}, p2p.Light, "light"},
		{"is to be a hub", map[string]string{"network.name": "lab", "network.profile": "hub"}, p2p.Hub, "hub"},
		{"sells nothing on a test network", map[string]string{"network.name": "test-role"}, p2p.Light, "light"},
		{"sells on a test network", map[string]string{"network.name": "test-role", "provide.enabled": "true"}, p2p.Testnet, "testnet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			h, err := home.At(dir)
			if err != nil {
				t.Fatal(err)
			}
			tt.values["network.listen"], tt.values["network.mdns"], tt.values["store.min_free"] = "/ip4/127.0.0.1/tcp/0", "off", "1MiB"
			c, err := config.Load(dir, func(string) string { return "" }, tt.values)
			if err != nil {
				t.Fatal(err)
			}
			n, err := node.New(node.Options{Home: h, Config: c})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			}()
			if profile, role := n.Role(); profile != tt.profile || role != tt.role {
				t.Errorf("profile %s, role %s, want %s and %s", profile, role, tt.profile, tt.role)
			}
		})
	}
}
