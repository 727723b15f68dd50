package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lacuna-network/lacuna/node"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p"
)

// TestFailedStartTellsNobody starts a provider whose port is taken.
func TestFailedStartTellsNobody(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	hub := nodetest.Start(t, nil)
	invite, err := hub.Client.Invite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func(tcp string) (*node.Node, error) {
		c, err := config.Load(dir, func(string) string { return "" }, map[string]string{"network.name": "test-node", "provide.enabled": "true",
			"network.listen": "/ip4/127.0.0.1/udp/0/quic-v1, /ip4/127.0.0.1/tcp/" + tcp, "network.bootstrap": invite})
		if err != nil {
			t.Fatal(err)
		}
		return node.New(node.Options{Home: h, Config: c})
	}
	start := time.Now()
	n, err := open(port)
	if err == nil {
		n.Close()
		t.Fatal("New succeeded although the port is taken")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v to fail", d)
	}
	var e *p2p.PortError
	if !errors.As(err, &e) || !e.Taken() || e.Addr != "127.0.0.1" || e.Network != "tcp" || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), port) {
		t.Errorf("New = %v, want one line that names tcp port %s on 127.0.0.1", err, port)
	}
	if s, err := hub.Client.Status(t.Context()); err != nil || len(s.Peers) != 0 {
		t.Errorf("a peer that did not start was seen by %d peers, %v", len(s.Peers), err)
	}
	// The same home opens at once, and works.
	if n, err = open("0"); err != nil {
		t.Fatalf("New after a failed start: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	select {
	case <-n.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPrivateNetworkByKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := home.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := h.MakeNetworkKey(home.DefaultNetworkKey)
	if err != nil {
		t.Fatal(err)
	}
	private := map[string]string{"network.key_file": filepath.Join(dir, home.DefaultNetworkKey)}
	a, b, c := nodetest.Start(t, private), nodetest.Start(t, private), nodetest.Start(t, nil)
	nodetest.Join(t, a, b)
	line, err := a.Client.Invite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i, err := p2p.ParseInvite(line); err != nil || string(i.NetworkKey) != string(key) {
		t.Errorf("the invite of a private network has a key of %d bytes, %v, want the network's", len(i.NetworkKey), err)
	}
	if _, err := c.Client.Join(t.Context(), []string{line}); err == nil {
		t.Error("a peer without the key joined a private network")
	}
	if s, err := a.Client.Status(t.Context()); err != nil || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "QUIC is off") {
		t.Errorf("notes %q, %v, want what the key costs", s.Notes, err)
	}
}

func TestWSSByFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hub := nodetest.Start(t, map[string]string{"network.listen": "/ip4/127.0.0.1/tcp/0/tls/ws", "network.tls_cert": certFile, "network.tls_key": keyFile})
	other, trusting := nodetest.Start(t, nil), nodetest.Start(t, map[string]string{"network.tls_ca": certFile})
	line, err := hub.Client.Invite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Client.Join(t.Context(), []string{line}); err == nil {
		t.Error("a peer that does not trust the certificate joined over WSS")
	}
	nodetest.Join(t, hub, trusting)
}
