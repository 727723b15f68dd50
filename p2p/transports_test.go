package p2p_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/p2p"
)

// certify makes a certificate for these names that vouches for itself, and returns its files and the serial number.
func certify(t *testing.T, dir string, serial int64, names ...string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// secure returns what a WSS server and its clients need for a host named hub.test.
func secure(t *testing.T) (server *tls.Config, roots *x509.CertPool) {
	t.Helper()
	certFile, keyFile := certify(t, t.TempDir(), 1, "hub.test")
	server, err := p2p.LoadTLS(certFile, keyFile)
	if err == nil {
		roots, err = p2p.LoadRoots(certFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	return server, roots
}

// freeTCP returns an address whose port was free a moment ago.
func freeTCP(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return "/ip4/127.0.0.1/tcp/" + port
}

func TestOpenOverWebSocket(t *testing.T) {
	server, roots := secure(t)
	one := freeTCP(t)
	three := []string{one, one + "/ws", one + "/tls/ws"}
	for i, tt := range []struct {
		name   string
		listen []string
		dial   string // what the address that is dialled has in it
	}{
		{"ws", []string{"/ip4/127.0.0.1/tcp/0/ws"}, "/ws"},
		{"wss", []string{"/ip4/127.0.0.1/tcp/0/tls/ws"}, "/tls/ws"},
		{"wss on IPv6 beside others", []string{"/ip6/::1/tcp/0/wss", "/ip4/127.0.0.1/udp/0/quic-v1"}, "/tls/ws"},
		{"ws on TCP's port", three[:2], "/ws"},
		{"tcp on WebSocket's port", three, "tcp"},
		{"wss on the port of both", three, "/tls/ws"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub := real(t, 600+2*i, p2p.Options{Listen: tt.listen, TLS: server})
			client := real(t, 601+2*i, p2p.Options{TLSRoots: roots})
			hub.Handle(echo(), serveEcho)
			bound := hub.ListenAddresses()
			if len(bound) != len(tt.listen) {
				t.Fatalf("listens on %v, want %d addresses", bound, len(tt.listen))
			}
			at := slices.IndexFunc(bound, func(s string) bool {
				return strings.HasSuffix(s, tt.dial) || tt.dial == "tcp" && !strings.HasSuffix(s, "ws")
			})
			if at < 0 {
				t.Fatalf("listens on %v, want an address with %s", bound, tt.dial)
			}
			addr := bound[at]
			if strings.HasPrefix(addr, "/ip6/") { // the certificate names 127.0.0.1 and hub.test only
				addr = strings.Replace(addr, "/tls/ws", "/tls/sni/hub.test/ws", 1)
			}
			got, err := call(client, hub.Key(), []string{addr}, "hello")
			if err != nil || got != "hello" {
				t.Fatalf("answer over %s: %q, %v, want hello", addr, got, err)
			}
			if info := client.Peers(); len(info) != 1 || strings.Contains(info[0].Addr, "/ws") != strings.Contains(tt.dial, "ws") {
				t.Errorf("Peers() = %+v, want the hub over %s", info, tt.dial)
			}
		})
	}
}

func TestUnknownCertificateIsRefused(t *testing.T) {
	server, _ := secure(t)
	hub := real(t, 620, p2p.Options{Listen: []string{"/ip4/127.0.0.1/tcp/0/tls/ws"}, TLS: server})
	client := real(t, 621, p2p.Options{})
	err := client.Connect(t.Context(), hub.Key(), hub.ListenAddresses())
	if !errors.Is(err, p2p.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Connect = %v, want ErrUnreachable that says certificate", err)
	}
}

func TestRenewedCertificateIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, keyFile := certify(t, dir, 1, "a.test")
		c, err := p2p.LoadTLS(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		serves := func(want int64, why string) {
			t.Helper()
			cert, err := c.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil || leaf.SerialNumber.Int64() != want {
				t.Errorf("%s certificate %v is served, %v, want %d", why, leaf.SerialNumber, err, want)
			}
		}
		certify(t, dir, 2, "a.test")
		if err := os.Chtimes(certFile, time.Time{}, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		serves(1, "at once")
		time.Sleep(p2p.CertLook + time.Second)
		serves(2, "a minute later")
		if err := os.WriteFile(certFile, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(p2p.CertLook + time.Second)
		serves(2, "while the file is written")
		if _, err := p2p.LoadTLS(certFile, keyFile); err == nil || !strings.Contains(err.Error(), certFile) {
			t.Errorf("LoadTLS of half a file: %v, want an error that names it", err)
		}
		if _, err := p2p.LoadRoots(certFile); err == nil {
			t.Error("LoadRoots of half a file: no error")
		}
	})
}

// proxy is an HTTP proxy that knows CONNECT alone, and where hub.test is.
type proxy struct {
	target string
	mu     sync.Mutex
	asked  []string
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
	p.mu.Unlock()
	if r.Method != http.MethodConnect || !strings.HasPrefix(r.Host, "hub.test:") {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	there, err := net.Dial("tcp", p.target)
	if err != nil {
		http.Error(w, "no", http.StatusBadGateway)
		return
	}
	here, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		there.Close()
		return
	}
	fmt.Fprint(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { defer there.Close(); _, _ = io.Copy(there, here) }()
	go func() { defer here.Close(); _, _ = io.Copy(here, there) }()
}

// TestProxyIsUsed runs the client in a process of its own, for the environment is read once. The hub's name means
// something to the proxy only.
func TestProxyIsUsed(t *testing.T) {
	certFile, keyFile := certify(t, t.TempDir(), 1, "hub.test")
	server, err := p2p.LoadTLS(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name, above, variable, noProxy string
		reached                        bool
	}{
		{"wss", "/tls/ws", "HTTPS_PROXY", "", true},
		{"wss in lower case", "/wss", "https_proxy", "", true},
		{"ws", "/ws", "HTTP_PROXY", "", true},
		{"wss where the proxy is for plain HTTP", "/tls/ws", "HTTP_PROXY", "", false},
		{"wss to a name without proxy", "/tls/ws", "HTTPS_PROXY", ".test", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub := real(t, 630+i, p2p.Options{Listen: []string{strings.Replace("/ip4/127.0.0.1/tcp/0"+tt.above, "/wss", "/tls/ws", 1)}, TLS: server})
			hub.Handle(echo(), serveEcho)
			port := strings.Split(hub.ListenAddresses()[0], "/")[4]
			p := &proxy{target: net.JoinHostPort("127.0.0.1", port)}
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: p}
			go s.Serve(l) // ends with Close
			defer s.Close()
			out, err := child(t, "dial", tt.variable+"=http://joe:secret@"+l.Addr().String(), "NO_PROXY="+tt.noProxy, "CHILD_CA="+certFile,
				"CHILD_KEY="+hub.Key().String(), "CHILD_ADDR=/dns4/hub.test/tcp/"+port+tt.above)
			if (err == nil) != tt.reached {
				t.Errorf("client: %v\n%s", err, out)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			const login = "Basic am9lOnNlY3JldA=="
			if want := []string{"CONNECT hub.test:" + port + " " + login}; tt.reached && !slices.Equal(p.asked, want) || !tt.reached && p.asked != nil {
				t.Errorf("the proxy was asked %q, reached is to be %v", p.asked, tt.reached)
			}
		})
	}
}

// child runs this test binary in a role of children.
func child(t *testing.T, role string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "LACUNA_P2P_CHILD="+role)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// children are what this binary does instead of tests when it is started by one.
var children = map[string]func() error{
	"dial": func() error {
		roots, err := p2p.LoadRoots(os.Getenv("CHILD_CA"))
		if err != nil {
			return err
		}
		key, err := attest.ParseKey(os.Getenv("CHILD_KEY"))
		if err != nil {
			return err
		}
		h, err := p2p.New(p2p.Options{Key: childKey(), Network: "test", TLSRoots: roots})
		if err != nil {
			return err
		}
		defer h.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		s, err := h.Open(ctx, key, []string{os.Getenv("CHILD_ADDR")}, echo())
		if err != nil {
			return err
		}
		if err := s.Send(message{"hello"}); err != nil {
			return err
		}
		return s.Recv(&message{})
	},
	"hold": func() error { // a port, until the parent closes the pipe
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		fmt.Println(l.Addr())
		_, err = bufio.NewReader(os.Stdin).ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	},
}

func TestMain(m *testing.M) {
	name := os.Getenv("LACUNA_P2P_CHILD")
	role, ok := children[name]
	if !ok {
		role, ok = childrenHere[name]
	}
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
