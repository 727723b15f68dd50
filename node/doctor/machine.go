package doctor

import (
	"fmt"
	"strings"
)

func judgeHome(f Facts) (Finding, bool) {
	const check = "home"
	h := f.Home
	switch {
	case h.Err != "":
		return see(check, Fault, h.Dir, h.Err, "name a folder of your own with --home or LACUNA_HOME")
	case !h.Exists:
		return see(check, Note, h.Dir+" is not there yet", "", "the first start makes it: lacuna up")
	case h.Mode&0o077 != 0:
		return see(check, Fault, fmt.Sprintf("%s has mode %04o", h.Dir, h.Mode), "other users of this machine may look into it",
			"chmod 700 "+h.Dir+", or: lacuna doctor --fix")
	}
	return see(check, OK, h.Dir, "", "")
}

func judgeKeys(f Facts) (Finding, bool) {
	const check = "keys"
	var seen, open, bad []string
	next := "copy the file from a peer of the network (mode 0600), or join by an invite that holds the key"
	for _, k := range f.Home.Keys {
		seen = append(seen, k.What+" in "+k.File)
		if k.Mode&0o077 != 0 {
			open = append(open, fmt.Sprintf("%s (mode %04o)", k.File, k.Mode))
		}
		if k.Err != "" {
			bad = append(bad, k.Err)
			if k.What == "identity" {
				next = "bring the file back from a backup, or move it away: then the next start makes a new identity"
			}
		}
	}
	switch {
	case len(seen) == 0:
		return none()
	case len(bad) > 0:
		return see(check, Fault, strings.Join(seen, ", "), strings.Join(bad, "; "), next)
	case len(open) > 0:
		return see(check, Fault, strings.Join(open, ", "), "others than the owner may read a private key, so it is not used", "chmod 600 the file, or: lacuna doctor --fix")
	}
	return see(check, OK, strings.Join(seen, ", "), "", "")
}

func judgeConfig(f Facts) (Finding, bool) {
	const check = "config"
	switch {
	case f.Config.Err != "":
		return see(check, Fault, f.Config.File, f.Config.Err, "mend it, and look again: lacuna config check")
	case !f.Config.Exists:
		return see(check, OK, f.Config.File+" is not there, so every key has its default", "", "")
	}
	return see(check, OK, f.Config.File+", network "+f.Config.Network.Name, "", "")
}

// lowFloor is the store.min_free that a nearly full disk is advised.
const lowFloor = 256 << 20

func judgeDisk(f Facts) (Finding, bool) {
	const check = "disk"
	d := f.Disk
	seen := fmt.Sprintf("%s free, new work is taken on above %s", Size(d.Free), Size(d.Floor))
	switch {
	case !d.Known:
		return none()
	case d.Free < d.Floor:
		hint := "free some disk"
		if lowFloor < d.Free && lowFloor < d.Floor { // else it would change nothing
			hint += ", or lower store.min_free: lacuna config set store.min_free 256MiB"
		}
		return see(check, Fault, seen, "the disk is nearly full: no new leases, and soon no receipts", hint)
	case d.Free < 2*d.Floor:
		return see(check, Warn, seen, "the disk is filling up", "free some disk")
	}
	return see(check, OK, seen, "", "")
}

func judgeStore(f Facts) (Finding, bool) {
	const check = "store"
	switch {
	case f.Store.Err != "":
		return see(check, Fault, "it does not open", f.Store.Err, "if the disk is sound, bring the home back from a backup; what is kept at the other side of each lease stays valid")
	case f.Status != nil && f.Status.StoreDamaged > 0:
		return see(check, Fault, fmt.Sprintf("%d records are damaged", f.Status.StoreDamaged), "the disk returned other bytes than were written; nothing more is signed on those leases",
			"the log of the last start names them; look at the disk's health")
	case f.Store.Opened:
		return see(check, OK, "open, and every record that was read is whole", "", "")
	case !f.Store.Exists:
		return none()
	}
	return see(check, OK, "there; it is looked into at each start, or with: lacuna doctor --fix", "", "")
}

func judgeDaemon(f Facts) (Finding, bool) {
	const check = "daemon"
	switch {
	case f.Status != nil:
		return see(check, OK, fmt.Sprintf("version %s runs with pid %d", f.Status.Version, f.Status.PID), "", "")
	case f.Held:
		return see(check, Fault, fmt.Sprintf("a process holds the home (pid %d), but nobody answers on its socket", f.PID), "it is starting or ending just now, or its socket was removed",
			fmt.Sprintf("wait a moment; if that does not help: kill %d, then lacuna up -d", f.PID))
	}
	return see(check, Note, "no peer runs in this home, so what others see of it is not known", "", "lacuna up -d, then lacuna doctor again")
}

func judgeBuffers(f Facts) (Finding, bool) {
	const check = "udp_buffers"
	b := f.Buffers
	seen := fmt.Sprintf("the system gives a socket %d KiB, QUIC asks for %d KiB", b.Got>>10, b.Want>>10)
	switch {
	case b.OK && b.Got == 0:
		return none() // the system does not tell
	case b.OK:
		return see(check, OK, seen, "", "")
	}
	next := "raise the system's limit for UDP receive buffers"
	switch f.OS {
	case "linux":
		next = "as root: sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000; to keep it, write both into /etc/sysctl.d/60-lacuna.conf"
	case "darwin", "freebsd":
		next = "as root: sysctl -w kern.ipc.maxsockbuf=8388608"
	}
	return see(check, Note, seen, "fast transfers over long ways may lose packets and slow down", next)
}

func judgeProxy(f Facts) (Finding, bool) {
	if len(f.Proxies) == 0 {
		return none()
	}
	return see("proxy", Note, strings.Join(f.Proxies, ", "), "WebSocket addresses (ws, wss) of peers are dialled through it; TCP and QUIC are not", "")
}
