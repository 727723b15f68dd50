package p2p

import "time"

// RelayPolicy is what a directly reachable peer relays for those who are not. The zero value relays nothing.
type RelayPolicy struct {
	Serve      bool          // relay signalling for others
	PerDay     uint64        // bytes relayed in 24 h, all circuits and both directions together; 0 = 1 GB
	Bulk       bool          // let job data, logs and tunnels pass too
	BulkData   uint64        // bytes of one circuit in each direction, with Bulk; 0 = 10 GB
	BulkTime   time.Duration // life of one circuit, with Bulk; 0 = 24 h
	BulkPerSec uint64        // bytes a second, all circuits together, with Bulk; 0 = 10 MB
}
