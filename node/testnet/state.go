package testnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lacuna-network/lacuna/node/home"
)

// stateFile is the name of the file by which a net is found again.
const stateFile = "testnet.json"

// State is what the state file says of a net.
type State struct {
	Version int         `json:"version"` // 1
	Dir     string      `json:"dir"`     // where the file was found
	Network string      `json:"network"`
	Kept    bool        `json:"kept"`
	Created bool        `json:"created_dir"` // the folder goes with the net
	At      time.Time   `json:"at"`          // last change
	Peers   []PeerState `json:"peers"`
}

// PeerState is one peer in the state file.
type PeerState struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`     // 0 = not running
	Started string `json:"started"` // when that process began, as the system tells it; "" = unknown
	Provide bool   `json:"provide"`
	Running bool   `json:"running"` // filled in by Read: that very process lives
}

// dyingGrace is how long a killed process may take to give its files back.
const dyingGrace = 2 * time.Second

func homeOf(dir, name string) (home.Home, error) { return home.At(filepath.Join(dir, name)) }

// save writes the state file. The caller holds mu, or is alone.
func (n *Net) save() error {
	s := State{Version: 1, Dir: n.dir, Network: n.o.Network, Kept: n.o.Keep, Created: n.created, At: time.Now().UTC()}
	for _, m := range n.peers {
		p := PeerState{Name: m.spec.Name, Provide: m.spec.Provide}
		if m.proc != nil {
			p.PID, p.Started = m.proc.pid, m.proc.started
		}
		s.Peers = append(s.Peers, p)
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	path := filepath.Join(n.dir, stateFile)
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// ErrNoNet means that a folder holds no net.
var ErrNoNet = errors.New("no testnet")

// Read returns the state of the net in dir, with which of its peers live. If there is none the error wraps [ErrNoNet].
func Read(dir string) (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%w in %s", ErrNoNet, dir)
	}
	if err != nil {
		return s, fmt.Errorf("read testnet: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil || s.Version != 1 {
		return s, fmt.Errorf("read testnet: %s is not readable, or of another version", filepath.Join(dir, stateFile))
	}
	for i, p := range s.Peers {
		if !safeName(p.Name) {
			return s, fmt.Errorf("read testnet: %q is no name of a peer", p.Name)
		}
		s.Peers[i].Running = p.PID > 0 && p.Started != "" && startOf(p.PID) == p.Started
	}
	s.Dir = dir
	return s, nil
}

// List returns the nets in the folders directly below root, none if root is not there. Folders that hold no readable
// net are left out.
func List(root string) ([]State, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list testnets: %w", err)
	}
	var out []State
	for _, e := range entries {
		if s, err := Read(filepath.Join(root, e.Name())); err == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// Down ends the net in dir, whoever started it, and removes it. Processes that are not those of the net any more are
// left alone; while one of them holds a home, nothing is removed.
func Down(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("end testnet: %w", err)
	}
	s, err := Read(abs)
	if err != nil {
		return err
	}
	errs := make([]error, len(s.Peers))
	names := make([]string, len(s.Peers))
	var wg sync.WaitGroup
	for i, p := range s.Peers {
		names[i] = p.Name
		if p.Running {
			wg.Go(func() { errs[i] = endForeign(p.PID, p.Started) })
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end testnet: %w", err)
	}
	for _, name := range names {
		h, err := homeOf(abs, name)
		if err != nil {
			return fmt.Errorf("end testnet: %w", err)
		}
		if pid, held := stillRunning(h); held { // not the process that was written down: somebody started the peer again
			return fmt.Errorf("end testnet: process %d runs in the home of %s and is not of the net; nothing is removed: end it with lacuna down --home %s, then try again", pid, name, h.Dir())
		}
	}
	return removeNet(abs, names, s.Created)
}

// stillRunning is [home.Home.Running] with some patience for a process that is just dying.
func stillRunning(h home.Home) (pid int, held bool) {
	for deadline := time.Now().Add(dyingGrace); ; time.Sleep(poll) {
		if pid, held = h.Running(); !held || time.Now().After(deadline) {
			return pid, held
		}
	}
}
