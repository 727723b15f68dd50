package doctor_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/doctor"
	"github.com/lacuna-network/lacuna/node/home"
)

func options(t *testing.T, dir string, values map[string]string) doctor.Options {
	t.Helper()
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"network.name": "test-doctor", "network.listen": "/ip4/127.0.0.1/tcp/0", "store.min_free": "1MiB"}
	for k, v := range values {
		all[k] = v
	}
	c, err := config.Load(dir, func(string) string { return "" }, all)
	return doctor.Options{Home: h, Config: c, ConfigErr: err, Env: func(string) string { return "" }}
}

func find(t *testing.T, findings []doctor.Finding, check string) doctor.Finding {
	t.Helper()
	for _, f := range findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("there is no finding about %s", check)
	return doctor.Finding{}
}

func TestItChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	findings := doctor.Run(t.Context(), options(t, dir, nil), false)
	if worst := doctor.Worst(findings); worst != doctor.Note {
		t.Errorf("the worst on a machine without a home is %s, want note: %v", worst, findings)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the home was made: %v", err)
	}
	if f := find(t, findings, "disk"); f.Severity != doctor.OK {
		t.Errorf("disk is %s (%s), want ok: the folder above the home tells", f.Severity, f.Evidence)
	}
}

func TestFix(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes here")
	}
	dir := filepath.Join(t.TempDir(), "home")
	o := options(t, dir, nil)
	if f := find(t, doctor.Run(t.Context(), o, true), "home"); f.Severity != doctor.OK || f.Fixed == nil {
		t.Fatalf("home is %s, fixed %v, want it made", f.Severity, f.Fixed)
	}
	if _, _, err := o.Home.EnsureIdentity(""); err != nil {
		t.Fatal(err)
	}
	key := o.Home.IdentityFile("")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(key, 0o644), os.Mkdir(o.Home.StoreDir(), 0o700)); err != nil {
		t.Fatal(err)
	}
	findings := doctor.Run(t.Context(), o, false)
	for _, check := range []string{"home", "keys"} {
		if f := find(t, findings, check); f.Severity != doctor.Fault {
			t.Errorf("%s is %s, want fault: %s", check, f.Severity, f.Evidence)
		}
	}
	findings = doctor.Run(t.Context(), o, true)
	for _, check := range []string{"home", "keys", "store"} {
		if f := find(t, findings, check); f.Severity != doctor.OK || f.Fixed == nil {
			t.Errorf("%s is %s, fixed %v, want it mended: %s", check, f.Severity, f.Fixed, f.Evidence)
		}
	}
	if _, err := o.Home.Identity(""); err != nil {
		t.Errorf("the identity after the mending: %v", err)
	}
	if doctor.Worst(findings) != doctor.Note { // no daemon runs
		t.Errorf("the worst is %s, want note: %v", doctor.Worst(findings), findings)
	}
}

func TestATakenPort(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, t.TempDir(), map[string]string{"network.listen": "/ip4/127.0.0.1/tcp/" + port})
	f := find(t, doctor.Run(t.Context(), o, false), "ports")
	if f.Severity != doctor.Fault || !strings.Contains(*f.Cause, "tcp port "+port+" on 127.0.0.1 is taken") || !strings.Contains(*f.Next, "network.listen auto") {
		t.Errorf("ports is %s: %s, %v, %v", f.Severity, f.Evidence, *f.Cause, *f.Next)
	}
}

func TestABrokenConfig(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte("network:\n  nme: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := find(t, doctor.Run(t.Context(), options(t, dir, nil), false), "config")
	if f.Severity != doctor.Fault || !strings.Contains(*f.Cause, "line 2") {
		t.Errorf("config is %s: %v", f.Severity, *f.Cause)
	}
}

func TestPasswordsOfProxiesAreNotShown(t *testing.T) {
	o := options(t, t.TempDir(), nil)
	o.Env = func(name string) string {
		if name == "HTTPS_PROXY" {
			return "http://ada:secret@proxy:3128"
		}
		return ""
	}
	f := find(t, doctor.Run(t.Context(), o, false), "proxy")
	if strings.Contains(f.Evidence, "secret") || !strings.Contains(f.Evidence, "proxy:3128") {
		t.Errorf("proxy: %s", f.Evidence)
	}
}
