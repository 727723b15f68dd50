package doctor

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/home"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
)

// Options say where to look.
type Options struct {
	Home      home.Home
	Config    config.Config
	ConfigErr error // Config could not be read, or not wholly
	Env       func(string) string
	Client    *api.Client // of the daemon; nil = none answers
}

// Gather looks, and changes nothing. What cannot be looked at is left out, or says why.
func Gather(ctx context.Context, o Options) Facts {
	f := Facts{OS: runtime.GOOS, Home: gatherHome(o), IP: gatherIP(), Config: ConfigFacts{Config: o.Config, File: o.Home.ConfigFile()}}
	_, err := os.Stat(f.Config.File)
	f.Config.Exists = err == nil
	if o.ConfigErr != nil {
		f.Config.Err = o.ConfigErr.Error()
	}
	f.Disk.Floor = o.Config.Store.MinFreeBytes
	if free, err := store.FreeBytes(existing(o.Home.Dir())); err == nil && o.ConfigErr == nil {
		f.Disk.Free, f.Disk.Known = free, true
	}
	_, err = os.Stat(o.Home.StoreDir())
	f.Store.Exists = err == nil
	f.Buffers.Want, f.Buffers.Got, f.Buffers.OK = p2p.UDPBuffers()
	f.Proxies = proxies(o.Env)
	f.PID, f.Held = o.Home.Running()
	if o.Client != nil {
		if st, err := o.Client.Refresh(ctx); err == nil {
			f.Status, f.Store.Opened = &st, true
		}
	}
	if f.Status == nil && !f.Held && o.ConfigErr == nil {
		f.Ports = tryPorts(o)
	}
	return f
}

// existing returns the folder, or the nearest one above it that is there.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func gatherHome(o Options) HomeFacts {
	h := HomeFacts{Dir: o.Home.Dir()}
	info, err := os.Stat(h.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h
	case err != nil:
		h.Err = err.Error()
		return h
	case !info.IsDir():
		h.Err = "it is no folder"
		return h
	}
	h.Exists = true
	if runtime.GOOS != "windows" {
		h.Mode = uint32(info.Mode().Perm())
	}
	if f, err := os.CreateTemp(h.Dir, ".doctor-*"); err != nil {
		h.Err = err.Error()
	} else {
		_ = errors.Join(f.Close(), os.Remove(f.Name())) // it was only there to be made
	}
	if o.ConfigErr != nil {
		return h // the files' names stand in the config
	}
	h.add(o.Home.IdentityFile(o.Config.Identity.File), "identity", func() error { _, err := o.Home.Identity(o.Config.Identity.File); return err })
	if file := o.Config.Network.KeyFile; file != "" {
		h.add(o.Home.File(file), "network key", func() error { _, err := o.Home.NetworkKey(file); return err })
	}
	return h
}

// add notes a file with a secret, if it is there.
func (h *HomeFacts) add(path, what string, read func() error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if what != "identity" { // the identity is made at the first start
			h.Keys = append(h.Keys, KeyFacts{File: path, What: what, Err: what + ": " + path + " is not there"})
		}
		return
	}
	k := KeyFacts{File: path, What: what}
	if err == nil && runtime.GOOS != "windows" {
		k.Mode = uint32(info.Mode().Perm())
	}
	if k.Mode&0o077 == 0 { // else the mode is what is wrong
		if err := errors.Join(err, read()); err != nil {
			k.Err = err.Error()
		}
	}
	h.Keys = append(h.Keys, k)
}

func gatherIP() IPFacts {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return IPFacts{}
	}
	f := IPFacts{Known: true}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		f.V4, f.V6 = f.V4 || p.Addr().Is4(), f.V6 || p.Addr().Is6()
		if p.Addr().Is4() && p.Addr().IsPrivate() && f.Private == "" {
			f.Private = p.Addr().String()
		}
	}
	return f
}

// proxies returns the proxy variables that are set, without passwords.
func proxies(env func(string) string) []string {
	var out []string
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"} {
		v := env(name)
		if v == "" {
			continue
		}
		if u, err := url.Parse(v); err == nil && u.User != nil {
			v = u.Redacted()
		}
		out = append(out, name+"="+v)
	}
	return out
}

// tryPorts listens for a moment as the next start would, under a key that is thrown away. Nobody is dialled meanwhile.
func tryPorts(o Options) PortFacts {
	f := PortFacts{Tried: true}
	n := o.Config.Network
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return PortFacts{}
	}
	options := p2p.Options{Key: key, Network: n.Name, Profile: p2p.Light, Listen: n.Listen, Reach: market.ReachNone}
	if n.KeyFile != "" {
		if options.NetworkKey, err = o.Home.NetworkKey(n.KeyFile); err != nil {
			return PortFacts{} // said elsewhere
		}
	}
	if n.TLSCert != "" {
		if options.TLS, err = p2p.LoadTLS(o.Home.File(n.TLSCert), o.Home.File(n.TLSKey)); err != nil {
			f.Err, f.Hint = err.Error(), "set network.tls_cert and network.tls_key to PEM files that this user may read"
			return f
		}
	}
	h, err := p2p.New(options)
	if err != nil {
		f.Err, f.Hint = err.Error(), "lacuna config set network.listen auto"
		var port *p2p.PortError
		if errors.As(err, &port) {
			f.Err, f.Hint = port.Error(), PortHint(port)
		}
		return f
	}
	f.Listen, f.Notes = h.ListenAddresses(), h.ListenNotes()
	_ = h.Close() // nothing ran on it
	return f
}

// PortHint says what helps against a port that cannot be opened.
func PortHint(e *p2p.PortError) string {
	if !e.Taken() {
		return "choose a port from 1024 on: lacuna config set network.listen auto"
	}
	stop := ""
	if e.PID != 0 {
		stop = fmt.Sprintf("stop it (kill %d), or ", e.PID)
	}
	return stop + "take the next free port: lacuna config set network.listen auto; or for one run: lacuna up --listen auto"
}
