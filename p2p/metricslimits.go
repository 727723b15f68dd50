package p2p

import (
	"errors"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
)

// counted counts connections that are refused for their address, which the library reports to nobody.
type counted struct {
	network.ResourceManager
	m *metrics
}

// OpenConnection opens the scope of a connection.
func (c counted) OpenConnection(dir network.Direction, usefd bool, endpoint ma.Multiaddr) (network.ConnManagementScope, error) {
	scope, err := c.ResourceManager.OpenConnection(dir, usefd, endpoint)
	if err != nil && !errors.Is(err, network.ErrResourceLimitExceeded) {
		c.m.resources.WithLabelValues("address").Inc()
	}
	return scope, err
}

// blocked counts what the resource manager refuses. What it allows is counted elsewhere.
type blocked struct{ m *metrics }

func (b blocked) count(kind string) { b.m.resources.WithLabelValues(kind).Inc() }

// BlockConn counts a connection, refused by a limit of the whole system or of an address.
func (b blocked) BlockConn(network.Direction, bool) { b.count("connection") }

// BlockStream counts a stream.
func (b blocked) BlockStream(peer.ID, network.Direction) { b.count("stream") }

// BlockPeer counts a connection that was one too many from its peer.
func (b blocked) BlockPeer(peer.ID) { b.count("peer") }

// BlockProtocol counts a stream that was one too many of its protocol.
func (b blocked) BlockProtocol(protocol.ID) { b.count("protocol") }

// BlockProtocolPeer counts a stream that was one too many of its protocol from its peer.
func (b blocked) BlockProtocolPeer(protocol.ID, peer.ID) { b.count("protocol_peer") }

// BlockService counts a stream that was one too many of its service.
func (b blocked) BlockService(string) { b.count("service") }

// BlockServicePeer counts a stream that was one too many of its service from its peer.
func (b blocked) BlockServicePeer(string, peer.ID) { b.count("service_peer") }

// BlockMemory counts a reservation of memory.
func (b blocked) BlockMemory(int) { b.count("memory") }

// AllowConn is of no interest, nor are those below.
func (blocked) AllowConn(network.Direction, bool) {}

// AllowStream does nothing.
func (blocked) AllowStream(peer.ID, network.Direction) {}

// AllowPeer does nothing.
func (blocked) AllowPeer(peer.ID) {}

// AllowProtocol does nothing.
func (blocked) AllowProtocol(protocol.ID) {}

// AllowService does nothing.
func (blocked) AllowService(string) {}

// AllowMemory does nothing.
func (blocked) AllowMemory(int) {}
