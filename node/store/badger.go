package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// badgerOptions are sized for a daemon beside other work: some ten MB of memory, tens of MB on disk around a few MB
// of live records. SyncWrites and not DB.Sync: the latter syncs the current log only, so a transaction whose log was
// just put aside for flushing would be called durable before it is.
func badgerOptions(dir string, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(badgerLog{log}).
		WithSyncWrites(true).
		WithDetectConflicts(false). // one writer, see commit.go
		WithMetricsEnabled(false).
		WithCompression(options.None). // digests and signatures do not compress
		WithMemTableSize(8 << 20).
		WithNumMemtables(2).
		WithNumLevelZeroTables(2).
		WithNumLevelZeroTablesStall(4).
		WithBaseTableSize(2 << 20).
		WithBaseLevelSize(8 << 20).
		WithValueThreshold(512 << 10).
		WithValueLogFileSize(32 << 20).
		WithBlockCacheSize(8 << 20).
		WithIndexCacheSize(4 << 20).
		WithNumCompactors(2)
}

// maxEmptyLogs is how many empty log files a start gets over; a kill leaves one.
const maxEmptyLogs = 8

// openBadger opens the database. A panic of Badger over a damaged file comes back as a [*CorruptError].
func openBadger(dir string, log *slog.Logger) (*badger.DB, error) {
	for try := 0; ; try++ {
		db, err := tryBadger(dir, log)
		// A kill between making a log and giving it a size, or between emptying and removing it, leaves an empty
		// file. Badger takes it for new, gives it a size, and then refuses what it has just made; next time it reads
		// it as a log without entries. This is the text of z.NewFile, which Badger wraps as text.
		if err == nil || try == maxEmptyLogs || !strings.Contains(err.Error(), "Create a new file") {
			return db, err
		}
		log.Debug("empty log file", "err", err)
	}
}

func tryBadger(dir string, log *slog.Logger) (db *badger.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, &CorruptError{Detail: fmt.Sprint("a file of the database: ", p)}
		}
	}()
	db, err = badger.Open(badgerOptions(dir, log))
	// Badger drops the cause of its errors; this text is the same on all systems.
	if err != nil && strings.Contains(err.Error(), "Another process is using this Badger database") {
		return nil, fmt.Errorf("%w%s: stop the other program, or ask it through its interface", ErrInUse, holder(dir))
	}
	return db, err
}

// holder returns " by process n" if the lock file says so.
func holder(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "LOCK"))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" && len(pid) < 12 {
		return " by process " + pid
	}
	return ""
}

// badgerLog passes on what Badger says. It is for the developer: what an operator must know comes as an error.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) say(level, format string, args []any) {
	l.log.Debug("badger says", "level", level, "text", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l badgerLog) Errorf(format string, args ...any)   { l.say("error", format, args) }
func (l badgerLog) Warningf(format string, args ...any) { l.say("warning", format, args) }
func (l badgerLog) Infof(format string, args ...any)    { l.say("info", format, args) }

// Debugf drops the text: Badger formats some for every write.
func (l badgerLog) Debugf(string, ...any) {}
