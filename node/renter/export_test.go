package renter

import (
	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// SignBid signs a bid with as many addresses as fit.
func (r *Renter) SignBid(b *market.Bid) (attest.Envelope, error) { return r.signBid(b) }

// Network is what a renter asks about the way to a peer.
type Network = network

// SetNetwork replaces the host's answers about ways to peers. It must come before Run.
func (r *Renter) SetNetwork(n Network) { r.net = n }
