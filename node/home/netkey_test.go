package home_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/p2p"
)

func TestNetworkKeyIsMadeKeptAndRead(t *testing.T) {
	h := fresh(t)
	made, err := h.MakeNetworkKey(home.DefaultNetworkKey)
	if err != nil || len(made) != p2p.NetworkKeySize {
		t.Fatalf("MakeNetworkKey = %d bytes, %v", len(made), err)
	}
	read, err := h.NetworkKey(home.DefaultNetworkKey)
	if err != nil || !bytes.Equal(read, made) {
		t.Fatalf("NetworkKey = %x, %v, want %x", read, err, made)
	}
	path := h.File(home.DefaultNetworkKey)
	data, err := os.ReadFile(path)
	if err != nil || len(data) != 65 || strings.Count(string(data), "\n") != 1 {
		t.Errorf("file holds %q, %v, want one line of 64 digits", data, err)
	}
	if info, err := os.Stat(path); err != nil || (runtime.GOOS != "windows" && info.Mode().Perm() != 0o600) {
		t.Errorf("file has mode %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := h.MakeNetworkKey(home.DefaultNetworkKey); !errors.Is(err, home.ErrNetworkKeyExists) {
		t.Errorf("second MakeNetworkKey = %v, want ErrNetworkKeyExists", err)
	}
	if err := h.KeepNetworkKey(home.DefaultNetworkKey, made); err != nil {
		t.Errorf("KeepNetworkKey of the same key = %v", err)
	}
	if err := h.KeepNetworkKey(home.DefaultNetworkKey, bytes.Repeat([]byte{7}, 32)); !errors.Is(err, home.ErrNetworkKeyExists) {
		t.Errorf("KeepNetworkKey of another key = %v, want ErrNetworkKeyExists", err)
	}
	if err := h.KeepNetworkKey("short.key", []byte{7}); err == nil {
		t.Error("a key of one byte was kept")
	}
	if again, err := h.NetworkKey(home.DefaultNetworkKey); err != nil || !bytes.Equal(again, made) {
		t.Errorf("key is %x, %v after all that, want %x", again, err, made)
	}
}

func TestNetworkKeyIsRefused(t *testing.T) {
	digits := strings.Repeat("0f", 32)
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
		want          string // "" = read
	}{
		{"as written", digits + "\n", 0o600, ""},
		{"no line end, upper case", strings.ToUpper(digits), 0o400, ""},
		{"readable by the group", digits + "\n", 0o640, "chmod 600"},
		{"short", digits[2:], 0o600, "64 hexadecimal digits"},
		{"two lines", digits + "\n" + digits + "\n", 0o600, "64 hexadecimal digits"},
		{"other letters", "x" + digits[1:], 0o600, "64 hexadecimal digits"},
		{"empty", "", 0o600, "64 hexadecimal digits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fresh(t)
			path := filepath.Join(h.Dir(), "k")
			if err := os.WriteFile(path, []byte(tt.content), tt.mode); err != nil {
				t.Fatal(err)
			}
			_, err := h.NetworkKey(path)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NetworkKey = %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := fresh(t).NetworkKey("none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("NetworkKey of no file = %v, want os.ErrNotExist", err)
	}
}

func FuzzParseNetworkKey(f *testing.F) {
	f.Add([]byte(strings.Repeat("0f", 32) + "\n"))
	f.Add([]byte("0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := home.ParseNetworkKey(data)
		if (err == nil) != (len(key) == p2p.NetworkKeySize) || err != nil && !errors.Is(err, home.ErrNetworkKeyFormat) {
			t.Errorf("ParseNetworkKey(%q) = %x, %v", data, key, err)
		}
	})
}
