package p2p

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// certLook is how often a certificate's file is looked at; they are renewed while the peer runs.
const certLook = time.Minute

// LoadTLS returns what WSS addresses are served with: the certificate chain and its private key from two PEM files. A
// newer certificate in the files is served within a minute; while they cannot be read, the last one is.
func LoadTLS(certFile, keyFile string) (*tls.Config, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// LoadRoots returns the system's certificates and those in a PEM file, for Options.TLSRoots.
func LoadRoots(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // a machine without any
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read certificates: %s: no certificate in it", file)
	}
	return roots, nil
}

// certificate is a certificate that may change on disk.
type certificate struct {
	certFile, keyFile string
	mu                sync.Mutex
	cert              *tls.Certificate
	changed, looked   time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) > certLook {
		c.looked = time.Now()
		if info, err := os.Stat(c.certFile); err == nil && !info.ModTime().Equal(c.changed) {
			_ = c.load() // the old one serves on: certificate and key are not replaced in one instant
		}
	}
	if c.cert == nil {
		return nil, errors.New("no certificate")
	}
	return c.cert, nil
}

func (c *certificate) load() error {
	info, err := os.Stat(c.certFile)
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err // it names the file
	}
	if err != nil {
		return fmt.Errorf("%s with the key in %s: %w", c.certFile, c.keyFile, err)
	}
	c.cert, c.changed, c.looked = &cert, info.ModTime(), time.Now()
	return nil
}
