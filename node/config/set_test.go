package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/node/config"
)

func TestEdit(t *testing.T) {
	tests := []struct {
		name   string
		in     string
		values map[string]string
		want   string // "" = an error
		errs   string // part of it
	}{
		{"another value keeps the comments", "# mine\nnetwork: # all about it\n  # the name\n  name: main   # old\n\nprovide:\n  enabled: true\n",
			map[string]string{"network.name": "test-a"}, "# mine\nnetwork: # all about it\n  # the name\n  name: test-a\n\nprovide:\n  enabled: true\n", ""},
		{"a key in a comment comes to life in its place", "network:\n  # which network to join\n  # name: main\n  # where\n  # listen: auto\n",
			map[string]string{"network.name": "test-a"}, "network:\n  # which network to join\n  name: test-a\n  # where\n  # listen: auto\n", ""},
		{"a new key goes below its section", "network:\n    name: main\n",
			map[string]string{"network.profile": "hub"}, "network:\n    profile: hub\n    name: main\n", ""},
		{"a new section goes to the end", "network:\n  name: main\n",
			map[string]string{"provide.enabled": "true"}, "network:\n  name: main\n\nprovide:\n  enabled: true\n", ""},
		{"into an empty file", "", map[string]string{"provide.enabled": "true"}, "provide:\n  enabled: true\n", ""},
		{"without a last line end", "network:\n  name: main", map[string]string{"network.profile": "hub", "network.name": "test-a"},
			"network:\n  profile: hub\n  name: test-a\n", ""},
		{"a list in lines", "network:\n  bootstrap:\n    - /ip4/192.0.2.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN\n    # one more\n    - /ip4/192.0.2.2/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN\n  # after\n  name: main\n",
			map[string]string{"network.bootstrap": ""}, "network:\n  bootstrap: []\n  # after\n  name: main\n", ""},
		{"a list with dashes not further in", "network:\n  announce:\n  - /ip4/192.0.2.1/tcp/1\n  name: main\n",
			map[string]string{"network.announce": "/ip4/192.0.2.2/tcp/1, /ip4/192.0.2.3/tcp/1"}, "network:\n  announce: [/ip4/192.0.2.2/tcp/1, /ip4/192.0.2.3/tcp/1]\n  name: main\n", ""},
		{"what needs quotes gets them", "network:\n  name: main\n", map[string]string{"network.key_file": "a: b"}, "network:\n  key_file: \"a: b\"\n  name: main\n", ""},
		{"the beginning of another key is not it", "network:\n  relay_bulk_data: 1GB\n", map[string]string{"network.relay_bulk": "true"},
			"network:\n  relay_bulk: true\n  relay_bulk_data: 1GB\n", ""},
		{"a section on one line", "network: {name: main}\n", map[string]string{"network.name": "test-a"}, "", "in an editor"},
		{"an unknown key", "", map[string]string{"network.nam": "x"}, "", "did you mean network.name?"},
		{"a field without its section", "", map[string]string{"listen": "x"}, "", "did you mean network.listen?"},
		{"a bad value", "", map[string]string{"network.name": "Main Net"}, "", "want 1 to 32"},
		{"a certificate, and its key later", "network:\n  name: main\n", map[string]string{"network.tls_cert": "c.pem"}, "network:\n  tls_cert: c.pem\n  name: main\n", ""},
		{"an address that nobody can use", "network:\n  name: main\n", map[string]string{"network.announce": "/ip4/127.0.0.1/tcp/1"}, "", "only to this machine itself"},
		{"an address for test networks", "network:\n  name: test-a\n", map[string]string{"network.announce": "/ip4/127.0.0.1/tcp/1"}, "network:\n  announce: [/ip4/127.0.0.1/tcp/1]\n  name: test-a\n", ""},
		{"away from a test network with such an address", "network:\n  name: test-a\n  announce: [/ip4/127.0.0.1/tcp/1]\n", map[string]string{"network.name": "main"}, "", "only to this machine itself"},
		{"a file that was wrong before", "network:\n  nam: x\n", map[string]string{"network.name": "main"}, "", "did you mean"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := config.Edit("f.yaml", []byte(tt.in), tt.values)
			if tt.errs != "" {
				if err == nil || !strings.Contains(err.Error(), tt.errs) {
					t.Errorf("Edit = %q, %v, want an error with %q", got, err, tt.errs)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("the file differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEditEveryKeyOfTheDefaultFile(t *testing.T) {
	data, err := config.Render(nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(data), "\n")
	for _, e := range config.Default("main").Explain() {
		got, err := config.Edit("f.yaml", data, map[string]string{e.Key: e.Value})
		if err != nil {
			t.Errorf("%s: %v", e.Key, err)
			continue
		}
		if n := strings.Count(string(got), "\n"); n != lines {
			t.Errorf("%s: the file has %d lines, want %d as before", e.Key, n, lines)
		}
	}
}

func TestSet(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := config.Set(path, map[string]string{"network.name": "test-a"}); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	if err := errors.Join(os.Chmod(path, 0o640), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if err := config.Set(link, map[string]string{"network.name": "test-b"}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v, want 0640 as before", info.Mode(), err)
	}
	before, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(before), "\n  name: test-b\n") {
		t.Fatalf("the file holds %v %q", err, before)
	}
	if err := config.Set(path, map[string]string{"network.name": "B A D"}); err == nil {
		t.Error("a bad name is set")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("a refused change touched the file: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add("network:\n  name: main\n", "network.name", "test-a")
	f.Add("network:\n  listen:\n  - auto\n# x\nprovide: {}\n", "network.listen", "/ip4/0.0.0.0/tcp/1")
	f.Add("", "provide.enabled", "true")
	f.Fuzz(func(t *testing.T, in, key, value string) {
		got, err := config.Edit("f.yaml", []byte(in), map[string]string{key: value})
		if err != nil {
			return
		}
		if err := config.Check("f.yaml", got); err != nil {
			t.Errorf("Edit(%q, %s=%q) = %q, which is wrong: %v", in, key, value, got, err)
		}
	})
}
