// Package p2p is a peer on the network: its identity, its connections, and streams with limits.
//
// Its types are [Host] (one libp2p host that speaks for one key on one network), [Protocol] (name, major version and
// limits of one service), [Stream] (bytes or frames to one peer, whose key the handshake has proved), [Liveness] and
// [Invite]. The numbers of libp2p stand in profiles.go, each with its reason.
//
// A host finds out by asking others whether and how it can be reached ([Reach]), tells only addresses that are of use to
// them, takes places at relays where it needs some and relays for others where it can ([RelayPolicy]). A stream needs a
// path: signalling runs over any, bulk protocols ([Protocol.Bulk]) over a straight one or a relay that lets data pass
// ([Path], [Host.Widen], [ErrLimited]). On a test network everybody reaches everybody, and nothing of this runs, unless
// [Options.Reach] says how this peer is reached.
//
// A protocol's ID is
//
//	/lacuna/<network>/<name>/<major>
//
// so that peers of different networks never talk past the handshake, and peers without a common major can be told who
// is too old. A frame is an unsigned varint and that many bytes of canonical CBOR, at most [MaxFrame].
//
// An invite is one line:
//
//	"lacuna1" base32(lower case, no padding; CBOR{1: network, 2: [[1: key, 2: [multiaddr bytes]]], 3: network key} ‖ SHA-256(CBOR)[:4])
//
// The package knows no asks, bids or leases: those protocols live below it, in p2p/find, p2p/bids, p2p/deal and so on.
// Peers are named by [attest.Key] everywhere; libp2p's peer.ID does not leave this folder. It is used by node. All of it
// is safe for concurrent use.
//
// History: 2026-11-30 frames and invites version 1.
package p2p
