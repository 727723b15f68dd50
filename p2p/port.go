package p2p

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// PortError means that a port cannot be opened: it is taken ([PortError.Taken]), or the process may not.
type PortError struct {
	Network string // tcp or udp
	Addr    string // IP address, or the name in a dns address
	Port    int
	PID     int    // of who has it, as far as it can be found out; 0 = not known
	Process string // name of that process; "" = not known
	User    string // whose it is, where the process is not known; "" = not known
	Err     error  // the system's

	network string // with the family, as tcp6
}

// Error says it in one line.
func (e *PortError) Error() string {
	port := fmt.Sprintf("%s port %d on %s", e.Network, e.Port, e.Addr)
	switch {
	case !e.Taken():
		return fmt.Sprintf("%s needs a privilege that this process lacks%s; or choose a higher port", port, portPrivilege())
	case e.Process != "":
		return fmt.Sprintf("%s is taken by %s (pid %d)", port, e.Process, e.PID)
	case e.User != "":
		return fmt.Sprintf("%s is taken by a process of user %s", port, e.User)
	}
	return port + " is taken by another process"
}

// Unwrap returns the system's error.
func (e *PortError) Unwrap() error { return e.Err }

// Taken reports whether someone has the port, rather than that it is not permitted.
func (e *PortError) Taken() bool { return inUse(e.Err) }

// Windows has numbers of its own for these.
const (
	wsaInUse  = syscall.Errno(10048) // WSAEADDRINUSE
	wsaAccess = syscall.Errno(10013) // WSAEACCES: someone has the port for himself alone, or the system keeps it
)

func inUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || runtime.GOOS == "windows" && (errors.Is(err, wsaInUse) || errors.Is(err, wsaAccess))
}

// explainPort turns the system's refusal to open an address into a [*PortError], which does not know yet who has the
// port; other errors get the address.
func explainPort(m ma.Multiaddr, err error) error {
	network, address, argsErr := manet.DialArgs(socketOf(m))
	host, text, splitErr := net.SplitHostPort(address)
	port, numErr := strconv.Atoi(text)
	if errors.Join(argsErr, splitErr, numErr) != nil || !inUse(err) && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("listen on %s: %w", m, err)
	}
	return &PortError{Network: strings.TrimRight(network, "46"), Addr: host, Port: port, Err: err, network: network}
}

// find finds out who has the port. On a busy machine that takes a second, so it is done once, for the error that is shown.
func (e *PortError) find() {
	if e.Taken() {
		e.PID, e.Process, e.User = portHolder(e.network, e.Addr, e.Port)
	}
}
