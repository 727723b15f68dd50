//go:build unix && !linux

package p2p

// forceReceiveBuffer can do nothing here.
func forceReceiveBuffer(int, int) {}
