package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
	"github.com/lacuna-network/lacuna/node/runner"
	"github.com/lacuna-network/lacuna/node/store"
	"github.com/lacuna-network/lacuna/p2p"
)

// InMemory returns the options of a peer whose host is changed by f, to live on a network in memory, and whose jobs are
// run by r.
func (o Options) InMemory(f func(p2p.Options) p2p.Options, r runner.Runner) Options {
	o.memory, o.runner = f, r
	return o
}

// Backend is what the local API does.
func (n *Node) Backend() api.Backend { return n.backend() }

// Store returns the peer's store.
func (n *Node) Store() *store.Store { return n.store }

// Metrics returns the peer's counters.
func (n *Node) Metrics() prometheus.Gatherer { return n.registry }

// Disconnect closes the peer's connections to another.
func (n *Node) Disconnect(k attest.Key) { n.host.Disconnect(k) }

// Role returns what libp2p is set up for, and what the owner is told.
func (n *Node) Role() (p2p.Profile, string) { return n.host.Profile(), n.role() }
