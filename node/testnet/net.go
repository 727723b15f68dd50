package testnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Dir returns the folder of the net.
func (n *Net) Dir() string { return n.dir }

// Network returns the network's name.
func (n *Net) Network() string { return n.o.Network }

// Peers returns the peers in the order of the options.
func (n *Net) Peers() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]Peer, len(n.peers))
	for i, m := range n.peers {
		out[i] = m.view()
	}
	return out
}

// Peer returns the peer of that name.
func (n *Net) Peer(name string) (Peer, error) {
	m, err := n.find(name)
	if err != nil {
		return Peer{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return m.view(), nil
}

func (m *member) view() Peer {
	p := Peer{Name: m.spec.Name, Home: m.home.Dir(), Provide: m.spec.Provide, Client: m.client}
	if m.proc != nil && !m.proc.ended() {
		p.PID = m.proc.pid
	}
	return p
}

// ErrNoPeer means that the net has no peer of that name.
var ErrNoPeer = errors.New("no such peer")

func (n *Net) find(name string) (*member, error) {
	for _, m := range n.peers { // the list does not change after Up
		if m.spec.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("peer %q: %w", name, ErrNoPeer)
}

// take takes the member's process away from it, nil if it does not run.
func (n *Net) take(name string) (*process, error) {
	m, err := n.find(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := m.proc
	m.proc = nil
	return p, n.save()
}

// Kill ends a peer at once, with everything in its process group, as a power cut would, and returns when it is gone. It
// is no error if it does not run.
func (n *Net) Kill(name string) error {
	p, err := n.take(name)
	if p != nil {
		p.kill()
		<-p.gone
	}
	return err
}

// Stop asks a peer to end and kills it after [Options].Grace. It returns when it is gone.
func (n *Net) Stop(name string) error {
	p, err := n.take(name)
	if p != nil {
		p.stop(n.o.Grace)
	}
	return err
}

// Start starts a peer that was killed or stopped, on its old home, and returns when it is ready. It finds its network
// by what it has kept, or by [api.Client.Join].
func (n *Net) Start(ctx context.Context, name string) error {
	m, err := n.find(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	busy := n.closed || m.proc != nil && !m.proc.ended()
	n.mu.Unlock()
	if busy {
		return fmt.Errorf("peer %s runs already, or the net is closed", name)
	}
	return n.start(ctx, m)
}

// Close ends the net: all peers are stopped at once, and what Up made is removed. Of a net that is kept it only lets go.
func (n *Net) Close() error {
	n.mu.Lock()
	letGo := n.closed || n.o.Keep && n.up
	n.closed = true
	n.mu.Unlock()
	for _, m := range n.peers {
		m.client.Close()
	}
	if letGo {
		return nil
	}
	return n.destroy()
}

// Destroy ends the net, also one that is kept.
func (n *Net) Destroy() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	return n.destroy()
}

func (n *Net) destroy() error {
	stopErr := n.each(n.peers, func(m *member) error {
		n.mu.Lock()
		p := m.proc
		m.proc = nil
		n.mu.Unlock()
		if p != nil {
			p.stop(n.o.Grace)
		}
		return nil
	})
	names := make([]string, len(n.peers))
	for i, m := range n.peers {
		names[i] = m.spec.Name
	}
	if n.dir == "" {
		return stopErr
	}
	return errors.Join(stopErr, removeNet(n.dir, names, n.created))
}

// removeNet removes what Up made in dir.
func removeNet(dir string, names []string, all bool) error {
	var errs []error
	for _, name := range names {
		if h, err := homeOf(dir, name); err == nil {
			h.RemoveSocket() // it may lie outside
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	errs = append(errs, os.RemoveAll(filepath.Join(dir, stateFile)))
	if all {
		// Only if empty: whatever else lies there is not ours to remove.
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove testnet: %w", err)
	}
	return nil
}
