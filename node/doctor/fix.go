package doctor

import (
	"fmt"
	"os"
	"strings"

	"github.com/lacuna-network/lacuna/node/store"
)

// mend mends what can be mended without harm: it makes the home, takes away what others may do with it and with the
// secrets in it, and, while no daemon runs, opens the store, which repairs what a crash left half written. It returns
// what it did, by check, and what it found out on the way.
func mend(o Options, f *Facts) (done map[string]string) {
	done = map[string]string{}
	if f.Home.Err != "" {
		return done
	}
	if !f.Home.Exists || f.Home.Mode&0o077 != 0 {
		if err := o.Home.Create(); err != nil {
			f.Home.Err = err.Error()
			return done
		}
		done["home"] = "made, mode 0700"
		if f.Home.Exists {
			done["home"] = "its mode is 0700 now"
		}
	}
	var closed []string
	for _, k := range f.Home.Keys {
		if k.Mode&0o077 == 0 || k.Err != "" {
			continue
		}
		if err := os.Chmod(k.File, 0o600); err == nil {
			closed = append(closed, k.File)
		}
	}
	if closed != nil {
		done["keys"] = "mode 0600 now: " + strings.Join(closed, ", ")
	}
	if f.Store.Exists && f.Status == nil && !f.Held {
		f.Store.Err, f.Store.Opened = openStore(o), true
		if f.Store.Err == "" {
			done["store"] = "opened, and what a crash may have left half written is repaired"
		}
	}
	return done
}

// openStore opens and closes the store and returns what is wrong with it.
func openStore(o Options) string {
	lock, err := o.Home.Lock()
	if err != nil {
		return err.Error()
	}
	defer lock.Close() // the process ends soon anyway
	s, err := store.Open(store.Options{Dir: o.Home.StoreDir(), MinFreeBytes: o.Config.Store.MinFreeBytes})
	if err != nil {
		return err.Error()
	}
	damaged := len(s.Damaged())
	if err := s.Close(); err != nil {
		return err.Error()
	}
	if damaged > 0 {
		return fmt.Sprintf("%d records are damaged; a start names them in its log", damaged)
	}
	return ""
}
