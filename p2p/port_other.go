//go:build !linux

package p2p

// portPrivilege says what it takes to open a low port.
func portPrivilege() string { return ", for it is reserved" }

// portHolder finds nothing: only Linux tells without a library or another program.
func portHolder(string, string, int) (pid int, process, owner string) { return 0, "", "" }
