//go:build !linux

package p2p_test

// childrenHere are the roles of children that only Linux has.
var childrenHere = map[string]func() error{}
